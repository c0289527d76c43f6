"""Reuse: a step that would do what an earlier run has done gives that run's result.

Results are known by the content of what they were made from: the input (path, size and time of
each file), the files beside the script, arguments, side inputs, and the options that change what
comes out. Neither installed packages nor the cluster count.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.agent.side_inputs import placed, side_inputs_of
from daskprs.job_folder import whole_file
from daskprs.output.remote import is_remote
from daskprs.result import ParallelRunResult

if TYPE_CHECKING:
    from daskprs.azure.task import Task
    from daskprs.checked_call import CheckedCall
    from daskprs.surface import Surface

FORM = 1
DEFAULT_FOLDER = Path("daskprs-jobs", "results")
"""Where results are looked for: below the working directory."""


class Outcome(NamedTuple):
    """What became of a step."""

    result: ParallelRunResult
    is_reused: bool


class Results:
    """The results of earlier runs, a file for each.

    Parameters
    ----------
    folder
        Where they are looked for.

    """

    def __init__(self, folder: Path = DEFAULT_FOLDER) -> None:
        self._folder = folder

    def find(self, key: str) -> ParallelRunResult | None:
        """Return a result whose output is there as it was left; None otherwise."""
        try:
            kept = json.loads(self._file(key).read_bytes())
        except (OSError, ValueError):
            return None
        if kept.get("form") != FORM or kept["files"] != _files(Path(kept["result"]["output_dir"])):
            return None
        return ParallelRunResult.of(kept["result"])

    def keep(self, key: str, result: ParallelRunResult) -> None:
        """Keep a result."""
        files = _files(Path(result.output_dir))
        kept = {"form": FORM, "result": result.record(), "files": files}
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._file(key)) as file:
            file.write(json.dumps(kept, indent=1).encode())

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def run_or_reuse(
    task: Task,
    results: Results | None,
    *,
    place_matters: bool = True,
    progress: bool | None = None,
    surface: Surface | None = None,
    **changes: Any,
) -> Outcome:
    """Run a task, unless an earlier run has done the same.

    Parameters
    ----------
    task
        What to do.
    results
        Those of earlier runs; None: it is run in any case.
    place_matters
        Whether the output has to be in the task's `output_dir`. Without, it may be where an
        earlier run has left it.
    progress, surface, **changes
        As those of `Task.run`.

    """
    key = None
    if results is not None and not changes.get("resume"):
        # As if it could be replaced: an output file that is there may be the result looked for.
        call = task.checked(**{**changes, "overwrite": True})
        key = key_of(call, task.output_dir if place_matters else None)
        found = None if key is None else results.find(key)
        if found is not None:
            return Outcome(found, is_reused=True)
    result = task.run(progress=progress, surface=surface, **changes)
    if results is not None and key is not None:
        results.keep(key, result)
    return Outcome(result, is_reused=False)


def key_of(call: CheckedCall, output_dir: Path | str | None) -> str | None:
    """Return what a call is known by; None of one that cannot be known.

    Parameters
    ----------
    call
        The call.
    output_dir
        Where its output has to be; None: anywhere.

    """
    if call.kept["objects"] or is_remote(call.named_output_dir):
        return None
    call.script.look(exclude=(call.folder.path, call.output_dir))
    options = call.options.of_results()
    moved = [(str(call.output_dir), "{output}"), (str(call.folder), "{job}")]
    options["arguments"] = list(placed(options["arguments"], moved))
    sides = {one.name: one.version for one in side_inputs_of(call.options.side_inputs)}
    parts = {
        "form": FORM,
        "input": call.source.fingerprint(),
        "script": call.script.fingerprint(),
        "options": {**options, "side_inputs": sides},
        "output_dir": None if output_dir is None else str(output_dir),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _files(folder: Path) -> dict[str, list[int]]:
    """Return size and time of each file below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(folder))] = [status.st_size, status.st_mtime_ns]
    return found
