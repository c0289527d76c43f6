"""The call of a job, saved in its folder, so that any process can repeat it.

Paths are saved as absolute ones. Objects of the caller's process (a frame, a function, a client)
are saved by name only, so that an error can say why only the caller can resume the job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.errors import JobFolderError, Option
from daskprs.inputs.source.input_file import is_url
from daskprs.options.run_options import TABLE
from daskprs.system.atomic_file import whole_file
from daskprs.system.regular_files import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from daskprs.agent.script.checked_script import CheckedScript
    from daskprs.folders.job_folder import JobFolder
    from daskprs.options.run_options import RunOptions

FORM = 1
MOST_BYTES = 1 << 30
"""Maximum size of a saved call in bytes: it may name millions of files."""
NOT_SAVED = {name for name, row in TABLE.items() if row.is_of_one_run} | {"source_directory"}
"""Options that are not saved with the call; the source directory is saved beside the script."""


def kept_call(
    data: Any,
    script: CheckedScript,
    options: RunOptions,
    *,
    client: Any,
    output_dir: str | PathLike[str] | None,
    text: bool,
) -> dict[str, Any]:
    """Return a call as JSON values."""
    kept, objects = {}, []
    for name, value in options.changed().items():
        if name in NOT_SAVED:
            continue
        try:
            kept[name] = json.loads(json.dumps(value))
        except TypeError:
            objects.append(f"{name}={value!r}")
    if script.pickled is not None:
        objects.append(f"the script {script.name}")
    paths = _paths(data)
    if paths is None:
        objects.append(f"data, a {type(data).__module__}.{type(data).__qualname__}")
    return {
        "form": FORM,
        "data": paths,
        "script": _place_of(script),
        "source_directory": None if script.root is None else str(script.root),
        "data_folders": [str(folder) for folder in script.data_folders],
        "options": kept,
        "client": client if isinstance(client, str) else None,
        "output_dir": None if output_dir is None else _absolute(os.fspath(output_dir)),
        "text": text,
        "objects": objects,
    }


def keep_call(folder: JobFolder, call: Mapping[str, Any]) -> None:
    """Write a call into the job folder."""
    with whole_file(folder.call) as file:
        file.write(json.dumps(call, indent=1).encode())


def read_call(folder: JobFolder) -> dict[str, Any]:
    """Return the call of a job.

    Raises
    ------
    JobFolderError
        When the folder holds no job, or its call holds objects that cannot be saved.

    """
    try:
        call: dict[str, Any] = read_json(folder.call, MOST_BYTES)
    except FileNotFoundError:
        msg = f"there is no job in {folder}: it has no {folder.call.name}."
        raise JobFolderError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{folder.call} cannot be read: {error}"
        raise JobFolderError(msg) from error
    if not isinstance(call, dict) or call.get("form") != FORM:
        msg = f"{folder.call} was written by another version of daskprs. Use that version."
        raise JobFolderError(msg)
    return call


def refuse_objects(folder: JobFolder, call: Mapping[str, Any]) -> None:
    """Reject a call that needs objects of its caller's process.

    Raises
    ------
    JobFolderError
        With the names of these objects, and the next step.

    """
    if call["objects"]:
        told = (
            f"the job in {folder} was called with what only its caller has: "
            f"{'; '.join(call['objects'])}. Go on with it there: parallel_run(…, "
        )
        msg = f"{told}{Option('job_dir', str(folder))}, {Option('resume', value=True)})."
        raise JobFolderError(msg)


def _place_of(script: CheckedScript) -> str | None:
    """Return the path or name by which a later run finds the script."""
    if script.pickled is not None:
        return None
    if script.module is not None or script.root is None or script.file is None:
        return script.module
    return str(script.root / script.file)


def _paths(data: Any) -> list[str] | str | None:
    """Return input paths as absolute ones or URLs; None for input that is not paths."""
    if isinstance(data, (str, os.PathLike)):
        return _absolute(os.fspath(data))
    if isinstance(data, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in data):
        return [_absolute(os.fspath(path)) for path in data]
    return None


def _absolute(path: str) -> str:
    return path if is_url(path) else str(Path.cwd() / path)
