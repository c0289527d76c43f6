"""`Run`: the run that a script is part of, kept as files."""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from daskprs.agent.foreign.entry_script import EntryScript
from daskprs.azure.run_place import RunPlace
from daskprs.azure.v1.dataset import dataset_of_record
from daskprs.azure.v1.model import Model
from daskprs.azure.v1.workspace import Workspace
from daskprs.errors import UsageError
from daskprs.folders.pipeline_folder import PipelineFolder, ScriptFolder, is_pipeline_folder
from daskprs.system.masks import masked

if TYPE_CHECKING:
    from os import PathLike

RUNNING, COMPLETED, FAILED = "Running", "Completed", "Failed"
LOGGER = logging.getLogger("daskprs.run")


class RunExperiment(NamedTuple):
    """The experiment of a run, seen from its script."""

    name: str
    workspace: Workspace


class Run:
    """A run, seen from its script: what it logs and uploads is kept in the folder of the step.

    Outside of a run, as in a notebook, the run is offline, and nothing is kept.

    Attributes
    ----------
    id : str
        The name of its folder; for a step of a pipeline, ``<run of the pipeline>-<step>``.
    input_datasets : dict
        Its named inputs: datasets, or paths of files that are mounted or downloaded.

    """

    def __init__(
        self,
        folder: Path | None,
        workspace: Workspace | None = None,
        inputs: dict[str, Any] | None = None,
        experiment_name: str | None = None,
    ) -> None:
        self.id = f"OfflineRun_{secrets.token_hex(4)}" if folder is None else _id_of(folder)
        self.input_datasets = inputs or {}
        self._folder = folder
        self._workspace = workspace
        self._experiment_name = experiment_name
        self._status = RUNNING

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.complete()
        else:
            self.fail()

    @classmethod
    def get_context(cls, allow_offline: bool = True, **_: Any) -> Run:
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
            msg = (
                f"the run {self.id!r} knows no workspace. Give one: Pipeline(workspace=ws, …), "
                "step.run(workspace=ws), or Experiment(ws, 'name')."
            )
            raise AttributeError(msg)
        return RunExperiment(self._name(), self._workspace)

    @property
    def parent(self) -> Run | None:
        """The run of the pipeline that it is part of; None without a pipeline."""
        if self._folder is None or not is_pipeline_folder(self._folder.parent):
            return None
        return Run(self._folder.parent, self._workspace)

    def child_run(self, *_: Any, **__: Any) -> Run:
        """Return a run below this one, with metrics and artifacts of its own."""
        name = f"{self.id}_{secrets.token_hex(4)}"
        folder = None if self._folder is None else ScriptFolder(self._folder).child(name)
        return Run(folder, self._workspace, experiment_name=self._name())

    # ---- metrics and artifacts ----

    def log(self, name: str, value: Any, description: str = "", **_: Any) -> None:
        """Keep a value of a metric."""
        LOGGER.info("%s: %s", name, value)
        if self._folder is not None:
            record = json.dumps({"name": name, "value": value}, default=_plain)
            file = ScriptFolder(self._folder).metrics
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as metrics:
                metrics.write(f"{masked(record)}\n")

    def log_list(self, name: str, value: Any, description: str = "", **_: Any) -> None:
        """Keep several values of a metric."""
        self.log(name, [*value], description)

    def log_row(self, name: str, description: str = "", **columns: Any) -> None:
        """Keep a row of a metric that is a table."""
        self.log(name, columns, description)

    def log_table(self, name: str, value: Any, description: str = "", **_: Any) -> None:
        """Keep a metric that is a table: a dict of columns."""
        self.log(name, value, description)

    log_accuracy_table = log_confusion_matrix = log_predictions = log_residuals = log_table

    def log_image(
        self, name: str, path: str | PathLike[str] | None = None, plot: Any = None, **_: Any
    ) -> None:
        """Keep an image: a file, or a figure of Matplotlib."""
        if path is not None:
            self.upload_file(name, path)
        elif self._folder is not None:
            plot.savefig(self._artifact(f"{name}.png"))

    def get_metrics(self, name: str | None = None, **_: Any) -> dict[str, Any]:
        """Return the metrics logged so far; one that was logged several times is a list."""
        found = metrics_in(self._folder)
        return found if name is None else {name: found[name]} if name in found else {}

    def upload_file(self, name: str, path_or_stream: str | PathLike[str] | IO[bytes]) -> None:
        """Copy a file to the artifacts of the run."""
        if self._folder is None:
            return
        if hasattr(path_or_stream, "read"):
            self._artifact(name).write_bytes(path_or_stream.read())
        else:
            shutil.copy2(path_or_stream, self._artifact(name))

    def upload_folder(self, name: str, path: str | PathLike[str], **_: Any) -> None:
        """Copy a folder to the artifacts of the run."""
        if self._folder is not None:
            shutil.copytree(path, self._artifact(name), dirs_exist_ok=True)

    def get_file_names(self) -> list[str]:
        """Return the names of its artifacts."""
        if self._folder is None:
            return []
        root = ScriptFolder(self._folder).artifacts
        return sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file())

    def download_file(
        self, name: str, output_file_path: str | PathLike[str] | None = None, **_: Any
    ) -> None:
        """Copy an artifact to a path, or by its name into the working directory."""
        shutil.copy2(self._artifact(name), output_file_path or Path(name).name)

    def register_model(self, model_name: str, model_path: str | None = None, **more: Any) -> Model:
        """Register an artifact of the run, or a file or folder beside it, as a model."""
        path = model_path or model_name
        artifact = None if self._folder is None else ScriptFolder(self._folder).artifacts / path
        found = path if artifact is None or not artifact.exists() else artifact
        return Model.register(self.experiment.workspace, found, model_name, **more)

    def tag(self, *_: Any, **__: Any) -> None:
        """Accept tags, without effect."""

    set_tags = add_properties = flush = tag

    def complete(self, **_: Any) -> None:
        """Mark the run as completed; its script continues."""
        self._status = COMPLETED

    def fail(self, *_: Any, **__: Any) -> None:
        """Mark the run as failed; its script continues."""
        self._status = FAILED

    def get_status(self) -> str:
        """Return the status of the run."""
        return self._status

    def get_details(self) -> dict[str, Any]:
        """Return its id and status."""
        return {"runId": self.id, "status": self._status}

    def _name(self) -> str:
        """Return the name of the experiment, which the record of a pipeline's run holds."""
        if self._experiment_name is None and self._folder is not None:
            for one in (self._folder, self._folder.parent):
                record = PipelineFolder(one).record
                if record.exists():
                    return str(json.loads(record.read_bytes())["pipeline"])
        return self._experiment_name or self.id

    def _artifact(self, name: str) -> Path:
        """Return the path for an artifact, and make its folder."""
        if self._folder is None or ".." in Path(name).parts:
            msg = f"{name!r} cannot be the name of an artifact of {self!r}."
            raise UsageError(msg)
        path = ScriptFolder(self._folder).artifacts / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _id_of(folder: Path) -> str:
    parent = folder.parent
    return f"{parent.name}-{folder.name}" if is_pipeline_folder(parent) else folder.name


class _OfflineRun(Run):
    """The run of a process without one; scripts compare the name of its class."""


def metrics_in(folder: Path | None) -> dict[str, Any]:
    """Return the metrics that were logged in the folder of a run."""
    found: dict[str, list[Any]] = {}
    file = None if folder is None else ScriptFolder(folder).metrics
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            record = json.loads(line)
            found.setdefault(record["name"], []).append(record["value"])
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _plain(value: Any) -> Any:
    """Return a value that JSON cannot hold, such as a NumPy number, as one that it can."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
