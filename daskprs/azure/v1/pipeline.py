"""`Pipeline` and `Experiment`: steps in the order of their needs, run to their end."""

from __future__ import annotations

import json
import re
import secrets
from contextlib import contextmanager, suppress
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import TYPE_CHECKING, Any, overload

from daskprs._core.ending import JobStatus
from daskprs._job.job_end import status_by
from daskprs._job.result import RUNNING
from daskprs._options.site_defaults import default_job_dir, job_root, site_defaults
from daskprs._suggest import nearest_of
from daskprs._system.file_lock import held
from daskprs.azure._pipeline_folder import RECORD, PipelineFolder, read_record, write_record
from daskprs.azure._reuse import ReusableResults
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.parameter import known_parameters
from daskprs.azure.v1.pipeline_run import PipelineRun, StepRun, step_record
from daskprs.azure.v1.published import refuse_publishing
from daskprs.azure.v1.run import Run
from daskprs.azure.v1.script_step import ScriptRunConfig
from daskprs.azure.v1.step import flat
from daskprs.errors import JobFolderError, OptionError, UsageError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Client

    from daskprs.azure.v1.parameter import PipelineParameter
    from daskprs.azure.v1.workspace import Workspace

SUBMIT_ARGUMENTS = ("pipeline_parameters", "regenerate_outputs", "overwrite", "client", "progress")
WITHOUT_EFFECT = {
    "tags",
    "parent_run_id",
    "credential_passthrough",
    "continue_on_step_failure",
}
"""Arguments that notebooks give to `Experiment.submit`, and that mean nothing here."""


class Experiment(Known):
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

    @classmethod
    def list(cls, workspace: Workspace | None, *_: Any, **__: Any) -> builtins.list[Experiment]:
        """Return the experiments that have runs in the root of jobs, by name."""
        return [cls(workspace, name) for name in sorted({name for _, name in _runs()})]

    def get_runs(self, *_: Any, **__: Any) -> Iterator[PipelineRun]:
        """Yield the runs of this experiment in the root of jobs, the last first."""
        for folder, name in _runs():
            if name == self.name:
                yield PipelineRun(self, folder.name, folder)

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
        UsageError, JobFolderError, ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `daskprs.parallel_run`, of the first step that does.

        """
        for name in sorted(others.keys() - WITHOUT_EFFECT):
            msg = f"submit: there is no argument {name!r}; {nearest_of(name, SUBMIT_ARGUMENTS)}"
            raise OptionError(msg)
        parameters = known_parameters(pipeline_parameters, config.parameters())
        workspace = getattr(config, "workspace", None) or self.workspace
        steps = [config] if isinstance(config, ScriptRunConfig) else config.steps
        if not steps:
            msg = "submit: the pipeline has no steps. Give it some: Pipeline(ws, steps=[…])."
            raise UsageError(msg)
        for step in steps:
            step.check(parameters, workspace, client)
        parent = PipelineFolder(default_job_dir(self.name, secrets.token_hex(4)))
        parent.create((), shared=bool(site_defaults().get("shared")))
        record = _RunRecord(parent, self.name)
        places = [record.folder_of(step.name) for step in steps]
        with held(parent.lock, f"the folder {parent}"):
            for step, place in zip(steps, places, strict=True):
                with record.running(place) as told:
                    result = step.execute(
                        place,
                        parameters=parameters,
                        workspace=workspace,
                        client=client,
                        parent=parent,
                        results=None if regenerate_outputs else ReusableResults(parent.results),
                        progress=progress,
                        **({"overwrite": True} if overwrite else {}),
                    )
                    told.update(step_record(step, place, parent.path.name, result))
        run = PipelineRun(self, parent.path.name, parent.path)
        return next(run.get_steps()) if isinstance(config, ScriptRunConfig) else run


def _runs() -> builtins.list[tuple[Path, str]]:
    """Return the folder and the experiment of each run in the root of jobs, the last first.

    Runs that cannot be read, such as those of another version, are left out.
    """
    found = []
    for place in job_root().glob(f"*/{RECORD}"):
        folder = PipelineFolder(place.parent)
        with suppress(JobFolderError, OSError):  # it may be removed meanwhile
            if read_record(folder) is not None:
                name = str(json.loads(folder.record.read_bytes())["pipeline"])
                found.append((folder.record.stat().st_mtime_ns, folder.path, name))
    return [(path, name) for _, path, name in sorted(found, reverse=True)]


class _RunRecord:
    """The record of each step's status, in the folder of the run, which it marks as such."""

    def __init__(self, parent: PipelineFolder, name: str) -> None:
        self._parent = parent
        self._name = name
        self._steps: dict[str, dict[str, Any]] = {}

    def folder_of(self, name: str) -> Path:
        """Return a unique folder for a step; its name needs no quotes in a shell.

        Nor does it begin as names of ours do: the folder of such a step has another name.
        """
        plain = re.sub(r"[^\w.-]+|(?<=^pipeline)\.", "-", name)
        names = (plain if at == 0 else f"{plain}-{at}" for at in count())
        place = self._parent.step(next(one for one in names if one not in self._steps))
        self._keep(place, "NotStarted", name=name)
        return place

    @contextmanager
    def running(self, place: Path) -> Iterator[dict[str, Any]]:
        """Record that a step runs, how it has ended, and what is put into the yielded dict."""
        self._keep(place, RUNNING)
        told: dict[str, Any] = {}
        try:
            yield told
        except BaseException as error:  # else the record would say for ever that the step runs
            self._keep(place, status_by(error))
            raise
        self._keep(place, JobStatus.COMPLETED, **told)

    def _keep(self, place: Path, status: str, **more: Any) -> None:
        self._steps[place.name] = {**self._steps.get(place.name, {}), "status": str(status), **more}
        write_record(self._parent, self._name, self._steps)


class Pipeline(Known):
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
