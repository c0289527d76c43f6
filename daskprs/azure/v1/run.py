"""`Run`: the run that a script is part of, kept as files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from daskprs._agent.foreign.entry_script import EntryScript
from daskprs.azure._pipeline_folder import PipelineFolder, ScriptFolder
from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins.step_run import StepRun
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import dataset_of_record
from daskprs.azure.v1.model import Model
from daskprs.azure.v1.workspace import Workspace
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

OF_V1 = "Give one: Pipeline(workspace=ws, …), step.run(workspace=ws), or Experiment(ws, 'name')."
OF_FILES = (
    "Steps of a pipeline.yml or of SDK v2 have none. Give the step the data, or the folder of a "
    "model, as an input, and let the script take its path as an argument."
)
"""The next step for a script that looks up data or models in a workspace."""
LOGS = ("azureml-logs/*.txt", "logs/*.txt", "logs/user/**/*.txt")
"""The logs of a run that `get_details_with_logs` shows."""
SHOWN_BYTES = 1_000_000
"""Bytes of each log that it shows, at most: the last."""


class RunExperiment(NamedTuple):
    """The experiment of a run, seen from its script."""

    name: str
    workspace: Workspace


class Run(Known, StepRun):
    """A run, seen from its script: what it logs and uploads is kept in the folder of the step.

    Outside of a run, as in a notebook, the run is offline, and nothing is kept.

    Attributes
    ----------
    id : str
        The name of its folder; for a step of a pipeline, ``<run of the pipeline>-<step>``.
    input_datasets : dict
        Its named inputs: datasets, or paths of files that are mounted or downloaded.
    output_datasets : dict
        The folders of its outputs, by name.

    """

    _refused = UsageError

    def __init__(
        self,
        folder: Path | None,
        workspace: Workspace | None = None,
        inputs: dict[str, Any] | None = None,
        experiment_name: str | None = None,
    ) -> None:
        super().__init__(folder, inputs)
        self._workspace = workspace
        self._experiment_name = experiment_name

    def _run_in(self, folder: Path | None) -> Self:
        return type(self)(folder, self._workspace, experiment_name=self._name())

    @classmethod
    def get_context(cls, allow_offline: bool = True, *_: Any, **__: Any) -> Run:
        """Return the run that this process is part of.

        Raises
        ------
        UsageError
            When this node does not see the folder of the run, or without a run when `allow_offline`
            is false.

        """
        place = RunPlace.seen()
        if place is not None:
            workspace = Workspace.of_run(place)
            datasets = {name: dataset_of_record(one) for name, one in place.inputs().items()}
            return cls(place.folder, workspace, {**EntryScript().side_inputs, **datasets})
        if not allow_offline:
            msg = "Run.get_context(allow_offline=False): this process is part of no run."
            raise UsageError(msg)
        return _OfflineRun(None)

    @property
    def experiment(self) -> RunExperiment:
        """Its experiment, with the workspace.

        Raises
        ------
        AttributeError
            When the step knows no workspace: scripts ask by `hasattr`.

        """
        if self._workspace is None:
            place = RunPlace.current()
            way = OF_FILES if place is not None and place.may_be_unseen else OF_V1
            msg = f"the run {self.id!r} knows no workspace. {way}"
            raise AttributeError(msg)
        return RunExperiment(self._name(), self._workspace)

    def register_model(self, model_name: str, model_path: str | None = None, **more: Any) -> Model:
        """Register an artifact of the run, or a file or folder beside it, as a model."""
        path = model_path or model_name
        artifact = None if self._folder is None else ScriptFolder(self._folder).artifacts / path
        found = path if artifact is None or not artifact.exists() else artifact
        return Model.register(self.experiment.workspace, found, model_name, **more)

    def get_details_with_logs(self) -> dict[str, Any]:
        """Return the details, with the text of each log: ``logFiles`` has them by name."""
        logs = {} if self._folder is None else logs_in(self._folder)
        return {**self.get_details(), "logFiles": logs}

    def _name(self) -> str:
        """Return the name of the experiment, which the record of a pipeline's run holds."""
        if self._experiment_name is None and self._folder is not None:
            for one in (self._folder, self._folder.parent):
                record = PipelineFolder(one).record
                if record.exists():
                    return str(json.loads(record.read_bytes())["pipeline"])
        return self._experiment_name or self.id


class _OfflineRun(Run):
    """The run of a process without one; scripts compare the name of its class."""


def logs_in(folder: Path) -> dict[str, str]:
    """Return the text of each log in the folder of a run by its name, of a long one the end."""
    found = {}
    for file in sorted({one for pattern in LOGS for one in folder.glob(pattern)}):
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - SHOWN_BYTES))
            found[str(file.relative_to(folder))] = log.read().decode("utf-8", "replace")
    return found
