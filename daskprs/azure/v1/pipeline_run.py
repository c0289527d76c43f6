"""Runs of pipelines that have ended: what notebooks ask of them, read from their folders."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from daskprs._core.ending import JobStatus
from daskprs._job.result import ParallelRunResult
from daskprs._options.site_defaults import job_root
from daskprs._suggest import nearest_of
from daskprs.azure._pipeline_folder import read_record
from daskprs.azure._pipeline_status import PipelineOnDisk
from daskprs.azure._step_logs import DRIVER_LOG
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import FileDataset
from daskprs.azure.v1.published import refuse_publishing
from daskprs.azure.v1.run import Run
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from daskprs.azure.v1.pipeline import Experiment
    from daskprs.azure.v1.workspace import Workspace

COMPLETED = "Finished"
WORDS = {JobStatus.COMPLETED.value: COMPLETED}
"""Statuses in the words of SDK v1, where these differ."""


class OutputData(Known):
    """An output of a step, after a run.

    Attributes
    ----------
    name : str
        The name of the output.
    path_on_datastore : str
        The folder of the output, below the path that `download` gets.

    """

    def __init__(self, name: str, place: Path | None, path_on_datastore: str) -> None:
        self.name = name
        self.place = place
        self.path_on_datastore = path_on_datastore

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


def step_record(
    step: Any, folder: Path, run_id: str, result: ParallelRunResult | None
) -> dict[str, Any]:
    """Return what the record of a run keeps of a step that has just run, as JSON values."""
    places = ((one, None if one.place is None else str(one.place)) for one in step.outputs)
    return {
        "outputs": [[one.name, place, one.path_on_datastore(run_id)] for one, place in places],
        "result": None if result is None else result.record(),
        "is_reused": result is not None and result.job_dir != folder,
    }


class _EndedRun(Known):
    """What the run of a step and the run of a pipeline have in common."""

    id: str
    folder: Path
    _status: str
    _steps: Sequence[StepRun]
    _workspace: Workspace | None = None

    def get_status(self, *_: Any, **__: Any) -> str:
        """Return at once how the run has ended: `submit` waits for the end, and raises errors."""
        return WORDS.get(self._status, self._status)

    def wait_for_completion(self, show_output: bool = False, *_: Any, **__: Any) -> str:
        """Return at once how the run has ended; show what its scripts have printed, if asked to.

        The progress of parallel steps was shown while they ran.
        """
        for step in self._steps if show_output else ():
            for line in _printed(step):
                sys.stdout.write(f"{line}\n")
        return self.get_status()

    @property
    def status(self) -> str:
        """How the run has ended."""
        return self.get_status()

    def _seen_by_scripts(self) -> Run:
        """Return the run as its script has seen it, which logged and uploaded."""
        return Run(self.folder, self._workspace)

    def get_metrics(self, name: str | None = None, **_: Any) -> dict[str, Any]:
        """Return the metrics that its script has logged."""
        return self._seen_by_scripts().get_metrics(name)

    def get_tags(self) -> dict[str, Any]:
        """Return the tags that its script has given it."""
        return self._seen_by_scripts().get_tags()

    def get_properties(self) -> dict[str, Any]:
        """Return the properties that its script has given it."""
        return self._seen_by_scripts().get_properties()

    tags, properties = property(get_tags), property(get_properties)

    def get_file_names(self) -> list[str]:
        """Return the names of the files that its script has uploaded."""
        return self._seen_by_scripts().get_file_names()

    def download_file(
        self, name: str, output_file_path: str | PathLike[str] | None = None, **_: Any
    ) -> None:
        """Copy a file that its script has uploaded."""
        self._seen_by_scripts().download_file(name, output_file_path)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | PathLike[str] | None = None,
        **_: Any,
    ) -> None:
        """Copy the files that its script has uploaded, or those with a prefix, into a folder."""
        self._seen_by_scripts().download_files(prefix, output_directory)

    def register_model(self, model_name: str, model_path: str | None = None, **more: Any) -> Any:
        """Register a file that its script has uploaded, or a local one, as a model."""
        return self._seen_by_scripts().register_model(model_name, model_path, **more)

    def get_details(self) -> dict[str, Any]:
        """Return the id and the status."""
        return {"runId": self.id, "status": self.get_status()}

    def get_details_with_logs(self) -> dict[str, Any]:
        """Return the details, with the text of each log: ``logFiles`` has them by name."""
        return {**self._seen_by_scripts().get_details_with_logs(), **self.get_details()}

    def get_portal_url(self) -> str:
        """Return the URI of the folder."""
        return self.folder.as_uri()


class StepRun(_EndedRun):
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
        self,
        name: str,
        folder: Path,
        run_id: str,
        kept: Mapping[str, Any],
        workspace: Workspace | None,
    ) -> None:
        # Where the step has not ended well, its record has no more than the status.
        result = kept.get("result")
        self.name = kept.get("name", name)
        self.id = run_id
        self.folder = folder
        self.result = None if result is None else ParallelRunResult.of(result)
        self.is_reused = kept.get("is_reused", False)
        self._status = kept["status"]
        self._workspace = workspace
        self._outputs = {
            name: OutputData(name, None if place is None else Path(place), below)
            for name, place, below in kept.get("outputs", ())
        }
        self._steps = [self]

    def __repr__(self) -> str:
        """Return a line with the status, and one for each output."""
        reused = " (reused)" if self.is_reused else ""
        outputs = [one for one in self._outputs.values() if one.place is not None]
        lines = [f"{self.name}: {self.get_status()}{reused}"]
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
        return {**super().get_details(), "outputDatasets": datasets}

    def _seen_by_scripts(self) -> Run:
        """Return the run as its script has seen it; for a reused result, the one that made it."""
        made = self.folder if self.result is None else Path(self.result.job_dir)
        return Run(made, self._workspace)


def _printed(step: StepRun) -> Iterator[str]:
    """Yield the lines that the script of a step has printed, behind the name of the step.

    The log of a parallel step is a link to that of its job.
    """
    log = step.folder / DRIVER_LOG
    if log.is_file() and not log.is_symlink():
        with log.open("rb") as lines:
            for line in lines:
                yield f"[{step.name}] {line.decode(errors='replace').rstrip()}"


class PipelineRun(_EndedRun):
    """A pipeline that has run.

    Parameters
    ----------
    experiment : Experiment
        The experiment of the run.
    run_id : str
        Its name, which is that of its folder.

    Attributes
    ----------
    id : str
        Its name.
    folder : Path
        Where the folders of its steps are.

    Raises
    ------
    UsageError
        When there is no run of that name.

    """

    def __init__(self, experiment: Experiment, run_id: str, folder: Path | None = None) -> None:
        place = PipelineOnDisk(job_root() / run_id if folder is None else folder)
        steps, state = read_record(place), place.state()
        if steps is None or state is None:
            msg = f"there is no run {run_id!r} in {place.path.parent}; Experiment.get_runs has all."
            raise UsageError(msg)
        self.experiment = experiment
        self.id = run_id
        self.folder = place.path
        self._status = state.status
        self._workspace = experiment.workspace
        self._steps = [
            StepRun(name, place.step(name), run_id, kept, experiment.workspace)
            for name, kept in steps.items()
        ]

    def __repr__(self) -> str:
        """Return a line with the status, and the lines of each step."""
        steps = indent("\n".join(map(repr, self._steps)), "  ")
        return f"{self.id}: {self.get_status()}\n{steps}"

    def find_step_run(self, name: str) -> list[StepRun]:
        """Return the runs of the steps of this name."""
        return [one for one in self._steps if one.name == name]

    def get_steps(self) -> Iterator[StepRun]:
        """Yield the runs of all steps, in order."""
        return iter(self._steps)

    def get_children(self, **_: Any) -> Iterator[StepRun]:
        """Yield the runs of all steps, the last first."""
        return reversed(self._steps)

    publish_pipeline = refuse_publishing


class RunDetails(Known):
    """The widget by which notebooks show a run."""

    def __init__(self, run_instance: PipelineRun | StepRun) -> None:
        self.run = run_instance

    def show(self, **_: Any) -> PipelineRun | StepRun:
        """Return the run, which is over, for the notebook to show."""
        return self.run


class ParallelRunStepDetails(RunDetails):
    """The same for a parallel step."""
