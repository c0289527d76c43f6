"""Evidence of a failure: the log with the most information about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.events import NOWHERE
from daskprs._core.outcomes import Failure
from daskprs._core.tracebacks import without_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._core.events import Place
    from daskprs._folders.job_folder import JobFolder


EXPLAINED_ON_STDERR = {"PROCESS_DIED", "TimeoutError", "MemoryError"}
"""Failures that end a process, which leaves no traceback; an exception of that name has one."""
NO_PROCESS = "no_process"
"""Stands for the process name where a mini-batch failed without an agent process."""


class Evidence(NamedTuple):
    """A log file, and a description of its content."""

    what: str
    log: Path

    def __str__(self) -> str:
        """Return the description and the path for a message."""
        return f"{self.what}: {self.log}"


def evidence(failure: Failure, place: Place, folder: JobFolder) -> Evidence:
    """Return the log with the most information about a failure.

    An exception has a traceback. A process that died or was killed has none, but its stderr log
    may have messages, and the stacks of a process that timed out.
    """
    if failure.traceback:
        return Evidence("full traceback", _errors(place, folder))
    if place.process and failure.kind in EXPLAINED_ON_STDERR:
        return Evidence("its stderr log", folder.stderr(place.node, place.process))
    return Evidence("its error log", _errors(place, folder))


def _errors(place: Place, folder: JobFolder) -> Path:
    return folder.tracebacks(place.node, place.process or NO_PROCESS)


def lines_about(failure: Failure) -> Iterator[str]:
    """Yield the error, the mini-batch that had it, and the lines of the script that led to it."""
    yield str(failure)
    frames = without_error(failure.traceback, failure.message)
    if failure.where:
        yield f"In {failure.where}{':' if frames else '.'}"
    if frames:
        yield frames


COLUMNS = ["mini_batch", "label", "items", "error", "attempts"]


class FailedRow(NamedTuple):
    """A mini-batch that was given up."""

    mini_batch: int
    label: str
    """The part of the input: path and range, or keys."""
    items: int
    log: str
    """The log with the traceback or stderr, relative to the log folder."""
    error: str
    """The error. It is the last column, since pandas abbreviates tables in the middle."""


def failed_rows(folder: JobFolder) -> Iterator[FailedRow]:
    """Yield the mini-batches that were given up, in input order, from ``failed.parquet``."""
    if not folder.failed.exists():
        return
    import pyarrow.parquet as pq  # a result is printed without it

    with pq.ParquetFile(folder.failed) as table:
        for batch in table.iter_batches(columns=COLUMNS):
            for row in batch.to_pylist():
                number, label, items, error, attempts = (row[name] for name in COLUMNS)
                yield FailedRow(number, label, items, _log(attempts[-1], folder), error)


def _log(attempt: dict[str, Any], folder: JobFolder) -> str:
    """Return the log with the most information about an attempt."""
    failure = Failure(attempt["kind"] or "", "", attempt["traceback"] or "")
    place = NOWHERE._replace(node=attempt["node"] or 0, process=attempt["process"] or "")
    return str(evidence(failure, place, folder).log.relative_to(folder.logs))
