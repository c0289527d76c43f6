"""Reuse for steps of pipelines: the outputs of an identical earlier run are copied."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.node.environment import ASSETS
from daskprs._agent.script.side_inputs import version_of
from daskprs._agent.script.snapshot import digests_of, source_files
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._options.run_options import variable_digests
from daskprs.azure._pipeline_folder import ScriptFolder
from daskprs.azure._pipelines.command_step import ROOT_RUN_ID, Command
from daskprs.azure._reuse import FORM, ReusableResults, digest_of, files_named, key_of
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.step import Step


def clear(step: Step, folder: PipelineFolder) -> None:
    """Remove a step's outputs from the places that the run chose, unless its job is resumed.

    Places that the user named may hold more than an output, wherever they are; so may shared ones.
    """
    if has_begun(JobFolder(folder.step(step.name))):
        return
    for place in _places(step, folder):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _places(step: Step, folder: PipelineFolder) -> Iterator[Path]:
    kept = ScriptFolder(folder.step(step.name))
    yield from (folder.step(step.name) / "outputs", kept.metrics, kept.tags, kept.properties)
    yield kept.artifacts
    for bound in () if step.shares else step.outputs.values():
        if bound.is_own:
            yield bound.path


class StepReuse:
    """Finds and keeps results of steps, beside the folder of a run.

    A step with another value of one of the `secrets` does the same.
    """

    def __init__(self, folder: PipelineFolder, secrets: Sequence[str] = ()) -> None:
        self._folder = folder
        self._secrets = secrets
        self._results = ReusableResults(folder.results)
        self._keys: dict[str, str] = {}

    def taken(self, step: Step) -> Path | None:
        """Give a step the outputs of an earlier run that did the same, and return its folder."""
        if not step.may_reuse or has_begun(JobFolder(self._folder.step(step.name))):
            return None
        key = self._key(step)
        if key is None:
            return None
        self._keys[step.name] = key
        found = self._results.find(key)
        if found is None:
            return None
        if step.places != found.outputs:  # otherwise this run itself left them there
            clear(step, self._folder)
            found.copy_to(step.places)
        there = Path(found.record["folder"])
        log = self._folder.log(step.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"Not run: {there} has done the same, and its outputs were copied.\n")
        return there

    def done(self, step: Step) -> None:
        """Keep the result of a step."""
        key = self._keys.pop(step.name, None)
        if key is not None:
            record = {"folder": str(self._folder.step(step.name))}
            self._results.keep(key, record, step.places)

    def _key(self, step: Step) -> str | None:
        """Return the reuse key of a step, once its inputs exist; None if it has none."""
        moved = self._moved(step)
        if isinstance(step.work, Command):
            return self._key_of_command(step, step.work, moved)
        try:
            call = step.work.checked(overwrite=True)
            variables = call.options.environment_variables or {}
            assets = json.loads(variables.get(ASSETS, "{}"))
            return key_of(call, moved, _made(step), assets)
        except DaskprsError:
            return None  # the step's process will report the error

    def _moved(self, step: Step) -> dict[str, str]:
        """Return the paths and names that contain this run's name, with stand-ins for them."""
        run = self._folder.path.name
        moved = {str(self._folder): "{run}", f"{run}.{step.name}": f"{{run}}.{step.name}"}
        for kind, bounds in (("input", step.inputs), ("output", step.outputs)):
            for name, bound in bounds.items():
                named = bound.is_path and self._folder.is_named_in(bound.path)
                if named and (kind == "output" or bound.makers):
                    moved[str(bound.path)] = f"{{{kind}.{name}}}"
        return moved

    def _key_of_command(self, step: Step, command: Command, moved: dict[str, str]) -> str:
        code, own_folder = command.code, self._folder.step(step.name)
        own = (ROOT_RUN_ID, self._folder.path.name)
        variables = {k: v for k, v in command.variables.items() if (k, v) != own}
        variables = without_secrets(variable_digests(variables), self._secrets)
        paths = {name: bound.path for name, bound in step.inputs.items() if bound.is_path}
        assets = json.loads(command.variables.get(ASSETS, "{}"))
        parts = {
            "form": FORM,
            "files": files_named(_words(command.line), _made(step)),
            "command": command.record() | {"code": None, "variables": variables},
            "code": {} if code is None else digests_of(code, source_files(code)),
            "inputs": {name: version_of(path) for name, path in paths.items()},
            "outputs": {name: str(path) for name, path in step.places.items()},
            "assets": {name: version_of(Path(place)) for name, place in assets.items()},
            "whole": [name for name, path in step.places.items() if path == own_folder],
        }
        return digest_of(parts, moved)


def without_secrets(variables: Mapping[str, Any], secrets: Sequence[str]) -> dict[str, Any]:
    """Return environment variables with the names of secrets only."""
    return {name: None if name in secrets else one for name, one in variables.items()}


def _made(step: Step) -> set[str]:
    return {str(path) for path in step.places.values()}


def _words(line: str) -> list[str]:
    """Return the words of a command as a shell splits them, without expansion."""
    try:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        return list(words)
    except ValueError:
        return line.split()
