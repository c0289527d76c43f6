"""The state of a job according to its folder: running, ended, or died and waiting for a resume."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._core.ending import JobStatus
from daskprs._core.events import Counts
from daskprs._folders.job_lock import has_begun, holder, latest_epoch
from daskprs._job.result import PATHS, RUNNING, ParallelRunResult
from daskprs._options.run_options import TABLE
from daskprs._output.journal.history import History
from daskprs._report.progress_file import JobOfOthers, preparation_of
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError, JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_view import View

DIED = "Died"
TAIL_BYTES = 4_000
"""Bytes at the end of the table of progress: more than a row has, and fewer than the digits that
`int` refuses."""


class JobState(NamedTuple):
    """The state of a job, whether or not its driver is alive."""

    status: str
    """``Running``, ``Completed``, ``Failed``, ``Canceled``, ``Interrupted``; ``Died`` for an
    unfinished job whose driver recorded no end."""
    holder: str | None
    """The driver that is at work."""
    runs: int
    """Number of drivers that have worked in the folder."""
    mini_batches: Counts
    """Mini-batches settled so far: `total` is their number, not that of the plan, `planned`."""
    items: Counts
    output: Path | None
    """The file that was published last, if it exists."""
    result: ParallelRunResult | None
    """The result that the last driver recorded; None while a driver is at work, or if it died."""

    now: View | None = None
    """The present view of the driver at work; None without one, or before its first mini-batch."""
    not_returned: int = 0
    """Failed items of mini-batches that succeeded: `run` returned fewer than it was given."""
    error: tuple[str, str] = ("", "")
    """Class and message of the error by which the last driver ended the job; empty without one."""
    unit: str = "row"
    """What an item is: a row, or a file."""
    reason: str = ""
    """Why the last driver ended the job, if it is not Completed."""
    again: Mapping[str, Any] = MappingProxyType({})
    """The options that a resume needs, as `Ending.again`."""
    planned: int | None = None
    """Number of mini-batches of the plan; None while it is unknown."""

    @property
    def may_go_on(self) -> bool:
        """Whether a resume would have something to do."""
        return self.holder is None and self.status != JobStatus.COMPLETED

    @property
    def counts_of_plan(self) -> dict[str, int | None]:
        """The counts of mini-batches by name: `total` is that of the plan, or None."""
        return {**self.mini_batches._asdict(), "total": self.planned}

    def record(self, folder: JobFolder) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "status": self.status,
            "reason": self.reason,
            "holder": self.holder,
            "runs": self.runs,
            "mini_batches": self.counts_of_plan,
            "items": {**self.items._asdict(), "not_returned": self.not_returned},
            "output": None if self.output is None else str(self.output),
            "failed_file": str(folder.failed) if folder.failed.exists() else None,
            "logs": str(folder.logs),
            "job": str(folder),
            "result": None if self.result is None else self.result.record(),
            "progress": None if self.now is None else self.now.record(),
        }


def state_of(folder: JobFolder) -> JobState:
    """Return the state of a job; reject a folder in which no job has begun."""
    refuse_no_job(folder)
    who = holder(folder)  # first, so that its last records are read
    now = None if who is None else JobOfOthers(folder).view()
    history = History(folder)
    result = None
    if who is None and history.ended is not None:
        result = _result(folder, history.ended)
    mini_batches, items, not_returned = counts_of(history)
    published = [one.target for one in history.publications if one.target.exists()]
    status = _status(who, history, result)
    return JobState(
        status,
        who,
        latest_epoch(folder),
        mini_batches,
        items,
        published[-1] if published else None,
        result,
        now,
        not_returned,
        _error(history),
        _unit(history) if result is None else result.unit,
        *_why(history if who is None else None),
        mini_batches.total if status == JobStatus.COMPLETED else _planned(folder, now),
    )


def _planned(folder: JobFolder, now: View | None) -> int | None:
    """Return the number of mini-batches of the plan by what a driver has written of it last."""
    if now is not None and now.standing.planned is not None:
        return now.standing.planned
    try:
        with open_regular(folder.progress_table) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            whole, _, _ = file.read().rpartition(b"\n")  # the rest is half of a row
    except FileNotFoundError:
        return None
    row = whole.rpartition(b"\n")[2].split(b",")
    return int(row[1]) if len(row) > 1 and row[1].isdigit() else None


def _unit(history: History) -> str:
    recorded = history.fingerprint_of(None).get("input")
    is_files = isinstance(recorded, dict) and recorded.get("kind") == "files"
    return "file" if is_files else "row"


def _error(history: History) -> tuple[str, str]:
    kind, message = (history.ended or {}).get("error", ("", ""))
    return str(kind), str(message)


def _why(history: History | None) -> tuple[str, dict[str, Any]]:
    """Return why a job that nobody is at work on has ended, and the options that it needs.

    They become words of a command, and a folder may be from anybody: nothing but options is taken.
    """
    ended = (history and history.ended) or {}
    again = ended.get("again")
    named = again.items() if isinstance(again, dict) else ()
    return str(ended.get("reason", "")), {name: one for name, one in named if name in TABLE}


def refuse_no_job(folder: JobFolder) -> None:
    """Refuse a folder in which no job has begun, and say what the job waits for."""
    if not has_begun(folder):
        msg = f"no job has begun in {folder}{_waits(folder)}."
        raise JobFolderError(msg)


def _waits(folder: JobFolder) -> str:
    """Return why a job has not begun, where that is known."""
    driver = holder(folder)
    if driver is not None:
        said = preparation_of(folder)
        return f": its input is being prepared by {driver}{said and f' ({said})'}"
    if folder.detached.exists():
        return ": it was submitted, and waits for a worker"
    if folder.call.exists():
        return ": its preparation was refused or interrupted. Call it again, with the same folder"
    return ""


def _result(folder: JobFolder, record: dict[str, Any]) -> ParallelRunResult:
    """Return the recorded result; reject a record that daskprs cannot have written."""
    try:
        return ParallelRunResult.of(record | _moved_places(folder, record))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        msg = (
            f"{folder.journal(latest_epoch(folder))}: the result in it is none that daskprs "
            "writes. Restore the journal, or use another job_dir."
        )
        raise JournalError(msg) from error


def _moved_places(folder: JobFolder, record: dict[str, Any]) -> dict[str, str]:
    """Return the recorded places, where those in the job folder may have moved with it."""
    then = record["job_dir"]
    return {name: folder.moved(record[name], then) for name in PATHS if record[name]}


def _status(who: str | None, history: History, result: ParallelRunResult | None) -> str:
    if who is not None:
        return RUNNING
    return status_in(history) if result is None else result.status


def status_in(history: History) -> str:
    """Return the status of a job that no driver is at work on."""
    if history.ended is not None:
        return str(history.ended.get("status"))
    return JobStatus.COMPLETED if history.is_done else DIED


def counts_of(history: History) -> tuple[Counts, Counts, int]:
    """Return the counts of mini-batches and of items, and of items that `run` did not return."""
    rows = history.standing()
    rows = rows[history.commits.column("empty")[rows] == 0]
    total, succeeded = (history.commits.column(name)[rows] for name in ("total", "succeeded"))
    lost = [one.items for one in history.given_up.values()]
    failed = int(np.maximum(0, total - succeeded).sum())
    alone = sum(one.items for one in history.failed_rows.values())
    return (
        Counts(len(rows) + len(lost), len(rows), len(lost)),
        Counts(int(total.sum()) + sum(lost), int(succeeded.sum()), failed + sum(lost)),
        failed - alone,
    )
