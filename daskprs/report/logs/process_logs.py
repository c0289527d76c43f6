"""The logs of nodes and their agent processes: starts, exits, and a line for each attempt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, assert_never

from daskprs.core.columnar import ColumnBatch
from daskprs.core.events import AgentChanged, AttemptFailed, MiniBatchesDone
from daskprs.core.lease import AgentExited, AgentReady, AgentStarted, InitFailed
from daskprs.core.outcomes import signal_of
from daskprs.report.evidence import NO_PROCESS
from daskprs.report.humanize import Stamps
from daskprs.report.logs.attempt_cells import AttemptCells

if TYPE_CHECKING:
    from daskprs.core.events import Event, Place
    from daskprs.core.lease import AgentEvent
    from daskprs.core.outcomes import Outcome
    from daskprs.folders.job_folder import JobFolder
    from daskprs.report.logs.log_files import LogFile, LogFiles


class ProcessLogs:
    """Writes ``sys/node/<node>/_main.txt`` and ``<process>.txt``."""

    def __init__(
        self, folder: JobFolder, files: LogFiles, cells: AttemptCells | None = None
    ) -> None:
        self._folder = folder
        self._cells = cells or AttemptCells()
        self._files = files
        self._logs: dict[Place, LogFile] = {}
        self._began = Stamps()
        self._now = Stamps()

    def tell(self, event: Event) -> None:
        """Write an event to the log of its node or process."""
        match event:
            case MiniBatchesDone(place, _, outcomes):
                self._write(place, outcomes)
            case AttemptFailed(place, _, outcome):
                self._write(place, ColumnBatch([outcome]))
            case AgentChanged(place, change):
                log = self._files.file(self._folder.node_log(place.node))
                log.write(f"{self._now.at(time.time())}|{told(change)}\n")
                if isinstance(change, AgentExited):
                    self._logs.pop(place, None)

    def close(self) -> None:
        """Do nothing: `LogFiles` flushes the files."""

    def _write(self, place: Place, outcomes: ColumnBatch[Outcome]) -> None:
        log = self._logs.get(place)
        if log is None:
            path = self._folder.process_log(place.node, place.process or NO_PROCESS)
            log = self._logs[place] = self._files.file(path)
        where, began = f"{place.host}|{place.pid}", self._began.at
        lines = [
            f"{began(started)}|{where}|mini-batch {index}|attempt {attempt}|{status}|"
            f"total {total}|succeeded {succeeded}|failed {failed}|"
            f"elapsed {elapsed_s}|cpu {cpu_s}|run {run_s}\n"
            for (
                index,
                attempt,
                started,
                total,
                succeeded,
                failed,
                elapsed_s,
                cpu_s,
                run_s,
                status,
            ) in self._cells.of(outcomes)
        ]
        log.write("".join(lines))


def told(change: AgentEvent) -> str:
    """Return a sentence about a change of an agent process."""
    match change:
        case AgentStarted(process, pid):
            return f"{process} started, pid {pid}"
        case AgentReady(process, elapsed_s):
            return f"{process} ready after {elapsed_s:.3f} s"
        case InitFailed(process, failure, elapsed_s):
            return f"{process} failed in import or init() after {elapsed_s:.3f} s: {failure}"
        case AgentExited(process, returncode, reason, _, warning):
            exits = f"{process} exits with returncode {returncode}"
            # A death begins with these words already; a timeout and an orderly end do not.
            text = (
                reason if reason.startswith(exits) else f"{exits}{signal_of(returncode)}: {reason}"
            )
            return text if warning is None else f"{text}; {warning}"
        case _:
            assert_never(change)
