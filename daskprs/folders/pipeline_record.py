"""The record of a pipeline folder: the status of each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daskprs.errors import JobFolderError
from daskprs.system.atomic_file import whole_file
from daskprs.system.regular_files import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.folders.pipeline_folder import PipelineFolder

Steps = dict[str, dict[str, Any]]
"""By name: a ``status``, and a ``definition`` where a resume needs to know what was changed."""


def read_record(folder: PipelineFolder) -> Steps | None:
    """Return the record of each step; None if no pipeline has run.

    Raises
    ------
    JobFolderError
        When it cannot be read.

    """
    try:
        steps: Steps = read_json(folder.record)["steps"]
        _check(steps)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        msg = f"{folder.record} cannot be read: {error}"
        raise JobFolderError(msg) from error
    return steps


def _check(steps: Steps) -> None:
    """Reject steps without a status."""
    for name, step in steps.items():
        if not isinstance(step["status"], str):
            msg = f"the step {name!r} has no status"
            raise TypeError(msg)


def write_record(folder: PipelineFolder, name: str, steps: Mapping[str, Any]) -> None:
    """Write the status of the steps of the named pipeline."""
    with whole_file(folder.record) as file:
        file.write(json.dumps({"pipeline": name, "steps": steps}, indent=1).encode())
