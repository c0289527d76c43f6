"""``process_summary.csv`` and ``node_summary.csv``: totals of each process and each node."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from daskprs.core.columnar import ColumnBatch
from daskprs.core.events import AgentChanged, AttemptFailed, JobEnded, MiniBatchesDone
from daskprs.core.lease import AgentExited, AgentReady
from daskprs.report.evidence import NO_PROCESS
from daskprs.report.log_files import LogWriter
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.core.events import Event, Place
    from daskprs.core.outcomes import Outcome
    from daskprs.folders.job_folder import JobFolder

WORK_COLUMNS = (
    "Mini-batches Succeeded",
    "Attempts Failed",
    "Items",
    "Items Succeeded",
    "Elapsed Seconds",
    "Process Seconds",
    "Run Method Seconds",
)
PROCESS_COLUMNS = (
    "Node Id",
    "Process",
    "Host",
    "Pid",
    *WORK_COLUMNS,
    "Init Seconds",
    "Return Code",
    "Reason",
)
NODE_COLUMNS = ("Node Id", "Host", "Processes", "Processes Died", *WORK_COLUMNS)


@dataclass(slots=True)
class _Work:
    """Sums over attempts."""

    succeeded: int = 0
    failed: int = 0
    items: int = 0
    items_succeeded: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    run_s: float = 0.0

    def add_done(self, outcomes: ColumnBatch[Outcome]) -> None:
        """Add successful attempts."""
        self.succeeded += len(outcomes)
        self.items += sum(outcomes.column("total"))
        self.items_succeeded += sum(outcomes.column("succeeded"))
        self._add_times(outcomes)

    def add_failed(self, outcome: Outcome) -> None:
        """Add a failed attempt; its items count when it is tried again."""
        self.failed += 1
        self._add_times(ColumnBatch([outcome]))

    def _add_times(self, outcomes: ColumnBatch[Outcome]) -> None:
        self.elapsed_s += sum(outcomes.column("elapsed_s"))
        self.cpu_s += sum(outcomes.column("cpu_s"))
        self.run_s += sum(outcomes.column("run_s"))

    def cells(self) -> tuple[Any, ...]:
        """Return the cells of `WORK_COLUMNS`."""
        seconds = (f"{s:.6f}" for s in (self.elapsed_s, self.cpu_s, self.run_s))
        return (self.succeeded, self.failed, self.items, self.items_succeeded, *seconds)


@dataclass(slots=True)
class _Process:
    """Totals of one agent process, or of the attempts charged without a process."""

    place: Place
    work: _Work = field(default_factory=_Work)
    init_s: float | None = None
    exited: AgentExited | None = None

    def cells(self) -> tuple[Any, ...]:
        """Return the cells of `PROCESS_COLUMNS`."""
        place, exited = self.place, self.exited
        end = ("", "") if exited is None else (exited.returncode, exited.reason.partition("\n")[0])
        init = "" if self.init_s is None else f"{self.init_s:.6f}"
        name = place.process or NO_PROCESS
        return (place.node, name, place.host, place.pid, *self.work.cells(), init, *end)


class Summaries(LogWriter):
    """Sums the attempts of each process, and writes the sums at the end."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._processes: dict[tuple[int, str], _Process] = {}

    def tell(self, event: Event) -> None:
        """Add an event."""
        match event:
            case MiniBatchesDone(place, _, outcomes):
                self._process(place).work.add_done(outcomes)
            case AttemptFailed(place=place):
                self._process(place).work.add_failed(event.outcome)
            case AgentChanged(place, AgentReady(elapsed_s=elapsed_s)):
                self._process(place).init_s = elapsed_s
            case AgentChanged(place, AgentExited() as exited):
                self._process(place).exited = exited
            case AgentChanged(place, _):
                self._process(place)
            case JobEnded():
                self._write()

    def _process(self, place: Place) -> _Process:
        key = place[:2]
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(place)
        elif not process.place.pid:
            process.place = place
        return process

    def _write(self) -> None:
        processes = [self._processes[key] for key in sorted(self._processes)]
        rows = [process.cells() for process in processes]
        _write_table(self._folder.process_summary, PROCESS_COLUMNS, rows)
        nodes: dict[int, list[_Process]] = {}
        for process in processes:
            nodes.setdefault(process.place.node, []).append(process)
        rows = [_node_cells(node, of_it) for node, of_it in nodes.items()]
        _write_table(self._folder.node_summary, NODE_COLUMNS, rows)


def _node_cells(node: int, processes: list[_Process]) -> tuple[Any, ...]:
    real = [process for process in processes if process.place.process]
    host = next((process.place.host for process in real if process.place.host), "")
    died = sum(process.exited is not None and not process.exited.expected for process in real)
    sums = zip(*(astuple(process.work) for process in processes), strict=True)
    work = _Work(*map(sum, sums))
    return (node, host, len(real), died, *work.cells())


def _write_table(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.getvalue().encode(errors="backslashreplace"))
