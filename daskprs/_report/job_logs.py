"""The logs about a job as a whole: contents, result, driver, and counts over time."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from daskprs._core.events import (
    AdviceGiven,
    JobEnded,
    JobStarted,
    MessageLogged,
    OutputPublished,
    ProgressReported,
    SlotsChanged,
)
from daskprs._report.evidence import lines_about
from daskprs._report.humanize import Stamps, counted, duration, rough_range, used
from daskprs._report.log_files import LogWriter
from daskprs._report.progress_text import now_text
from daskprs._system.atomic_file import write_text
from daskprs._system.standard_streams import without_escapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._core.ending import Ending, Errors
    from daskprs._core.events import Counts, Event, Progress
    from daskprs._core.outcomes import Failure
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_view import JobWatch, View
    from daskprs._report.log_files import LogFiles

NAMES_ONLY = "environment_variables"
"""Option whose names are logged without values: logs are passed on, and values may be tokens."""
EVERY_S = 10.0
COLUMNS = (
    "Datetime",
    "Total Tasks",
    "Scheduled Tasks",
    "Completed Tasks",
    "Failed Tasks",
    "Elapsed Time",
    "Estimated Remaining Time",
)
README = """\
What is where in this job folder. Nodes are numbered 0, 1, …; on each of them its agent processes
are process000, process001, …: a process that ended is followed by one with a new number.

logs/job_result.txt                     how the job ended; on failure the cause and where to look
logs/job_error.txt                      the script's errors, each kind once, with counts
logs/job_progress_overview.<day>.txt    counts over time
logs/user/stdout/<node>/<process>.stdout.txt
logs/user/stderr/<node>/<process>.stderr.txt
                                        what the script, and whatever it started, printed
logs/user/entry_script_log/<node>/<process>.log.txt
                                        what it wrote by EntryScript().logger
logs/user/error/<node>/<process>.txt    full tracebacks
logs/sys/master_role.txt                what the driver did, and why each retry went where it did:
                                        time|level|pid|thread|message
logs/sys/node/<node>/_main.txt          starts and ends of agent processes
logs/sys/node/<node>/<process>.txt      one line for each attempt at a mini-batch
logs/sys/job_report/processed_mini-batches.csv
                                        the same as a table, of all runs of this job
logs/sys/job_report/process_summary.csv, node_summary.csv
                                        sums for each process and each node of the last run
logs/sys/node/<node>/<process>.profile  with profiling_module: the profile of run(), for pstats
logs/perf/<node>/node_resource_usage.csv, processes_resource_usage.csv
                                        processor, memory, disk, network and GPUs over time
logs/perf/<node>/node_disk_usage.csv, node_gpu_usage.csv
                                        how full the disks are, and each GPU
logs/perf/<node>/os/<hour>/processes_<minute>
                                        the processes of the job, and the largest others
logs/perf/<node>/<process>.last_minutes.csv
                                        of a process that died: each second of its last minutes
logs/sys/metrics/progress.csv           counts over time, for programs
logs/sys/error/                         errors of daskprs itself
journal.*, spool.*, typed.*             what is committed: a resume needs it
output/                                 the output, unless the job was given an output_dir
scratch/, snapshot/, work/              what was made for the agents: gone once the job is Completed
                                        and nothing has failed, unless it retains all
"""


class JobLogs(LogWriter):
    """Writes ``readme.txt`` and ``job_result.txt``."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder

    def tell(self, event: Event) -> None:
        """Write the file of the start or of the end."""
        match event:
            case JobStarted():
                self._folder.readme.write_text(README, encoding="utf-8")
                for path in (self._folder.job_result, self._folder.report):
                    path.unlink(missing_ok=True)  # of the run that this one resumes
            case JobEnded():
                write_text(self._folder.job_result, f"{end_message(event, self._folder)}\n")


class DriverLog(LogWriter):
    """Writes time, level, process id, thread and message of each event in the driver."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._file = files.file(folder.master_log)
        self._stamps = Stamps()

    def tell(self, event: Event) -> None:
        """Write an event of the driver."""
        for level, message in driver_messages(event):
            thread = threading.current_thread().name
            now = self._stamps.at(time.time())
            self._file.write(f"{now}|{level.upper()}|{os.getpid()}|{thread}|{message}\n")


def driver_messages(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the levels, as of `MessageLogged`, and the messages of an event about the driver."""
    match event:
        case JobStarted():
            verb = "resumes" if event.resumed else "starts"
            yield "info", f"job {event.job_id} {verb}: {event.script}"
            for name, value in event.options.items():
                shown = list(value) if name == NAMES_ONLY and isinstance(value, dict) else value
                yield "info", f"option {name}={shown!r}"
        case SlotsChanged(nodes, slots):
            yield "info", f"{counted(nodes, 'node')}, {counted(slots, 'slot')}"
        case MessageLogged(level, message):
            yield level, message
        case AdviceGiven(text):
            yield "notice", text
        case OutputPublished(path, size_bytes):
            yield "info", f"published {path}, {size_bytes} bytes"
        case JobEnded(ending=ending):
            level = "info" if not ending.reason else "error"
            yield level, f"job {ending.status}: {ending.reason}".rstrip(": ")


NAMED = ("daskprs", "dask", "distributed", "numpy", "pandas", "pyarrow", "polars", "torch")
"""Packages whose versions are logged where the driver has imported them."""


def versions_text() -> str:
    """Return Python and the packages of the driver with their versions."""
    known = {name: getattr(sys.modules.get(name), "__version__", None) for name in NAMED}
    each = [f"{name} {version}" for name, version in known.items() if version is not None]
    return ", ".join([f"Python {platform.python_version()}", *each])


class Overview(LogWriter):
    """Writes the counts at the start, every ten seconds, and at the end.

    Scheduled mini-batches are those given to agents so far; completed and failed ones are settled.
    Times are in seconds.
    """

    def __init__(
        self,
        folder: JobFolder,
        files: LogFiles,
        watch: JobWatch,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._files = files
        self._watch = watch
        self._wall_clock = wall_clock
        self._table = files.file(folder.progress_table, ",".join(COLUMNS) + "\n")
        self._stamps = Stamps()
        self._table_stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._due_s = 0.0

    def tell(self, event: Event) -> None:
        """Write the counts when they are due."""
        match event:
            case ProgressReported(elapsed_s=elapsed_s) if elapsed_s >= self._due_s:
                self._due_s = elapsed_s + EVERY_S
                self._write(self._watch.view())
            case AdviceGiven(text):
                self._write_line(text)
            case JobEnded():
                self._write(self._watch.view())

    def _write(self, view: View | None) -> None:
        if view is None:
            return
        standing, left = view.standing, view.left
        total = standing.planned
        done, failed = standing.mini_batches.succeeded, standing.mini_batches.failed
        scheduled = standing.settled + standing.running
        left_s = "" if left is None else f"{left.middle_s:.1f}"
        parts = [
            f"{scheduled} scheduled",
            f"{done + failed} of {'an unknown number' if total is None else total} processed",
            f"{failed} failed",
            f"{duration(view.elapsed_s)} elapsed",
            "remaining time unknown" if left is None else f"{rough_range(*left)} remaining",
            now_text(view),
        ]
        wall_s = self._write_line(", ".join(part for part in parts if part))
        self._table.write(
            f"{self._table_stamps.at(wall_s)},{'' if total is None else total},{scheduled},{done},"
            f"{failed},{view.elapsed_s:.1f},{left_s}\n"
        )

    def _write_line(self, text: str) -> float:
        """Write a line of the overview, and return its time."""
        wall_s = self._wall_clock()
        day = f"{datetime.fromtimestamp(wall_s, UTC):%Y%m%d}"
        overview = self._files.file(self._folder.progress_overview(day))
        overview.write(f"{self._stamps.at(wall_s)}|{text}\n")
        return wall_s


def end_message(ended: JobEnded, folder: JobFolder) -> str:
    """Return the text of ``job_result.txt`` and of the errors that carry a result."""
    ending, standing = ended.ending, ended.standing
    lines: list[str] = []
    errors = ending.errors
    if ending.failure is not None:
        lines += lines_about(ending.failure)
    if errors is not None and errors.final.counts.total() > 1:
        lines.append(f"Errors of the mini-batches that failed: {errors.final}.")
    if ending.reason:
        lines.append(f"The job is {ending.status}: {ending.reason.rstrip('.')}.")
    else:
        lines.append(f"The job is {ending.status}.")
    lines.append(
        f"Mini-batches: {_mini_batches(standing)}. Items: {_items(standing)}. "
        f"Time: {duration(ended.elapsed_s)}.{_fewer(standing)}"
    )
    if standing.spent:
        lines.append(f"Used: {used(standing.spent)}. Useful: {used(standing.useful) or 'nothing'}.")
    if errors is not None:
        lines += _others(errors, ending.failure)
    if ended.output:
        of_before = "" if ending.status is JobStatus.COMPLETED else " of an earlier run, unchanged"
        lines.append(f"Output{of_before}: {ended.output}")
    lines += _bad_places(standing)
    some_failed = standing.mini_batches.failed or standing.items.failed > standing.not_returned
    if ending.status is JobStatus.FAILED or ending.failure is not None or some_failed:
        lines.append(f"What failed, why, and how to run it again: {ended.why_by}")
    if ending.status is not JobStatus.COMPLETED:
        lines += _next_steps(ended, folder)
    return without_escapes("\n".join(lines))  # names of files may have any characters


def _bad_places(standing: Progress) -> Iterator[str]:
    """Yield lines on places in which mini-batches failed that may not be to blame."""
    if standing.renewals:
        yield f"Processes renewed, since a mini-batch may have broken them: {standing.renewals:,}."
    if standing.throttled:
        yield (
            f"Attempts that an endpoint has refused, since there were too many requests: "
            f"{standing.throttled:,}. They were not charged."
        )
    if standing.left_out:
        bad = ", ".join(standing.left_out)
        yield f"Everything failed there that worked elsewhere: {bad}."


def _next_steps(ended: JobEnded, folder: JobFolder) -> Iterator[str]:
    """Yield lines on how to go on with a job that is not Completed."""
    if ended.standing.not_returned and "error_threshold=" in ended.ending.reason:
        yield (
            f"Mini-batches that returned fewer items have a number above 0 under Failed in "
            f"{folder.attempts}. A resume keeps what they returned: raise error_threshold to "
            "accept it, or run a mended script in a new job folder."
        )
    nothing = "" if ended.ending.has_rest else "Nothing was published. "
    yield f"{nothing}{_to_go_on(ended.ending)}: {ended.go_on_by}"
    if ended.go_on_mended_by:
        yield f"To go on with a mended {ended.ending.to_mend}: {ended.go_on_mended_by}"


def _fewer(standing: Progress) -> str:
    """Return a sentence about items that count as failed, though nothing failed."""
    if not standing.not_returned:
        return ""
    count = standing.not_returned
    noun, counts = ("item", "counts") if count == 1 else ("items", "count")
    return f" run() returned {count:,} fewer {noun} than it was given, which {counts} as failed."


OTHERS = {
    "usage_limits": ", and a higher limit",
    "deadline": ", and a later deadline or none",
}
"""What a resume needs of the options in `Ending.again`."""


def _to_go_on(ending: Ending) -> str:
    if not ending.of_changed_input:
        others = "".join(OTHERS[name] for name, _ in ending.again)
        return f"To go on, with the same script and input{others}"
    return (
        "To go on with the input of now, where every mini-batch of a file that has changed runs "
        "again and the others are kept"
    )


def _others(errors: Errors, headline: Failure | None) -> list[str]:
    """Return a line for each kind of error that did not fail a mini-batch."""
    titles = {
        "Waiting for another attempt": errors.pending,
        "Mended by a retry": errors.mended,
        "Processes that did not come up": errors.starts,
    }
    return [
        f"{title}: {kinds}; first: {str(kinds.first).splitlines()[0]}"
        for title, kinds in titles.items()
        if kinds.first is not None and kinds.first != headline
    ]


def _mini_batches(standing: Progress) -> str:
    """Return the counts of mini-batches, beside those of the plan as far as it is known."""
    counts = standing.of_plan
    by_then = " planned by then" if standing.planned is None else ""
    return f"{counts.succeeded:,} of {counts.total:,}{by_then} succeeded{_failed(counts)}"


def _items(standing: Progress) -> str:
    """Return the counts of items; those of mini-batches that did not come to an end are unknown."""
    counts = standing.items
    of_all = f" of {counts.total:,}" if standing.settled == standing.planned else ""
    return f"{counts.succeeded:,}{of_all} succeeded{_failed(counts)}"


def _failed(counts: Counts) -> str:
    return f", {counts.failed:,} failed" if counts.failed else ""
