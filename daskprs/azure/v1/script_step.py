"""`PythonScriptStep` and `ScriptRunConfig`: a script that runs once, as a process."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._options.site_defaults import default_job_dir
from daskprs._suggest import nearest
from daskprs.azure._missing_modules import refuse_missing_modules
from daskprs.azure._pipeline_folder import PipelineFolder, ScriptFolder
from daskprs.azure._pipelines.command_step import environment_of_process, working_copy
from daskprs.azure._registry import copy
from daskprs.azure._run_place import RunPlace
from daskprs.azure._step_logs import DRIVER_LOG
from daskprs.azure.v1.dataset import DatasetConsumptionConfig
from daskprs.azure.v1.environment import variables_of, way_to_python
from daskprs.azure.v1.inputs import (
    INPUTS,
    name_of,
    outputs_in,
    record_of,
    source_of,
    words_of,
)
from daskprs.azure.v1.outputs import Output, as_output
from daskprs.azure.v1.parameter import known_parameters
from daskprs.azure.v1.step import PipelineStep
from daskprs.errors import DaskprsError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daskprs.azure.v1.workspace import Workspace

OUTPUTS = "outputs"
"""The folder beside a script whose new files become artifacts of the run, as in Azure."""
FOLDERS = (OUTPUTS, "logs")
"""The folders that a script finds beside it, as in Azure."""
SHOWN_LINES = 20
"""Lines of a failed script's output that an error shows."""


class PythonScriptStep(PipelineStep):
    """A Python script that is run once, as a process of this machine.

    Parameters
    ----------
    script_name : str
        The script, relative to `source_directory`.
    name : str, optional
        Default: the name of the script.
    arguments : list, optional
        Arguments for the script; an input or output among them is replaced by its path.
    inputs, outputs : list, optional
        Inputs and outputs that are not among `arguments`.
    source_directory : str, optional
        The folder of the script, which works in a copy of it. Default: the current one.
    runconfig : RunConfiguration, optional
        The variables of its environment are set. The interpreter that the workspace has for that
        environment runs the script.
    **rest
        Without effect: computes, and reuse; the step runs each time.

    Raises
    ------
    OptionError
        When an argument or input is of another kind.

    """

    def __init__(
        self,
        script_name: str,
        name: str | None = None,
        arguments: Sequence[Any] | None = None,
        compute_target: Any = None,
        runconfig: Any = None,
        runconfig_pipeline_params: Any = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Output] | None = None,
        params: Any = None,
        source_directory: str | os.PathLike[str] | None = None,
        **rest: Any,
    ) -> None:
        self.script_name = script_name
        self.name = name or script_name
        self.arguments = list(arguments or [])
        self.inputs = list(inputs or [])
        self.source_directory = Path(source_directory or ".").absolute()
        self._environment = getattr(runconfig, "environment", None)
        read = [*outputs_in(self.inputs)]
        written = [one for one in self.arguments if isinstance(one, Output)]
        written = [*map(as_output, outputs or []), *written]
        self.outputs = [one for one in dict.fromkeys(written) if one not in read]
        for one in self.outputs:
            one.producer = self
        strange = [one for one in self.inputs if source_of(one, {}) is None]
        if strange:
            msg = f"inputs: {strange[0]!r} is not {INPUTS}."
            raise OptionError(msg)

    def run(
        self,
        *,
        pipeline_parameters: Mapping[str, Any] | None = None,
        job_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Run the script to its end.

        Raises
        ------
        OptionError
            When the script does not exist, or an input is a table in memory.
        DaskprsError
            When the exit code of the script is not 0; with the end of its output.

        """
        parameters = known_parameters(pipeline_parameters, self.parameters())
        self.check(parameters, None)
        folder = Path(job_dir or default_job_dir(Path(self.script_name).stem, secrets.token_hex(4)))
        self.execute(folder.absolute(), parameters=parameters, workspace=None)

    def execute(
        self,
        folder: Path,
        *,
        parameters: Mapping[str, Any],
        workspace: Workspace | None,
        parent: PipelineFolder | None = None,
        **_: Any,
    ) -> None:
        """Run the script in a folder, with its output in the folder's log."""
        run_id = (folder if parent is None else parent.path).name
        for one in self.outputs:
            one.place = one.place_of(run_id) or folder / "outputs" / one.name
            one.place.mkdir(parents=True, exist_ok=True)
        words = words_of(self.arguments, parameters, with_tables=True)
        place, records = RunPlace.of(folder, workspace), self._records(parameters)
        place.keep_ports(records, {one.name: one.place for one in self.outputs})
        source = self._copied(place, workspace)
        script = str(source / self.script_name)
        self._run_process([script, *words], source, place, self._python(workspace))
        for one in self.outputs:
            one.register_in(workspace)

    def check(
        self, parameters: Mapping[str, Any], workspace: Workspace | None, client: Any = None
    ) -> None:
        """Check the script and its imports before the first step of a pipeline runs."""
        del parameters, client
        script = self.source_directory / self.script_name
        if not script.is_file():
            msg = f"script_name: the file {str(script)!r} does not exist.{nearest(script, '.py')}"
            raise OptionError(msg)
        given = variables_of(self._environment)
        more = filter(None, given.get("PYTHONPATH", "").split(os.pathsep))
        refuse_missing_modules(
            script,
            script.parent,
            [str(self.source_directory / one) for one in more],
            self._python(workspace),
            way_to_python(self._environment) if self._environment else "",
            with_importable=False,
        )

    def _python(self, workspace: Workspace | None) -> str | None:
        """Return the interpreter of the step's environment; None for this Python."""
        if workspace is None or self._environment is None:
            return None
        return workspace.environment(self._environment).python

    def _copied(self, place: RunPlace, workspace: Workspace | None) -> Path:
        """Copy the source without data, and return the copy: the script may change its folder."""
        root = self.source_directory.resolve()
        around = {root, *(root / self.script_name).parents}
        data = () if workspace is None else workspace.folders()
        exclude = {one.resolve() for one in (place.folder, *data)} - around
        copied = working_copy(root, ScriptFolder(place.folder).code, exclude)
        if not (copied / self.script_name).is_file():
            msg = (
                f"script_name: {self.script_name!r} is not in the copy of {root} in which a script "
                "runs. It has to lie in source_directory, and no line of .amlignore or .gitignore "
                "may leave it out."
            )
            raise OptionError(msg)
        for name in FOLDERS:
            with suppress(FileExistsError):  # of the source, whatever it is there
                (copied / name).mkdir()
        return copied

    def _run_process(
        self, words: list[str], source: Path, place: RunPlace, python: str | None
    ) -> None:
        """Run Python with these words, and raise the end of its log when it fails."""
        given = variables_of(self._environment)
        variables = {**place.variables(), **given}
        log = place.folder / DRIVER_LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        before = written_in(source)
        with log.open("wb") as file:
            done = subprocess.run(  # noqa: S603 - it is the user's script
                [python or sys.executable, *words],
                cwd=source,
                env=environment_of_process(python, variables, PipelineFolder(place.folder)),
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        for name, version in written_in(source).items():
            if version != before.get(name):
                copy(source / name, ScriptFolder(place.folder).artifacts / name)
        if done.returncode:
            lines = log.read_text("utf-8", "replace").splitlines()[-SHOWN_LINES:]
            shown = "\n".join(f"  {line}" for line in lines)
            failed = f"the step {self.name!r} has failed: exit code {done.returncode}."
            msg = f"{failed}\n{shown}\nAll of it: {log}"
            raise DaskprsError(msg)

    def _records(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the named inputs: datasets, or paths of mounted files."""
        named = [one for one in self.arguments if isinstance(one, DatasetConsumptionConfig)]
        records = {}
        for number, one in enumerate([*self.inputs, *named]):
            record = record_of(one, parameters)
            if record is None:
                msg = (
                    f"inputs: {name_of(one, number)!r} is a table in memory, which a script of its "
                    "own process does not see. Write it: Dataset.Tabular.register_pandas_dataframe("
                    "frame, (datastore, 'path'), 'name')."
                )
                raise OptionError(msg)
            records[name_of(one, number)] = record
        return records


def written_in(source: Path) -> dict[str, int]:
    """Return the files in the script's folder ``outputs``, which Azure uploads, with times."""
    files = (one for one in (source / OUTPUTS).rglob("*") if one.is_file())
    return {str(one.relative_to(source)): one.stat().st_mtime_ns for one in files}


class ScriptRunConfig(PythonScriptStep):
    """A Python script that an experiment runs by itself.

    Parameters
    ----------
    source_directory : str
        The folder of the script, which works in a copy of it.
    script : str
        The script, relative to `source_directory`.
    arguments : list, optional
        Arguments for the script; an input or output among them is replaced by its path.
    run_config, environment
        As those of `PythonScriptStep`.
    compute_target, **rest
        Without effect.

    """

    def __init__(
        self,
        source_directory: str | os.PathLike[str],
        script: str,
        arguments: Sequence[Any] | None = None,
        run_config: Any = None,
        compute_target: Any = None,
        environment: Any = None,
        **rest: Any,
    ) -> None:
        given = {"arguments": arguments, "runconfig": run_config, **rest}
        super().__init__(script, source_directory=source_directory, **given)
        self._environment = environment or self._environment
