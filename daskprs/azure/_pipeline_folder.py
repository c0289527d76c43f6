"""The folder of a pipeline's run: every path in it, and the record of each step's status."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._folders.below import Below
from daskprs._system.atomic_file import whole_file
from daskprs._system.private_folder import make_private, not_entered
from daskprs._system.regular_files import read_json
from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

RESULTS = "daskprs-results"
"""The folder of results that later runs may reuse."""
WORKSPACE = "daskprs-workspace"
"""The folder of a workspace of Azure's SDK v2 that nothing names."""
REGISTERED = "daskprs-v2"
"""The folder of what is registered by SDK v2, in the ``.azureml`` of a workspace."""
OWN = (RESULTS, WORKSPACE, REGISTERED)
"""Folders of ours that are not source, whatever folder they lie in."""
USER_LOGS = "user_logs"
"""The folder in that of a step with the log of its terminal."""
RECORD = "pipeline.json"
"""Like all names of ours it begins with ``pipeline.``, which no folder of a step does."""
VERSION = 2
"""The form of the record and of the folder."""
Steps = dict[str, dict[str, Any]]
"""By name: a ``status``, and for a resume ``definition`` and ``read``: what a step was and read."""


class PipelineFolder:
    """Knows every path of a run of a pipeline; the folder of a parallel step is a job folder."""

    record = Below(RECORD)
    """The record of each step's status."""
    cancel = Below("pipeline.cancel")
    """Exists once the steps that run are canceled."""
    lock = Below("pipeline.lock")
    """Held while the pipeline runs."""
    outputs = Below("pipeline.outputs")
    """The folder of pipeline outputs without a path of their own."""
    bin = Below("pipeline.bin")
    """The folder in which ``python`` is this Python, if this Python has another name."""
    stand_ins = Below("pipeline.stand-ins")
    """Modules that commands import and that are not installed."""
    included_code = Below("pipeline.code")
    """Code together with what ``additional_includes`` names, each in a folder of its own."""
    metrics = Below("pipeline.logs/metrics.csv")
    """The counts of the steps that are set to write them."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = plain(path)

    def __str__(self) -> str:
        return str(self.path)

    def create(self, steps: Iterable[str], *, shared: bool = False) -> None:
        """Make the folder; only its owner may enter a new one, unless it is `shared`.

        Refuse a folder that holds what no run has made: a run removes what earlier attempts have
        left in its folder, which would be removed as well.
        """
        known = read_record(self)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_others(steps, known)
            if known is None and not shared:
                make_private(self.path)
        except OSError as error:
            msg = f"job_dir: {self} cannot be made: {error}. Use another job_dir."
            raise JobFolderError(msg) from error

    def _refuse_others(self, steps: Iterable[str], known: Steps | None) -> None:
        """Refuse a new folder with other files, or a folder where that of a new step will be."""
        if known is None:
            ours = (self.lock, self.included_code)  # a run makes them before its record
            others = [path for path in sorted(self.path.iterdir()) if path not in ours]
        else:
            new = [self.step(name) for name in steps if name not in known]
            others = [path for path in new if path.exists() or path.is_symlink()]
        if others:
            msg = (
                f"{Option('job_dir')}: {self} holds {others[0].name}, which no run of a pipeline "
                "has made there, and a run removes what earlier runs left in its folder. "
            )
            way = (
                f"Name a folder that does not exist or is empty by {Option('job_dir')}."
                if known is None
                else f"Move {others[0].name} elsewhere, or give the step another name."
            )
            raise JobFolderError(msg + way)

    def is_named_in(self, path: Path) -> bool:
        """Return whether a path contains the run's name, so that no other run uses it."""
        run = self.path.name
        return any(part == run or part.startswith(f"{run}.") for part in path.parts)

    @property
    def results(self) -> Path:
        """The folder with the results of earlier runs, beside the folders of the runs."""
        return self.path.parent / RESULTS

    def logs(self, step: str) -> Path:
        """Return the copy of a step's logs, where the step is set to make one."""
        return self.path / "pipeline.logs" / step

    def datastore(self, name: str) -> Path:
        """Return where outputs in a datastore without a root go."""
        return self.path / "pipeline.datastores" / name

    def step(self, name: str) -> Path:
        """Return the folder of a step: that of its job, if it is a parallel one.

        A step of an inner pipeline has a dot in its name: ``prepare.clean``. The steps of one that
        is called ``pipeline`` get a second dot.
        """
        return self.path / (name.replace(".", "..", 1) if name.startswith("pipeline.") else name)

    def is_of_step(self, name: str) -> bool:
        """Say whether a folder of this name is that of a step, by the rule of `step`."""
        return not name.startswith("pipeline.") or name.startswith("pipeline..")

    def task(self, name: str) -> Path:
        """Return the file that describes the task for a step's process."""
        return self.step(name) / "task.json"

    def named_output(self, step: str, name: str) -> Path:
        """Return the path of a step's output that has no path of its own."""
        return self.step(step) / "named-outputs" / name

    def code(self, step: str) -> Path:
        """Return the folder of copies of the code of a command."""
        return self.step(step) / "code"

    def log(self, step: str) -> Path:
        """Return the log of a step's terminal, where a studio shows it."""
        return self.step(step) / USER_LOGS / "std_log.txt"


def plain(path: str | PathLike[str]) -> Path:
    """Return an absolute path without ``..``; links stay unless a ``..`` goes out of one."""
    found = os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow every link
    real = os.path.realpath(path)
    return Path(found if os.path.realpath(found) == real else real)


class ScriptFolder:
    """Knows the paths of a script and of what it logs, in the folder of a step or of a run."""

    code = Below("code")
    """The folder of copies of its source."""
    metrics = Below("logs/user/metrics.jsonl")
    """The file of logged metrics, a line of JSON for each value."""
    tags, properties = Below("logs/user/tags.jsonl"), Below("logs/user/properties.jsonl")
    """The same for tags and for properties."""
    inputs = Below("inputs.json")
    """The named inputs."""
    outputs = Below("outputs.json")
    """The folders of the outputs, by name."""
    assets = Below("assets.json")
    """The places of all assets that the caller has given, by name."""
    artifacts = Below("artifacts")
    """Files that were uploaded."""

    def __init__(self, path: Path) -> None:
        self.path = path


def read_record(folder: PipelineFolder) -> Steps | None:
    """Return the record of each step; None if no pipeline has run.

    A record that cannot be read is a JobFolderError.
    """
    try:
        record = read_json(folder.record)
        steps: Steps = record["steps"]
        _check(steps)
        version = record.get("version", 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise not_entered(folder.path) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        msg = f"{folder.record} cannot be read: {error}"
        raise JobFolderError(msg) from error
    if version != VERSION:
        msg = (
            f"{folder.record} was written by another version of daskprs (its form is {version}, "
            f"this one reads {VERSION}). Run the pipeline with that version, or use another "
            f"{Option('job_dir')}."
        )
        raise JobFolderError(msg)
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
        file.write(
            json.dumps({"pipeline": name, "version": VERSION, "steps": steps}, indent=1).encode()
        )
