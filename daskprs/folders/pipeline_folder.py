"""The folder of a pipeline's run: every path in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

RESULTS = "daskprs-results"
"""The folder of results that later runs may reuse."""
RECORD = "pipeline.json"
"""Like all names of ours it has a dot, which no step's name has."""


class PipelineFolder:
    """Knows every path of a run of a pipeline; the folder of a parallel step is a job folder.

    Parameters
    ----------
    path
        The folder itself. It need not exist.

    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def is_named_in(self, path: Path) -> bool:
        """Return whether a path contains the run's name, so that no other run uses it."""
        run = self.path.name
        return any(part == run or part.startswith(f"{run}.") for part in path.parts)

    @property
    def record(self) -> Path:
        """The record of each step's status."""
        return self.path / RECORD

    @property
    def lock(self) -> Path:
        """Held while the pipeline runs."""
        return self.path / "pipeline.lock"

    @property
    def outputs(self) -> Path:
        """The folder of pipeline outputs without a path of their own."""
        return self.path / "pipeline.outputs"

    @property
    def bin(self) -> Path:
        """Where ``python`` is this Python, if it has another name."""
        return self.path / "pipeline.bin"

    @property
    def stand_ins(self) -> Path:
        """Modules that commands import and that are not installed."""
        return self.path / "pipeline.stand-ins"

    @property
    def results(self) -> Path:
        """Where results of earlier runs are looked for: beside the folders of the runs."""
        return self.path.parent / RESULTS

    def logs(self, step: str) -> Path:
        """Return the copy of a step's logs, where the step is set to make one."""
        return self.path / "pipeline.logs" / step

    @property
    def metrics(self) -> Path:
        """The counts of the steps that are set to write them."""
        return self.path / "pipeline.logs" / "metrics.csv"

    def datastore(self, name: str) -> Path:
        """Return where outputs in a datastore without a root go."""
        return self.path / "pipeline.datastores" / name

    def step(self, name: str) -> Path:
        """Return the folder of a step: that of its job, if it is a parallel one."""
        return self.path / name

    def task(self, name: str) -> Path:
        """Return the file that describes the task for a step's process."""
        return self.step(name) / "task.json"

    def named_output(self, step: str, name: str) -> Path:
        """Return the path of a step's output that has no path of its own."""
        return self.step(step) / "named-outputs" / name

    def code(self, step: str) -> Path:
        """Return the folder of copies of the code of a command."""
        return self.step(step) / "code"

    def log(self, step: str) -> Path:
        """Return what a step writes to its terminal, where a studio shows it."""
        return self.step(step) / "user_logs" / "std_log.txt"


class ScriptFolder:
    """Knows where a script's own words about its run are: in the folder of a step, or of a run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def metrics(self) -> Path:
        """The file of logged metrics, a line of JSON for each value."""
        return self._path / "logs" / "user" / "metrics.jsonl"

    @property
    def inputs(self) -> Path:
        """What the named inputs are."""
        return self._path / "inputs.json"

    @property
    def artifacts(self) -> Path:
        """Files that were uploaded."""
        return self._path / "artifacts"

    def child(self, name: str) -> Path:
        """Return the folder of a run below."""
        return self._path / "children" / name


def is_pipeline_folder(path: Path) -> bool:
    """Say whether a pipeline has run in a folder."""
    return (path / RECORD).exists()
