"""The results of an experiment: finished runs of pipelines and of their steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from daskprs.azure.v1.data.dataset import FileDataset
from daskprs.azure.v1.runs.published import refuse_publishing
from daskprs.azure.v1.runs.script_run import metrics_in
from daskprs.errors import UsageError
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from daskprs.azure.v1.data.outputs import Output
    from daskprs.job.result import ParallelRunResult

COMPLETED = "Finished"


class OutputData:
    """What a step has written, after a run.

    Attributes
    ----------
    name : str
        The name of the output.
    path_on_datastore : str
        Below what `download` is given, the folder of the output.

    """

    def __init__(self, output: Output, run_id: str) -> None:
        self.name = output.name
        self.place = output.place
        self.path_on_datastore = output.path_on_datastore(run_id)

    def download(
        self,
        local_path: str | PathLike[str],
        overwrite: bool | None = None,  # noqa: FBT001 - the original's signature
        show_progress: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> int:
        """Copy it into a folder, and return how many files it has."""
        del show_progress
        if self.place is None or not self.place.is_dir():
            msg = f"the output {self.name!r} has written nothing."
            raise UsageError(msg)
        target = Path(local_path) / self.path_on_datastore
        if target.exists() and not overwrite:
            msg = f"{target} is there already. Download with overwrite=True."
            raise UsageError(msg)
        shutil.copytree(self.place, target, dirs_exist_ok=True)
        return sum(one.is_file() for one in target.rglob("*"))


class StepRun:
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

    def __init__(self, step: Any, folder: Path, run_id: str, outcome: Any) -> None:
        self.name = step.name
        self.id = run_id
        self.folder = folder
        self.result: ParallelRunResult | None = None if outcome is None else outcome.result
        self.is_reused = outcome is not None and outcome.is_reused
        self._outputs = {one.name: OutputData(one, run_id) for one in step.outputs}

    def __repr__(self) -> str:
        return f"StepRun({self.name!r}, folder={str(self.folder)!r})"

    def get_output_data(self, name: str) -> OutputData:
        """Return one of its outputs.

        Raises
        ------
        UsageError
            When it has none of that name.

        """
        if name not in self._outputs:
            known = nearest_of(name, [*self._outputs])
            msg = f"the step {self.name!r} has no output {name!r}; {known}"
            raise UsageError(msg)
        return self._outputs[name]

    def get_details(self) -> dict[str, Any]:
        """Return its id and status, and its outputs as datasets of files."""
        written = [one for one in self._outputs.values() if one.place is not None]
        datasets = [{"dataset": FileDataset([str(one.place)], {})} for one in written]
        return {"runId": self.id, "status": COMPLETED, "outputDatasets": datasets}

    def get_metrics(self, **_: Any) -> dict[str, Any]:
        """Return the script's metrics; for a reused result, those of the run that made it."""
        return metrics_in(self.folder if self.result is None else Path(self.result.job_dir))

    def get_status(self) -> str:
        """Return how it ended; one that failed has raised instead."""
        return COMPLETED

    def wait_for_completion(self, **_: Any) -> str:
        """Return how it ended, at once."""
        return COMPLETED


class PipelineRun:
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
        names = ", ".join(one.name for one in self._steps)
        return f"PipelineRun({self.id!r}, folder={str(self.folder)!r}, steps: {names})"

    def find_step_run(self, name: str) -> list[StepRun]:
        """Return the runs of the steps of this name."""
        return [one for one in self._steps if one.name == name]

    def get_steps(self) -> Iterator[StepRun]:
        """Yield the runs of all steps, in order."""
        return iter(self._steps)

    def get_children(self) -> Iterator[StepRun]:
        """Yield the runs of all steps, the last first."""
        return reversed(self._steps)

    def get_status(self) -> str:
        """Return how it ended; one that failed has raised instead."""
        return COMPLETED

    def wait_for_completion(self, **_: Any) -> str:
        """Return how it ended, at once: `Experiment.submit` has waited."""
        return COMPLETED

    def get_metrics(self, **_: Any) -> dict[str, Any]:
        """Return the metrics that scripts logged to the parent of their runs."""
        return metrics_in(self.folder)

    def get_portal_url(self) -> str:
        """Return where it can be looked at: its folder."""
        return self.folder.as_uri()

    def publish_pipeline(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse, as `Pipeline.publish` does."""
        refuse_publishing()


class RunDetails:
    """The widget by which notebooks show a run."""

    def __init__(self, run_instance: PipelineRun | StepRun) -> None:
        self.run = run_instance

    def show(self, **_: Any) -> PipelineRun | StepRun:
        """Return the run, which notebooks show: it is over, so there is nothing to follow."""
        return self.run
