"""`ParallelRunStep`: an entry script over datasets, as in SDK v1."""

from __future__ import annotations

import re
import secrets
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._folders.job_folder import JobFolder
from daskprs._job.frontend import Surface, command_to_resume
from daskprs._options.site_defaults import default_job_dir
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._reuse import ReusableResults, run_or_reuse
from daskprs.azure._run_place import RunPlace
from daskprs.azure._step_logs import tell_parent
from daskprs.azure._system_flags import Flags, read_flags
from daskprs.azure._task import Task
from daskprs.azure.v1.config import ParallelRunConfig
from daskprs.azure.v1.dataset import DatasetConsumptionConfig
from daskprs.azure.v1.environment import way_to_python
from daskprs.azure.v1.inputs import (
    INPUTS,
    dataset_of,
    is_table,
    joined,
    mounted,
    name_of,
    outputs_in,
    record_of,
    root_of,
    source_of,
    words_of,
)
from daskprs.azure.v1.model import paths_of_models
from daskprs.azure.v1.outputs import Output, OutputFileDatasetConfig, as_output
from daskprs.azure.v1.parameter import known_parameters
from daskprs.azure.v1.step import PipelineStep
from daskprs.errors import InputError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs._job.result import ParallelRunResult
    from daskprs.azure.v1.parameter import PipelineParameter
    from daskprs.azure.v1.workspace import Workspace

BY_COMMAND = Surface(resume=command_to_resume)
"""A command continues a step from its folder, which has all that the job needs: `submit` has no
argument for that."""
NAMED_OUTPUTS = "named-outputs"
"""The folder of the outputs that have no other place, in the folder of the step."""
NAME = re.compile(r"[a-z][-a-z0-9]{1,30}[a-z0-9]")
NAME_RULE = (
    "3 to 32 lowercase letters, digits and dashes, the first a letter and the last not a dash"
)


class ParallelRunStep(PipelineStep):
    """An entry script over datasets; parameters and defaults are those of SDK v1.

    Parameters
    ----------
    name : str
        3 to 32 lowercase letters, digits and dashes, the first a letter and the last not a dash.
    parallel_run_config : ParallelRunConfig
        Says how to run the script.
    inputs : list
        Datasets: all file datasets or all tables; outputs of other steps are also allowed. A path
        is a file dataset, a pandas DataFrame a table.
    output : OutputFileDatasetConfig, PipelineData or path, optional
        The location of the step's output. Default: in the job folder.
    side_inputs : list, optional
        Additional file datasets for the script, which finds their paths in `arguments` or
        ``EntryScript().side_inputs``.
    arguments : list, optional
        Arguments for the script; an input or output among them is replaced by its path. An
        `OutputFileDatasetConfig` that no other step writes is a folder that the script fills.
    allow_reuse : bool
        Reuse the result of an identical earlier run. A step with outputs in `arguments` is not
        reused.
    models : list, optional
        Without effect: scripts can find all models of the workspace.

    Raises
    ------
    OptionError
        With a line for each parameter that cannot be used.

    """

    def __init__(
        self,
        name: str,
        parallel_run_config: ParallelRunConfig,
        inputs: Sequence[Any],
        output: Output | str | PathLike[str] | None = None,
        side_inputs: Sequence[Any] | None = None,
        arguments: Sequence[Any] | None = None,
        allow_reuse: bool = True,
        models: Sequence[Any] | None = None,
    ) -> None:
        self.name = name
        self.parallel_run_config = parallel_run_config
        self.inputs = inputs
        self.output: Output | None = as_output(output)
        self.side_inputs = side_inputs or []
        self.arguments = arguments or []
        self.allow_reuse = allow_reuse
        mistakes = [*_mistakes(vars(self))]
        if mistakes:
            raise OptionError("\n".join(mistakes))
        main = [] if self.output is None else [self.output]
        self._further = [*self._outputs_of_arguments()]
        self.outputs = [*main, *self._further]
        for one in self.outputs:
            one.producer = self

    def _outputs_of_arguments(self) -> Iterator[Output]:
        """Yield the folders that the script itself writes, and finds by an argument.

        An `OutputFileDatasetConfig` is one of them, unless another step writes it.
        """
        read = [self.output, *outputs_in([*self.inputs, *self.side_inputs])]
        given = (one for one in self.arguments if isinstance(one, OutputFileDatasetConfig))
        for one in dict.fromkeys(given):
            writer = one.producer or self  # a cell that runs again makes the step again
            if one not in read and writer.name == self.name:
                yield one

    def parameters(self) -> Iterator[PipelineParameter]:
        """Yield the pipeline parameters that the step and its config use."""
        yield from self.parallel_run_config.parameters()
        yield from super().parameters()

    def run(
        self,
        *,
        pipeline_parameters: Mapping[str, Any] | None = None,
        workspace: Workspace | None = None,
        client: Client | str | None = None,
        job_dir: str | PathLike[str] | None = None,
        overwrite: bool = False,
        resume: bool | str = False,
        progress: bool | None = None,
    ) -> ParallelRunResult:
        """Run the step to its end.

        Parameters
        ----------
        pipeline_parameters
            Values of parameters by name; the others have their defaults.
        workspace
            The workspace whose models the script finds by ``Model.get_model_path``. Default: that
            of the compute target, or of the datastore of the output.
        client, job_dir, overwrite, resume, progress
            As those of `daskprs.parallel_run`.

        Returns
        -------
        ParallelRunResult
            The result; with `allow_reuse`, that of an identical earlier run.

        Raises
        ------
        UsageError, JobFolderError, ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `daskprs.parallel_run`.

        """
        parameters = known_parameters(pipeline_parameters, self.parameters())
        folder = Path(job_dir or default_job_dir(self.name, secrets.token_hex(4))).absolute()
        changes: dict[str, Any] = {"overwrite": True} if overwrite else {}
        return self.execute(
            folder,
            parameters=parameters,
            workspace=workspace or self._workspace(),
            client=client,
            results=ReusableResults(PipelineFolder(folder).results),
            progress=progress,
            resume=resume,
            **changes,
        )

    def execute(
        self,
        folder: Path,
        *,
        parameters: Mapping[str, Any],
        workspace: Workspace | None,
        client: Client | str | None = None,
        parent: PipelineFolder | None = None,
        results: ReusableResults | None = None,
        progress: bool | None = None,
        **changes: Any,
    ) -> ParallelRunResult:
        """Run the step in a folder, or find its result among others, and place its output.

        The parent is the run of a pipeline, which may receive the step's logs and metrics.
        """
        run_id = (folder if parent is None else parent.path).name
        task = self.task(folder, parameters, workspace, client, run_id)
        task = task.with_variables(RunPlace.of(folder, workspace).variables())
        with mounted(self._links(parameters)):
            try:
                result = run_or_reuse(
                    task,
                    results if self.allow_reuse and not self._further else None,
                    moved=self._moved(task, run_id),
                    progress=progress,
                    surface=BY_COMMAND if isinstance(task.data, list) else None,  # else: in memory
                    **changes,
                )
            finally:
                if parent is not None:
                    flags = self._flags(parameters).others
                    tell_parent(JobFolder(folder), self.name, parent, flags)
        if self.output is not None:
            self.output.place = Path(result.output_dir)
        for one in self.outputs:
            one.register_in(workspace)
        return result

    def check(
        self,
        parameters: Mapping[str, Any],
        workspace: Workspace | None,
        client: Client | str | None = None,
    ) -> None:
        """Check the script and its options before the first step of a pipeline runs."""
        self._task_without_data(parameters, workspace, client).check(with_data=False)

    def _task_without_data(
        self,
        parameters: Mapping[str, Any],
        workspace: Workspace | None,
        client: Client | str | None,
    ) -> Task:
        config, form = self.parallel_run_config, self.parallel_run_config.checked(parameters)
        python = None if workspace is None else workspace.environment(form.environment).python
        return Task(
            name=self.name,
            data=None,
            script=form.entry_script,
            source_directory=None if form.source_directory is None else Path(form.source_directory),
            options=config.options(parameters) | ({} if python is None else {"python": python}),
            client=client,
            other_python=way_to_python(form.environment),
        )

    def task(
        self,
        folder: Path,
        parameters: Mapping[str, Any],
        workspace: Workspace | None,
        client: Client | str | None,
        run_id: str,
    ) -> Task:
        """Return the step's task, in the words of `daskprs.parallel_run`."""
        place = None if self.output is None else self.output.place_of(run_id)
        if self.output is not None:
            self.output.place = place or folder / "output"
        for further in self._further:
            further.place = further.place_of(run_id) or folder / NAMED_OUTPUTS / further.name
            further.place.mkdir(parents=True, exist_ok=True)
        task = self._task_without_data(parameters, workspace, client)
        dataset = joined([dataset_of(one, parameters) for one in self.inputs])
        flags = self._flags(parameters)
        for one in flags.warnings:
            warnings.warn(one, stacklevel=2)
        models = {} if workspace is None else paths_of_models(workspace.root, but_of=folder)
        options = {
            **flags.options,
            **task.options,
            **dataset.reading,
            "arguments": flags.arguments,
            "side_inputs": {**models, **self._places(parameters)},
        }
        if self.output is not None and self.output.overwrite:
            options["overwrite"] = True
        return replace(
            task,
            data=dataset.data,
            options=options,
            job_dir=folder,
            output_dir=place,
            names_output=self.output is not None,
            data_folders=() if workspace is None else workspace.folders(),
            ports=(self._records(parameters), {one.name: one.place for one in self.outputs}),
        )

    def _flags(self, parameters: Mapping[str, Any]) -> Flags:
        """Return the arguments of the script, and the system flags among them."""
        flags, wrong = read_flags(words_of(self.arguments, parameters))
        if wrong:
            raise OptionError("\n".join(f"arguments: {one}" for one in wrong))
        return flags

    def _moved(self, task: Task, run_id: str) -> dict[str, str]:
        """Return the paths that differ between runs, with names for them."""
        moved = {str(task.job_dir): "{job}"}
        if task.output_dir is not None and run_id in str(task.output_dir):
            moved[str(task.output_dir)] = "{output}"
        return moved

    def _places(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Return the paths of side inputs, by name."""
        return {
            name_of(one, number): root_of(one, parameters)
            for number, one in enumerate(self.side_inputs)
        }

    def _records(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs that a script finds by their names, in its run."""
        records = {}
        for number, one in enumerate(self.inputs):
            with suppress(InputError):  # files at several paths: none of them is all
                records[name_of(one, number)] = record_of(one, parameters)
        return {name: record for name, record in records.items() if record is not None}

    def _links(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Return the paths at which scripts expect side inputs, and the paths of their data."""
        return {
            one.path_on_compute: root_of(one, parameters)
            for one in self.side_inputs
            if isinstance(one, DatasetConsumptionConfig)
            and one.path_on_compute
            and one.path_on_compute.startswith("/")
        }

    def _workspace(self) -> Workspace | None:
        """Return the workspace of the compute target, or of the output's datastore."""
        compute = getattr(self.parallel_run_config.compute_target, "workspace", None)
        datastore = None if self.output is None else self.output.datastore
        return compute or getattr(datastore, "workspace", None)


def _mistakes(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each parameter of a step, by name, that cannot be used."""
    name, config, output = (given[one] for one in ("name", "parallel_run_config", "output"))
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"name={name!r}: must be {NAME_RULE}."
    if not isinstance(config, ParallelRunConfig):
        yield f"parallel_run_config={config!r}: must be a ParallelRunConfig."
    if output is not None and not isinstance(output, Output):
        yield f"output={output!r}: must be an OutputFileDatasetConfig or a PipelineData."
    if not isinstance(given["arguments"], list | tuple):
        yield f"arguments={given['arguments']!r}: must be a list."
    if not isinstance(given["allow_reuse"], bool):
        yield f"allow_reuse={given['allow_reuse']!r}: must be True or False."
    yield from _mistakes_of_data("inputs", given["inputs"])
    yield from _mistakes_of_data("side_inputs", given["side_inputs"])


def _mistakes_of_data(name: str, given: Any) -> Iterator[str]:
    if not isinstance(given, list | tuple) or (name == "inputs" and not given):
        yield f"{name}={given!r}: must be a list of datasets."
        return
    strange = [one for one in given if source_of(one, {}) is None]
    for one in strange:
        yield f"{name}: {one!r} is not {INPUTS}."
    kinds = {is_table(one, {}) for one in given if one not in strange}
    if name == "inputs" and len(kinds) > 1:
        yield "inputs: all must be datasets of files, or all must be tables."
    if name == "side_inputs" and True in kinds:
        yield "side_inputs: all must be datasets of files."
