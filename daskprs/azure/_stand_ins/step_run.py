"""The run of the step that a script is part of: what the script logs and uploads is kept there."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .entry import masked_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self  # the hints alone need it

METRICS = "logs/user/metrics.jsonl"
"""The file of logged metrics in the folder of a step; `ScriptFolder` of daskprs knows it."""
TAGS, PROPERTIES = "logs/user/tags.jsonl", "logs/user/properties.jsonl"
"""The files of the tags and properties that scripts give their run, in the same folder."""
INPUTS, OUTPUTS = "inputs.json", "outputs.json"
"""The files of the named inputs and outputs of a step, in the same folder."""
ASSETS = "assets.json"
"""The file of the places of assets, in the same folder."""
ARTIFACTS = "artifacts"
"""The folder of what is uploaded, in the same folder."""
CHILDREN = "children"
"""The folder of the runs below."""
RECORD = "pipeline.json"
"""The file that makes a folder that of a pipeline's run."""
LONGEST_ID = 200
"""Characters of a run's name that the names of runs below it have: they are folders."""
RUN_ID = "AZUREML_RUN_ID"
"""The variable with the id of the run; agents without a run have one, too."""
RUNNING, COMPLETED, FAILED = "Running", "Completed", "Failed"
LOGGER = logging.getLogger("daskprs.run")


class StepRun:
    """The part of a run that needs its folder alone; without one, nothing is kept.

    Its `id` is the name of the folder; for a step of a pipeline, ``<run of the pipeline>-<step>``.
    `input_datasets` has its named inputs, and `output_datasets` the folders of its outputs.
    """

    _refused: type[Exception] = ValueError
    """The error for what a script may not do."""

    def __init__(self, folder: Path | None, inputs: dict[str, Any] | None = None) -> None:
        offline = os.environ.get(RUN_ID) or f"OfflineRun_{secrets.token_hex(4)}"
        self.id = offline if folder is None else id_of(folder)
        self.input_datasets = inputs or {}
        outputs = Path(folder or os.devnull, OUTPUTS)
        self.output_datasets = json.loads(outputs.read_text()) if outputs.is_file() else {}
        self._folder = folder
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

    def _run_in(self, folder: Path | None) -> Self:
        """Return the run of another folder."""
        return type(self)(folder)

    @property
    def parent(self) -> Self | None:
        """The run of the pipeline that it is part of; None without a pipeline."""
        if self._folder is None or not (self._folder.parent / RECORD).exists():
            return None
        return self._run_in(self._folder.parent)

    def child_run(self, *_: Any, **__: Any) -> Self:
        """Return a run below this one, with metrics and artifacts of its own."""
        name = f"{self.id[-LONGEST_ID:]}_{secrets.token_hex(4)}"
        child = self._run_in(None if self._folder is None else self._folder / CHILDREN / name)
        child.id = name
        return child

    @property
    def name(self) -> str:
        """The name of its step; of another run, the id."""
        record = Path(self._folder or os.devnull).parent / RECORD
        if self._folder is None or not record.is_file():
            return self.id
        steps = json.loads(record.read_text("utf-8"))["steps"]
        return str(steps.get(self._folder.name, {}).get("name", self._folder.name))

    @cached_property
    def display_name(self) -> str:
        """The same, unless the script gives another one."""
        return self.name

    @property
    def type(self) -> str:
        """Whether it is the run of a step, of a pipeline, or of a script by itself."""
        if self.parent is not None:
            return "azureml.StepRun"
        of_pipeline = self._folder is not None and (self._folder / RECORD).exists()
        return "azureml.PipelineRun" if of_pipeline else "azureml.scriptrun"

    def get_portal_url(self) -> str:
        """Return the URI of the folder; empty without one."""
        return "" if self._folder is None else self._folder.as_uri()

    # ---- metrics ----

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Keep a value of a metric."""
        LOGGER.info("%s: %s", name, value)
        self._keep(METRICS, name, value)

    def _keep(self, name_of_file: str, name: str, value: Any) -> None:
        """Append a value to a file in the folder of the run."""
        if self._folder is not None:
            record = json.dumps({"name": name, "value": value}, default=_plain)
            file = self._folder / name_of_file
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as kept:
                kept.write(f"{masked_here(record)}\n")

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
        self, name: str, path: str | os.PathLike[str] | None = None, plot: Any = None, **_: Any
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

    # ---- artifacts ----

    def upload_file(self, name: str, path_or_stream: str | os.PathLike[str] | IO[bytes]) -> None:
        """Copy a file to the artifacts of the run."""
        if self._folder is None:
            return
        if hasattr(path_or_stream, "read"):
            self._artifact(name).write_bytes(path_or_stream.read())
        else:
            shutil.copy2(path_or_stream, self._artifact(name))

    def upload_folder(self, name: str, path: str | os.PathLike[str], **_: Any) -> None:
        """Copy a folder to the artifacts of the run."""
        if self._folder is not None:
            shutil.copytree(path, self._artifact(name), dirs_exist_ok=True)

    def get_file_names(self) -> list[str]:
        """Return the names of its artifacts."""
        if self._folder is None:
            return []
        root = self._folder / ARTIFACTS
        return sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file())

    def download_file(
        self, name: str, output_file_path: str | os.PathLike[str] | None = None, **_: Any
    ) -> None:
        """Copy an artifact to a path, or by its name into the working directory."""
        artifact = self._artifact(name)
        if not artifact.is_file():
            known = ", ".join(self.get_file_names()) or "none"
            msg = f"{self!r} has no artifact {name!r} (known: {known})."
            raise self._refused(msg)
        shutil.copy2(artifact, output_file_path or Path(name).name)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | os.PathLike[str] | None = None,
        **_: Any,
    ) -> None:
        """Copy the artifacts whose names begin with a prefix into a folder, by their names."""
        for name in self.get_file_names():
            if name.startswith(prefix or ""):
                place = Path(output_directory or ".", name)
                place.parent.mkdir(parents=True, exist_ok=True)
                self.download_file(name, place)

    def _artifact(self, name: str) -> Path:
        """Return the path for an artifact, and make its folder."""
        if self._folder is None or ".." in Path(name).parts:
            msg = f"{name!r} cannot be the name of an artifact of {self!r}."
            raise self._refused(msg)
        path = self._folder / ARTIFACTS / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # ---- tags and status ----

    def tag(self, key: str, value: Any = None) -> None:
        """Keep a tag; the last value of a name counts."""
        self._keep(TAGS, key, value)

    def set_tags(self, tags: dict[str, Any]) -> None:
        """Keep several tags."""
        for key, value in tags.items():
            self._keep(TAGS, key, value)

    def add_properties(self, properties: dict[str, Any]) -> None:
        """Keep properties."""
        for key, value in properties.items():
            self._keep(PROPERTIES, key, value)

    def get_tags(self) -> dict[str, Any]:
        """Return the tags."""
        return dict(_kept_in(self._folder, TAGS))

    def get_properties(self) -> dict[str, Any]:
        """Return the properties."""
        return dict(_kept_in(self._folder, PROPERTIES))

    tags, properties = property(get_tags), property(get_properties)

    def flush(self, *_: Any, **__: Any) -> None:
        """Return at once: everything is written as it is logged."""

    def complete(self, **_: Any) -> None:
        """Mark the run as completed; its script continues."""
        self._status = COMPLETED

    def fail(self, *_: Any, **__: Any) -> None:
        """Mark the run as failed; its script continues."""
        self._status = FAILED

    def get_status(self) -> str:
        """Return the status of the run."""
        return self._status

    status = property(get_status)

    def get_details(self) -> dict[str, Any]:
        """Return its id and status."""
        return {"runId": self.id, "status": self._status}


def id_of(folder: Path) -> str:
    """Return the id of the run of a step in its folder."""
    parent = folder.parent
    return f"{parent.name}-{folder.name}" if (parent / RECORD).exists() else folder.name


def metrics_in(folder: Path | None) -> dict[str, Any]:
    """Return the metrics that were logged in the folder of a run."""
    found: dict[str, list[Any]] = {}
    for name, value in _kept_in(folder, METRICS):
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _kept_in(folder: Path | None, name_of_file: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that were appended to a file in the folder of a run."""
    file = Path(folder or os.devnull, name_of_file)
    if file.is_file():
        for line in file.read_text().splitlines():
            record = json.loads(line)
            yield record["name"], record["value"]


def _plain(value: Any) -> Any:
    """Return a value that JSON cannot hold, such as a NumPy number, as one that it can."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
