"""The log folder's texts: readme, result, driver, nodes, processes, counts over time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs.core.events import (
    AgentChanged,
    AttemptEnded,
    JobEnded,
    JobStarted,
    OutputPublished,
    Remarked,
    SlotsChanged,
    Stood,
)
from daskprs.core.lease import AgentExited, AgentReady, AgentStarted, InitFailed
from daskprs.job_folder import whole_file
from daskprs.report.end_message import end_message
from daskprs.report.remaining import remaining_s
from daskprs.report.words import counted, duration

if TYPE_CHECKING:
    from daskprs.core.events import Event, Place
    from daskprs.core.lease import AgentEvent
    from daskprs.job_folder import JobFolder
    from daskprs.report.lines import LogFiles

COUNTS_EVERY_S = 10.0
README = """\
What is where in this job folder.

logs/job_result.txt                   how the job ended; on failure the cause and where to look
logs/job_error.txt                    the script's errors, each kind once, with counts
logs/job_progress_overview.*.txt      counts over time, one file a day
logs/user/stdout, stderr              what the script, and whatever it started, printed
logs/user/entry_script_log            what it wrote by EntryScript().logger
logs/user/error                       full tracebacks
logs/sys/master_role.txt              what the driver did
logs/sys/node/<node>/_main.txt        starts and ends of agent processes
logs/sys/node/<node>/<process>.txt    one line for each attempt
logs/sys/job_report                   the same as tables (CSV)
logs/sys/metrics/progress.csv         counts over time, for programs
logs/sys/error                        errors of daskprs itself
journal.*, spool.*, typed.*           what is committed: a resume needs it
output/                               the output, unless the job was given an output_dir
"""


class JobLogs:
    """Writes everything that is text for people."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._files = files
        self._counted_s = 0.0
        self._pids: dict[Place, None] = {}

    def tell(self, event: Event) -> None:
        """Write an event where it belongs."""
        match event:
            case AttemptEnded():
                self._attempt(event)
            case Stood():
                self._stood(event)
            case AgentChanged(place, change):
                self._files.write(self._folder.node_log(place.node), _line(_told(change)))
            case JobStarted():
                self._files.write(self._folder.readme, README)
                self._driver("info", f"job {event.job_id} starts: {event.script}, {event.options}")
            case SlotsChanged(nodes, slots):
                self._driver("info", f"{counted(nodes, 'node')}, {counted(slots, 'slot')}")
            case Remarked(level, message):
                self._driver(level, message)
            case OutputPublished(path, size):
                self._driver("info", f"published {path}, {size} bytes")
            case JobEnded():
                self._driver(
                    "info", f"job {event.ending.status}: {event.ending.reason}".rstrip(": ")
                )
                self._files.flush()
                with whole_file(self._folder.job_result) as file:
                    file.write(f"{end_message(event, self._folder)}\n".encode())

    def close(self) -> None:
        """Write what is left."""
        self._files.flush()

    def _attempt(self, event: AttemptEnded) -> None:
        place, outcome = event.place, event.outcome
        log = self._folder.process_log(place.node, place.process or "no_process")
        self._files.write(
            log,
            f"{datetime.fromtimestamp(outcome.started, UTC):%Y-%m-%d %H:%M:%S.%f}|"
            f"{place.host}|{place.pid}|mini-batch {outcome.index}|attempt {outcome.attempt}|"
            f"{outcome.status.value}|total {outcome.total}|succeeded {outcome.succeeded}|"
            f"failed {outcome.failed}|elapsed {outcome.elapsed_s:.6f}|cpu {outcome.cpu_s:.6f}|"
            f"run {outcome.run_s:.6f}\n",
        )

    def _stood(self, event: Stood) -> None:
        self._files.flush_if_due()
        now = time.monotonic()
        if now - self._counted_s < COUNTS_EVERY_S:
            return
        self._counted_s = now
        standing, wall = event.standing, datetime.now(UTC)
        total = standing.expected or standing.mini_batches.total
        done, failed = standing.mini_batches.succeeded, standing.mini_batches.failed
        left = remaining_s(standing, event.elapsed_s)
        text = "unknown" if left is None else duration(left)
        self._files.write(
            self._folder.progress_overview(f"{wall:%Y%m%d}"),
            _line(
                f"{standing.running} scheduled, {done + failed} of {total} processed, {failed} "
                f"failed, {standing.waiting} to be tried again, {text} left"
            ),
        )
        table = self._folder.progress_table
        if not table.exists():
            self._files.write(table, PROGRESS_HEADER)
        self._files.write(
            table,
            f"{wall.isoformat(timespec='seconds')},{total},{standing.running},{done},{failed},"
            f"{event.elapsed_s:.1f},{'' if left is None else f'{left:.1f}'}\n",
        )

    def _driver(self, level: str, message: str) -> None:
        self._files.write(self._folder.master_log, _line(f"{level.upper()}|{message}"))


PROGRESS_HEADER = (
    "Datetime,Total Tasks,Scheduled Tasks,Completed Tasks,Failed Tasks,Elapsed Time,"
    "Estimated Remaining Time\n"
)


def _line(text: str) -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}|{text}\n"


def _told(change: AgentEvent) -> str:
    match change:
        case AgentStarted(process, pid):
            return f"{process} started, pid {pid}"
        case AgentReady(process, elapsed_s):
            return f"{process} ready after {elapsed_s:.3f} s"
        case InitFailed(process, failure, elapsed_s):
            return (
                f"{process} failed in import or init() after {elapsed_s:.3f} s: "
                f"{failure.kind}: {failure.message}"
            )
        case AgentExited(process, returncode, reason, _, warning):
            told = f"{process} exits with returncode {returncode}: {reason}"
            return told if warning is None else f"{told}; {warning.kind}: {warning.message}"
