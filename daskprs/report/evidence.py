"""Where to read more about a failure: the log that has the most to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.events import NOWHERE
from daskprs.core.outcomes import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.core.events import Place
    from daskprs.folders.job_folder import JobFolder


SAID_ON_STDERR = {"PROCESS_DIED", "TimeoutError", "MemoryError"}
"""What ends a process, so that it has no traceback; an exception of that name has one."""
NO_PROCESS = "no_process"
"""In place of its name, where a mini-batch was failed without an agent process."""


class Evidence(NamedTuple):
    """A log file, and what is found in it."""

    what: str
    log: Path

    def __str__(self) -> str:
        """Return both, as a message has it."""
        return f"{self.what}: {self.log}"


def evidence(failure: Failure, place: Place, folder: JobFolder) -> Evidence:
    """Return the log to look into.

    An exception has a traceback. A process that died or was killed has none, but may have said
    something before, and the stacks of one that was too slow are there too.
    """
    if failure.traceback:
        return Evidence("full traceback", _errors(place, folder))
    if place.process and failure.kind in SAID_ON_STDERR:
        return Evidence("its stderr log", folder.stderr(place.node, place.process))
    return Evidence("its error log", _errors(place, folder))


def _errors(place: Place, folder: JobFolder) -> Path:
    return folder.tracebacks(place.node, place.process or NO_PROCESS)


COLUMNS = ["mini_batch", "label", "items", "error", "attempts"]


class FailedRow(NamedTuple):
    """A mini-batch that was given up."""

    mini_batch: int
    label: str
    """Which part of the input it is: path and range, or keys."""
    items: int
    log: str
    """The file to look into, relative to the log folder."""
    error: str
    """The last one: where there is little room, pandas leaves out columns in the middle."""


def failed_rows(folder: JobFolder) -> Iterator[FailedRow]:
    """Yield what has failed in the end, in input order, from ``failed.parquet``."""
    if not folder.failed.exists():
        return
    import pyarrow.parquet as pq  # a result is printed without it

    with pq.ParquetFile(folder.failed) as table:
        for batch in table.iter_batches(columns=COLUMNS):
            for row in batch.to_pylist():
                number, label, items, error, attempts = (row[name] for name in COLUMNS)
                yield FailedRow(number, label, items, _log(attempts[-1], folder), error)


def _log(attempt: dict[str, Any], folder: JobFolder) -> str:
    """Return the log that has the most to say of an attempt."""
    failure = Failure(attempt["kind"] or "", "", attempt["traceback"] or "")
    place = NOWHERE._replace(node=attempt["node"] or 0, process=attempt["process"] or "")
    return str(evidence(failure, place, folder).log.relative_to(folder.logs))
