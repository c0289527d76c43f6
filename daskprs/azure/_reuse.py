"""Reuse: a step that would repeat an earlier run takes the result of that run.

The key of a result covers the input (path, size and time of each file), the files beside the
script, the arguments and the files that they name, and the side inputs. It also covers the options
that change the output or which mini-batches fail. Installed packages and the cluster do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs import __version__
from daskprs._agent.script.side_inputs import side_inputs_of, version_of
from daskprs._job.result import ParallelRunResult
from daskprs._output.publish.remote import is_remote
from daskprs._system.regular_files import read_json
from daskprs.azure._registry import copy, write_text
from daskprs.azure._stand_ins.step_run import RUN_ID, id_of
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from daskprs._job.frontend import Surface
    from daskprs._job.request import CheckedCall
    from daskprs.azure._task import Task

FORM = 1
OUTPUT = "output"
LIMITS = (
    *("error_threshold", "allowed_failed_count", "allowed_failed_percent", "fail_on_timeout"),
    *("run_max_try", "run_invocation_timeout", "task_overhead_timeout", "init_timeout"),
    *("progress_update_timeout", "agent_memory_limit"),
)
"""Options that decide which mini-batches fail, and whether failures fail the job."""


class Kept(NamedTuple):
    """The kept result of an earlier run."""

    record: dict[str, Any]
    """The record of that run, as JSON values."""
    outputs: dict[str, Path]
    """Output files and folders, by name."""

    def copy_to(self, places: Mapping[str, Path]) -> None:
        """Copy the outputs to the places of a later run; keep file times, which enter the keys."""
        for name, place in places.items():
            there = self.outputs[name]
            if there != place and there.exists():  # a step need not write all its outputs
                copy(there, place, with_registry=True)


class ReusableResults:
    """The results of earlier runs, each in a file of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def find(self, key: str) -> Kept | None:
        """Return the result with this key if its outputs are unchanged, else None."""
        try:
            kept = read_json(self._file(key))
        except (OSError, ValueError, JobFolderError):
            return None
        if kept.get("form") != FORM:
            return None
        outputs = {name: Path(place) for name, place in kept["outputs"].items()}
        if kept["files"] != {name: _files(place) for name, place in outputs.items()}:
            return None
        return Kept(kept["told"], outputs)

    def keep(self, key: str, record: dict[str, Any], outputs: Mapping[str, Path]) -> None:
        """Keep a result."""
        kept = {
            "form": FORM,
            "told": record,
            "outputs": {name: str(place) for name, place in outputs.items()},
            "files": {name: _files(place) for name, place in outputs.items()},
        }
        write_text(self._file(key), json.dumps(kept, indent=1))

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def run_or_reuse(
    task: Task,
    results: ReusableResults | None,
    *,
    moved: Mapping[str, str],
    progress: bool | None = None,
    surface: Surface | None = None,
    **changes: Any,
) -> ParallelRunResult:
    """Run a task, unless `results` has one of an earlier run that did the same; return the result.

    For `moved`, see `key_of`. All other arguments are those of `Task.run`.
    """
    key = None
    if results is not None and not changes.get("resume"):
        # An existing output file may be the result of that run: do not refuse it here.
        call = task.checked(**{**changes, "overwrite": True})
        key = key_of(call, moved)
        found = None if key is None else results.find(key)
        if found is not None:
            return ParallelRunResult.of(found.record)
    result = task.run(progress=progress, surface=surface, **changes)
    if results is not None and key is not None:
        results.keep(key, result.record(), {OUTPUT: Path(result.output_dir)})
    return result


def key_of(
    call: CheckedCall,
    moved: Mapping[str, str],
    made: Collection[str] = (),
    others: Mapping[str, str] | None = None,
) -> str | None:
    """Return the key of a call; None for a call whose result cannot be recognized.

    `moved` has the paths that change with each run, with a stand-in for each. `made` has paths of
    outputs, and `others` further paths that the script reads, by name.
    """
    if call.kept["objects"] or is_remote(call.named_output_dir):
        return None
    call.script.look(exclude=call.own_places)
    options = {**call.options.of_results(), **{name: call.options[name] for name in LIMITS}}
    own, variables = (RUN_ID, id_of(call.folder.path)), options["environment_variables"] or {}
    options["environment_variables"] = {k: v for k, v in variables.items() if (k, v) != own}
    sides = {one.name: one.version for one in side_inputs_of(call.options.side_inputs)}
    parts = {
        "form": FORM,
        "daskprs": __version__,
        "input": _input_of(call, moved),
        "files": files_named(call.options.arguments or (), {*made, str(call.output_dir)}),
        "others": {name: version_of(Path(place)) for name, place in (others or {}).items()},
        "script": call.script.fingerprint(),
        "options": {**options, "side_inputs": sides},
        "output_dir": str(call.output_dir),
    }
    return digest_of(parts, moved)


def _input_of(call: CheckedCall, moved: Mapping[str, str]) -> Any:
    """Return the fingerprint of an input; for a path that changes with each run, its version."""
    data = call.kept["data"]
    if isinstance(data, str) and any(f"{data}/".startswith(f"{path}/") for path in moved):
        return {"path": data, "version": version_of(Path(data))}
    return call.source.fingerprint()


def files_named(words: Iterable[str], made: Collection[str]) -> dict[str, str]:
    """Return the versions of the files whose whole paths are among words, except outputs."""
    found = {}
    for word in words:
        path = word.partition("=")[2] if word.startswith("-") else word
        ours = any(path == one or path.startswith(f"{one}/") for one in made)
        if path.startswith("/") and not ours and os.path.isfile(path):  # noqa: PTH113 - any text
            found[path] = version_of(Path(path))
    return found


def digest_of(parts: Mapping[str, Any], moved: Mapping[str, str]) -> str:
    """Return a digest of JSON values, with stand-ins for the paths that change with each run."""
    text = json.dumps(parts, sort_keys=True)
    for path in sorted(moved, key=len, reverse=True):  # a path may be a part of a longer one
        whole = rf"(?<![\w.-]){re.escape(json.dumps(path)[1:-1])}(?![\w.-])"
        text = re.sub(whole, moved[path].replace("\\", r"\\"), text)
    return hashlib.sha256(text.encode()).hexdigest()


def _files(place: Path) -> dict[str, list[int]]:
    """Return size and time of each file below a path."""
    found = {}
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_file():
            status = path.stat()
            found[str(path.relative_to(place))] = [status.st_size, status.st_mtime_ns]
    return found
