"""What failed in the end, in a few columns for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.events import NOWHERE
from daskprs.core.outcomes import Failure
from daskprs.report.evidence import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.folders.job_folder import JobFolder

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
