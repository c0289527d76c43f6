"""A command step: a shell command, run as a process on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.script.snapshot import (
    content_hash,
    copy_snapshot,
    digests_of,
    refuse_too_large,
    source_files,
)
from daskprs._system.atomic_file import whole_file
from daskprs._system.interpreter import environment_of
from daskprs.azure._assets import Assets
from daskprs.azure._expressions import (
    ExpressionError,
    Reference,
    command_line,
    parsed,
    plain_options,
    references,
)
from daskprs.azure._missing_modules import lacking, missing_modules, named, stand_ins_for, way_out
from daskprs.azure._pipelines.shell_arguments import served_command
from daskprs.azure._run_place import RunPlace
from daskprs.errors import UsageError, YamlError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.component import Declared
    from daskprs.azure._pipelines.forms import CommandForm
    from daskprs.azure._pipelines.wiring import Wiring
    from daskprs.azure._yaml_files.mistakes import Mistake

SHELL = "bash"
ROOT_RUN_ID = "AZUREML_ROOT_RUN_ID"
SCRIPTS = re.compile(r"(?:^|[\s;&|(])python3?\s+(?:-u\s+)?([^\s;&|<>$'\"-][^\s;&|<>$'\"]*\.py)\b")
"""Matches the Python scripts that a command visibly runs."""
FUNCTIONS = re.compile(r"^python -m daskprs\.azure\.v2\.function_component ([\w./-]+\.py) \w+$")
"""Matches the command of a function of SDK v2, and has the file of the function."""
INSTALLS = re.compile(r"\b(pip3?|conda|mamba|uv)\s+(\w+\s+)*install\b")
LOCAL = "127.0.0.1"


class Command(NamedTuple):
    """The command of a step."""

    line: str
    code: Path | None
    variables: dict[str, str]
    timeout_s: float | None
    python: str | None = None
    """The interpreter of the step's environment; None for this Python."""
    datastores: Mapping[str, str] = MappingProxyType({})
    """The folders of datastores, where scripts find containers of blobs."""
    distribution: str = ""
    """The kind of distribution, whose variables the process finds for a world of one process."""
    assets: Assets = Assets()
    """The assets that scripts may ask for by name."""

    def record(self) -> dict[str, Any]:
        """Return the command as JSON values, which a resume compares."""
        record = self._asdict() | {"code": None if self.code is None else str(self.code)}
        del record["datastores"], record["assets"]
        return record

    def process(self, step: str, folder: PipelineFolder) -> tuple[list[str], Path, dict[str, str]]:
        """Return the arguments, working directory and environment of the command's process.

        The command runs in a copy of its code, with folders ``outputs`` and ``logs`` as in Azure.
        """
        place = working_copy(self.code, folder.code(step))
        for name in ("outputs", "logs"):
            there = folder.step(step) / name
            there.mkdir(parents=True, exist_ok=True)
            if not (place / name).exists():
                (place / name).symlink_to(there)
        run = RunPlace(folder.step(step), None, self.datastores, may_be_unseen=True)
        variables = {**run.variables(), **world_of_one(self.distribution), **self.variables}
        environment = environment_of_process(self.python, variables, folder)
        return [SHELL, "-c", self.line], place, environment


def working_copy(code: Path | None, folder: Path, exclude: Collection[Path] = ()) -> Path:
    """Copy code into a new folder, and return where it is: a process writes into its own copy.

    So nothing is linked. `exclude` has folders that are not code.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if code is None:
        folder.mkdir(parents=True)
        return folder
    files = source_files(code, exclude)
    refuse_too_large(code, files)
    return copy_snapshot(code, files, folder, content_hash(digests_of(code, files)))


def environment_of_process(
    python: str | None, variables: Mapping[str, str], folder: PipelineFolder
) -> dict[str, str]:
    """Return the environment of a step's process, in which ``python`` is its interpreter.

    The folder gets what this needs, such as stand-ins for imports. None stands for this Python.
    """
    base = os.environ if python is None else environment_of(python, os.environ)
    path = [_bin(python or sys.executable, folder.bin), base.get("PATH", os.defpath)]
    environment = {**base, "PATH": os.pathsep.join(path), **variables}
    more = [environment.get("PYTHONPATH", ""), str(stand_ins_for(python, folder.stand_ins))]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, more))}


def world_of_one(distribution: str) -> dict[str, str]:
    """Return the variables of a kind of distribution for the only process of its world."""
    if distribution == "mpi":
        names = ("LOCAL_SIZE", "SIZE", "LOCAL_RANK", "RANK")
        sizes = {name: str(int(name.endswith("SIZE"))) for name in names}
        return {f"OMPI_COMM_WORLD_{name}": value for name, value in sizes.items()}
    if distribution not in ("pytorch", "tensorflow"):
        return {}
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        port = free.getsockname()[1]
    if distribution == "tensorflow":
        task = {"type": "worker", "index": 0}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": [f"{LOCAL}:{port}"]}, "task": task})}
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "NODE_RANK"), "0")
    return {"WORLD_SIZE": "1", **ranks, "MASTER_ADDR": LOCAL, "MASTER_PORT": str(port)}


class CommandStep:
    """Builds the command of a step; `work` is None when the step has mistakes."""

    others: Mapping[str, Any] = MappingProxyType({})
    """A command has no system flags."""

    def __init__(self, step: Declared, form: CommandForm, wiring: Wiring) -> None:
        self.mistakes: list[Mistake] = []
        self.work: Command | None = None
        self._step = step
        self._wiring = wiring
        self._inputs = wiring.inputs_of(step.name)
        if form.command is None:
            if not step.wrong:  # otherwise the key may be one of those
                self._wrong("it is missing: the command that the step runs", "command")
            return
        if self._has_interpreter():
            self._refuse_missing_scripts(form.command)
        for problem in plain_options(form.command):
            self.mistakes.append(step.source.warning(problem, "command"))
        try:
            line, values = self._line(form.command)
        except ExpressionError as error:
            self._wrong(error, "command")
            return
        timeout_s = form.limits.timeout if form.limits else None
        assets = wiring.asset_variables(step.code, form.command)
        variables = {**self._variables(form.environment_variables or {}), **assets, **values}
        more = wiring.given.assets.datastores
        python = step.environment.python
        kind = form.distribution.get("type") if isinstance(form.distribution, dict) else ""
        kind = str(kind).lower()
        known = wiring.given.assets
        self.work = Command(line, step.code, variables, timeout_s, python, more, kind, known)

    def _line(self, text: str) -> tuple[str, dict[str, str]]:
        """Return the command for the shell, and variables that hold values of it."""
        if self._wiring.given.is_served:
            return served_command(text, self._resolved, self._is_path)
        return command_line(text, self._resolved, self._is_path), {}

    def _resolved(self, one: Reference) -> str | None:
        return self._wiring.resolved(self._step, one)

    def _is_path(self, one: Reference) -> bool:
        if one.scope == "outputs":
            return True
        bound = self._inputs.get(one.name)
        return bound is not None and bound.is_path

    def _variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that Azure sets for a command, and the user's."""
        root = {ROOT_RUN_ID: self._wiring.folder.path.name}
        return {**root, **self._wiring.port_variables(self._step.name), **given}

    def _has_interpreter(self) -> bool:
        """Report an interpreter of the environment that does not start."""
        try:
            lacking((), self._step.environment.python)
        except UsageError as error:
            self._wrong(error, "environment")
            return False
        return True

    def _refuse_missing_scripts(self, text: str) -> None:
        """Refuse a command whose script does not exist or imports missing modules."""
        code = self._step.code
        try:
            dynamic = any(references(parsed(text.split(".py", maxsplit=1)[0])))
        except ExpressionError:
            dynamic = True
        if code is None or dynamic or "cd " in text or INSTALLS.search(text):
            return
        for name in (*SCRIPTS.findall(text), *FUNCTIONS.findall(text)):
            script = code / name
            if not script.is_file():
                self._wrong(f"the script {name} does not exist in {code}", "command")
                continue
            self._refuse_missing_modules(script)

    def _refuse_missing_modules(self, script: Path) -> None:
        environment = self._step.environment
        python = environment.python
        found = missing_modules(script, script.parent, python=python, has_workspace=False)
        missing = [one for one in found if not one.is_importable]
        if missing:
            shown = ", ".join(map(str, missing))
            problem = f"{script.name} imports what {named(python)} does not have: {shown}"
            way = way_out(python, environment.way, missing)
            self._wrong(f"{problem}. {way}".rstrip(), "command")

    def _wrong(self, problem: object, *way: str) -> None:
        self.mistakes.append(self._step.source.mistake(str(problem), *way))


def refuse_no_shell() -> None:
    """Refuse to run commands on a system without the shell."""
    if shutil.which(SHELL) is None:
        msg = f"command steps are run by {SHELL}, which is not installed here."
        raise YamlError(msg)


def _bin(python: str, folder: Path) -> str:
    """Return a folder in which ``python`` and ``python3`` are an interpreter.

    That is its own folder, or one that is made for it: a version may have another name there.
    """
    own, names = Path(python).parent, ("python", "python3")
    if all((own / name).exists() and (own / name).samefile(python) for name in names):
        return str(own)
    place = folder / hashlib.sha256(python.encode()).hexdigest()[:8]
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        with whole_file(place / name, durable=False) as script:
            script.write(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n'.encode())
            os.fchmod(script.fileno(), 0o700)
    return str(place)
