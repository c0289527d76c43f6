"""``process_summary.csv`` and ``node_summary.csv``: totals of each process and each node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import (
    AgentChanged,
    AttemptFailed,
    JobEnded,
    MiniBatchesDone,
    ProgressReported,
)
from daskprs._core.lease import AgentExited, AgentReady
from daskprs._core.spending import plain
from daskprs._report.evidence import NO_PROCESS
from daskprs._report.humanize import MB
from daskprs._report.log_files import LogWriter, table_text
from daskprs._system.atomic_file import write_text

if TYPE_CHECKING:
    from daskprs._core.events import Event, Place
    from daskprs._core.outcomes import Outcome
    from daskprs._core.spending import Amounts
    from daskprs._folders.job_folder import JobFolder

WORK = {
    "succeeded": "Mini-batches Succeeded",
    "failed": "Attempts Failed",
    "items": "Items",
    "items_succeeded": "Items Succeeded",
    "elapsed_s": "Elapsed Seconds",
    "cpu_s": "Process Seconds",
    "run_s": "Run Method Seconds",
}
"""Sums over attempts, and their columns."""
PEAK = "Peak Memory (MB)"
PROCESS_COLUMNS = (
    *("Node Id", "Process", "Host", "Pid"),
    *WORK.values(),
    *("Init Seconds", "Return Code", "Reason", PEAK, "Usage"),
)
NODE_COLUMNS = ("Node Id", "Host", "Processes", "Processes Died", *WORK.values(), PEAK)


@dataclass(slots=True)
class _Process:
    """Totals of one agent process, or of the attempts charged without a process."""

    place: Place
    work: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WORK, 0))
    peak_bytes: int = 0
    init_s: float | None = None
    exited: AgentExited | None = None
    counted: Amounts = ()
    """What the script has counted in it."""

    def add(self, outcomes: ColumnBatch[Outcome], **counts: int) -> None:
        """Add the seconds and the memory of attempts, and other sums."""
        self.peak_bytes = max(self.peak_bytes, *outcomes.column("peak_bytes"))
        for name in ("elapsed_s", "cpu_s", "run_s"):
            self.work[name] += sum(outcomes.column(name))
        for name, count in counts.items():
            self.work[name] += count

    def count(self, counted: Amounts) -> None:
        """Take what the script has counted by a look at it; an older look changes nothing."""
        known = dict(self.counted)
        self.counted = tuple({**known, **{k: max(v, known.get(k, 0)) for k, v in counted}}.items())

    def cells(self) -> tuple[Any, ...]:
        """Return the cells of `PROCESS_COLUMNS`."""
        place, exited = self.place, self.exited
        end = ("", "") if exited is None else (exited.returncode, exited.reason.partition("\n")[0])
        init = "" if self.init_s is None else f"{self.init_s:.6f}"
        name = place.process or NO_PROCESS
        work = _work_cells(self.work)
        usage = json.dumps({name: plain(one) for name, one in self.counted}) if self.counted else ""
        peak = _peak(self.peak_bytes)
        return (place.node, name, place.host, place.pid, *work, init, *end, peak, usage)


class Summaries(LogWriter):
    """Sums the attempts of each process, and writes the sums at the end."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._processes: dict[tuple[int, str], _Process] = {}

    def tell(self, event: Event) -> None:
        """Add an event."""
        match event:
            case MiniBatchesDone(place, _, outcomes):
                self._process(place).add(
                    outcomes,
                    succeeded=len(outcomes),
                    items=sum(outcomes.column("total")),
                    items_succeeded=sum(outcomes.column("succeeded")),
                )
            case AttemptFailed(place=place, again=False):
                # The items of a failed attempt count when they are tried again.
                self._process(place).add(ColumnBatch([event.outcome]), failed=1)
            case AgentChanged(place, AgentReady(elapsed_s=elapsed_s)):
                self._process(place).init_s = elapsed_s
            case AgentChanged(place, AgentExited() as exited):
                self._process(place).exited = exited
                self._process(place).count(exited.counted)
            case ProgressReported(slots=slots):
                for slot in slots:
                    for process, counted in slot.counted:
                        self._process(slot.place._replace(process=process)).count(counted)
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
        self._folder.process_summary.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._folder.process_summary, table_text([PROCESS_COLUMNS, *rows]))
        nodes: dict[int, list[_Process]] = {}
        for process in processes:
            nodes.setdefault(process.place.node, []).append(process)
        rows = [_node_cells(node, of_it) for node, of_it in nodes.items()]
        write_text(self._folder.node_summary, table_text([NODE_COLUMNS, *rows]))


def _node_cells(node: int, processes: list[_Process]) -> tuple[Any, ...]:
    real = [process for process in processes if process.place.process]
    host = next((process.place.host for process in real if process.place.host), "")
    died = sum(process.exited is not None and not process.exited.expected for process in real)
    work = {name: sum(process.work[name] for process in processes) for name in WORK}
    peak = max(process.peak_bytes for process in processes)
    return (node, host, len(real), died, *_work_cells(work), _peak(peak))


def _peak(size: int) -> str:
    """Return a size in MB; empty where it is unknown."""
    return f"{size / MB:.1f}" if size else ""


def _work_cells(work: dict[str, float]) -> list[Any]:
    """Return the cells of the sums: seconds with six places, and counts."""
    return [f"{value:.6f}" if name.endswith("_s") else value for name, value in work.items()]
