"""`Pipeline` and `Experiment`: steps in the order of their needs, run to their end."""

from __future__ import annotations

import re
import secrets
import shutil
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from itertools import count
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, overload

from daskprs._core.ending import JobStatus
from daskprs._job.result import RUNNING
from daskprs._options.site_defaults import default_job_dir, site_defaults
from daskprs._suggest import nearest_of
from daskprs._system.file_lock import held
from daskprs.azure._pipeline_folder import PipelineFolder, write_record
from daskprs.azure._reuse import ReusableResults
from daskprs.azure._stand_ins.step_run import metrics_in
from daskprs.azure.v1.dataset import FileDataset
from daskprs.azure.v1.parameter import known_parameters
from daskprs.azure.v1.published import refuse_publishing
from daskprs.azure.v1.run import Run
from daskprs.azure.v1.script_step import ScriptRunConfig
from daskprs.azure.v1.step import flat
from daskprs.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs._job.result import ParallelRunResult
    from daskprs.azure.v1.outputs import Output
    from daskprs.azure.v1.parameter import PipelineParameter
    from daskprs.azure.v1.workspace import Workspace

COMPLETED = "Finished"


SUBMIT_ARGUMENTS = ("pipeline_parameters", "regenerate_outputs", "overwrite", "client", "progress")
WITHOUT_EFFECT = {
    "tags",
    "parent_run_id",
    "credential_passthrough",
    "continue_on_step_failure",
}
"""Arguments that notebooks give to `Experiment.submit`, and that mean nothing here."""


class OutputData:
    """An output of a step, after a run.

    Attributes
    ----------
    name : str
        The name of the output.
    path_on_datastore : str
        The folder of the output, below the path that `download` gets.

    """

    def __init__(self, output: Output, run_id: str) -> None:
        self.name = output.name
        self.place = output.place
        self.path_on_datastore = output.path_on_datastore(run_id)

    def download(
        self,
        local_path: str | PathLike[str],
        overwrite: bool | None = None,
        show_progress: bool = True,
    ) -> int:
        """Copy the output into a folder, and return the number of its files."""
        if self.place is None or not self.place.is_dir():
            msg = f"the output {self.name!r} has written nothing."
            raise UsageError(msg)
        target = Path(local_path) / self.path_on_datastore
        if target.exists() and not overwrite:
            msg = f"{target} exists. Download with overwrite=True."
            raise UsageError(msg)
        shutil.copytree(self.place, target, dirs_exist_ok=True)
        return sum(one.is_file() for one in target.rglob("*"))


class _Ended:
    """A run that is over: one that fails raises instead."""

    def get_status(self, **_: Any) -> str:
        """Return at once that the run is complete."""
        return COMPLETED

    wait_for_completion = get_status


class StepRun(_Ended):
    """A step that has run.

    Attributes
    ----------
    name : str
        The name of the step.
    id : str
        The value of ``{run-id}`` in the paths of the step's outputs.
    folder : Path
        Where its logs are.
    result : ParallelRunResult or None
        The result of a parallel step; None for a script step.
    is_reused : bool
        Whether the result of an identical earlier run was reused.

    """

    def __init__(
        self, step: Any, folder: Path, run_id: str, result: ParallelRunResult | None
    ) -> None:
        self.name = step.name
        self.id = run_id
        self.folder = folder
        self.result = result
        self.is_reused = result is not None and result.job_dir != folder
        self._outputs = {one.name: OutputData(one, run_id) for one in step.outputs}

    def __repr__(self) -> str:
        """Return a line with the status, and one for each output."""
        reused = " (reused)" if self.is_reused else ""
        outputs = [one for one in self._outputs.values() if one.place is not None]
        lines = [f"{self.name}: {COMPLETED}{reused}"]
        lines += [f"  {one.name}: {one.place}" for one in outputs]
        return "\n".join([*lines, f"  folder: {self.folder}"])

    def get_output_data(self, name: str) -> OutputData:
        """Return an output by name.

        Raises
        ------
        UsageError
            When the step has no output of that name.

        """
        if name not in self._outputs:
            known = nearest_of(name, [*self._outputs])
            msg = f"the step {self.name!r} has no output {name!r}; {known}"
            raise UsageError(msg)
        return self._outputs[name]

    def get_details(self) -> dict[str, Any]:
        """Return the id, the status, and the outputs as datasets of files."""
        written = [one for one in self._outputs.values() if one.place is not None]
        datasets = [{"dataset": FileDataset([str(one.place)], {})} for one in written]
        return {"runId": self.id, "status": COMPLETED, "outputDatasets": datasets}

    def get_metrics(self, **_: Any) -> dict[str, Any]:
        """Return the script's metrics; for a reused result, those of the run that made it."""
        return metrics_in(self.folder if self.result is None else Path(self.result.job_dir))


class PipelineRun(_Ended):
    """A pipeline that has run.

    Attributes
    ----------
    id : str
        Its name.
    folder : Path
        Where the folders of its steps are.

    """

    def __init__(self, run_id: str, folder: Path, steps: list[StepRun]) -> None:
        self.id = run_id
        self.folder = folder
        self._steps = steps

    def __repr__(self) -> str:
        """Return a line with the status, and the lines of each step."""
        steps = indent("\n".join(map(repr, self._steps)), "  ")
        return f"{self.id}: {COMPLETED}\n{steps}"

    def find_step_run(self, name: str) -> list[StepRun]:
        """Return the runs of the steps of this name."""
        return [one for one in self._steps if one.name == name]

    def get_steps(self) -> Iterator[StepRun]:
        """Yield the runs of all steps, in order."""
        return iter(self._steps)

    def get_children(self) -> Iterator[StepRun]:
        """Yield the runs of all steps, the last first."""
        return reversed(self._steps)

    def get_metrics(self, **_: Any) -> dict[str, Any]:
        """Return the metrics that scripts logged to the parent of their runs."""
        return metrics_in(self.folder)

    def get_portal_url(self) -> str:
        """Return the URI of the folder."""
        return self.folder.as_uri()

    publish_pipeline = refuse_publishing


class RunDetails:
    """The widget by which notebooks show a run."""

    def __init__(self, run_instance: PipelineRun | StepRun) -> None:
        self.run = run_instance

    def show(self, **_: Any) -> PipelineRun | StepRun:
        """Return the run, which is over, for the notebook to show."""
        return self.run


class Experiment:
    """Runs pipelines and scripts here, and to their end.

    Parameters
    ----------
    workspace : Workspace, optional
        The workspace whose models scripts find.
    name : str
        The name of the experiment and of its runs.

    """

    def __init__(self, workspace: Workspace | None = None, name: str = "experiment") -> None:
        self.workspace = workspace
        self.name = name

    def start_logging(self, **_: Any) -> Run:
        """Return a run for this process to log to."""
        folder = default_job_dir(self.name, secrets.token_hex(4)).absolute()
        return Run(folder, self.workspace, experiment_name=self.name)

    @overload
    def submit(self, config: Pipeline, **given: Any) -> PipelineRun: ...

    @overload
    def submit(self, config: ScriptRunConfig, **given: Any) -> StepRun: ...

    def submit(
        self,
        config: Pipeline | ScriptRunConfig,
        *,
        pipeline_parameters: Mapping[str, Any] | None = None,
        regenerate_outputs: bool = False,
        overwrite: bool = False,
        client: Client | str | None = None,
        progress: bool | None = None,
        **others: Any,
    ) -> PipelineRun | StepRun:
        """Run the steps of a pipeline one after the other, and return the finished run.

        Parameters
        ----------
        config
            The pipeline, or one script.
        pipeline_parameters
            Values of parameters by name; the others have their defaults.
        regenerate_outputs
            Run every step, whether or not an earlier run has done the same.
        overwrite, client, progress
            As those of `daskprs.parallel_run`.
        **others
            Without effect: tags, parent_run_id, credential_passthrough, continue_on_step_failure
            (no step runs after one that failed).

        Raises
        ------
        OptionError
            When an argument or a parameter is unknown.
        UsageError, JobFolderError, ParallelRunFailed, ParallelRunCanceled
            As by `daskprs.parallel_run`, of the first step that does.

        """
        for name in sorted(others.keys() - WITHOUT_EFFECT):
            msg = f"submit: there is no argument {name!r}; {nearest_of(name, SUBMIT_ARGUMENTS)}"
            raise OptionError(msg)
        parameters = known_parameters(pipeline_parameters, config.parameters())
        parent = PipelineFolder(default_job_dir(self.name, secrets.token_hex(4)))
        steps = [config] if isinstance(config, ScriptRunConfig) else config.steps
        parent.create((), shared=bool(site_defaults().get("shared")))
        record = _RunRecord(parent, self.name)
        places = [record.folder_of(step.name) for step in steps]
        runs: list[StepRun] = []
        with held(parent.lock, f"the folder {parent}"):
            for step, place in zip(steps, places, strict=True):
                with record.running(place):
                    result = step.execute(
                        place,
                        parameters=parameters,
                        workspace=getattr(config, "workspace", None) or self.workspace,
                        client=client,
                        parent=parent,
                        results=None if regenerate_outputs else ReusableResults(parent.results),
                        progress=progress,
                        **({"overwrite": True} if overwrite else {}),
                    )
                runs.append(StepRun(step, place, parent.path.name, result))
        if isinstance(config, ScriptRunConfig):
            return runs[0]
        return PipelineRun(parent.path.name, parent.path, runs)


class _RunRecord:
    """The record of each step's status, in the folder of the run, which it marks as such."""

    def __init__(self, parent: PipelineFolder, name: str) -> None:
        self._parent = parent
        self._name = name
        self._steps: dict[str, dict[str, str]] = {}

    def folder_of(self, name: str) -> Path:
        """Return a unique folder for a step; its name needs no quotes in a shell."""
        plain = re.sub(r"[^\w.-]+", "-", name)
        names = (plain if at == 0 else f"{plain}-{at}" for at in count())
        place = self._parent.step(next(one for one in names if one not in self._steps))
        self._keep(place, "NotStarted")
        return place

    @contextmanager
    def running(self, place: Path) -> Iterator[None]:
        """Record that a step runs, and how it has ended."""
        self._keep(place, RUNNING)
        try:
            yield
        except BaseException as error:  # else the record would say for ever that the step runs
            is_canceled = isinstance(error, KeyboardInterrupt)
            self._keep(place, JobStatus.CANCELED if is_canceled else JobStatus.FAILED)
            raise
        self._keep(place, JobStatus.COMPLETED)

    def _keep(self, place: Path, status: str) -> None:
        self._steps[place.name] = {"status": str(status)}
        write_record(self._parent, self._name, self._steps)


class Pipeline:
    """Steps, and the steps that they need.

    Parameters
    ----------
    workspace : Workspace, optional
        The workspace whose models scripts find.
    steps : list
        The steps; those whose outputs they need are added automatically.
    **rest
        Without effect.

    Raises
    ------
    UsageError
        When steps need each other in a circle, or when two have the same name or output.

    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        steps: Sequence[Any] = (),
        description: str | None = None,
        **rest: Any,
    ) -> None:
        self.workspace = workspace
        self.description = description
        self.steps = _in_order(flat(steps))
        names = [step.name for step in self.steps]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"steps: two steps are called {twice[0]!r}. Each needs a name of its own."
            raise UsageError(msg)
        _refuse_one_place(self.steps)

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(step.name for step in self.steps)})"

    def validate(self) -> list[str]:
        """Return an empty list: the constructor already refuses mistakes."""
        return []

    def parameters(self) -> Iterator[PipelineParameter]:
        """Yield the pipeline parameters that its steps use."""
        for step in self.steps:
            yield from step.parameters()

    def submit(self, experiment_name: str, **given: Any) -> PipelineRun:
        """Run the pipeline, as `Experiment.submit` does."""
        return Experiment(self.workspace, experiment_name).submit(self, **given)

    publish = refuse_publishing


def _refuse_one_place(steps: Iterable[Any]) -> None:
    """Refuse outputs that would be mixed in one folder: one of two steps, or two of one name."""
    writers: dict[Any, str] = {}
    for step in steps:
        for one in step.outputs:
            is_named = one.datastore is not None and "{output-name}" in one.path
            place = (one.datastore.root, one.path, one.name) if is_named else one
            other = writers.setdefault(place, step.name)
            if other != step.name:
                msg = (
                    f"steps: {other!r} and {step.name!r} both write the output {one.name!r}. Give "
                    "each an output with a name of its own; a step that only reads an output "
                    "needs it among its inputs."
                )
                raise UsageError(msg)


def _in_order(steps: Iterable[Any]) -> list[Any]:
    """Return steps and the steps that they need, each after its needs."""
    graph: dict[Any, list[Any]] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop(0)
        if step in graph:
            continue
        graph[step] = [one.producer for one in step.needed if one.producer is not None]
        graph[step] += step.after
        waiting += graph[step]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " needs ".join(repr(step.name) for step in reversed(error.args[1]))
        msg = f"steps: they need each other in a circle: {circle}."
        raise UsageError(msg) from error
