"""The cells that both logs of attempts share, formatted once for a group of outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.core.columnar import ColumnBatch
from daskprs.core.outcomes import Status, failed_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.outcomes import Outcome


Row = tuple[int, int, float, int, int, int, str, str, str, str]
"""Index, attempt, start by the wall clock; items: total, succeeded, failed; seconds with six
places: elapsed, of the processor, in `run`; status."""


class AttemptCells:
    """Formats groups of outcomes; the logs receive a group one after the other."""

    def __init__(self) -> None:
        self._group: ColumnBatch[Outcome] = ColumnBatch()
        self._rows: list[Row] = []

    def of(self, outcomes: ColumnBatch[Outcome]) -> list[Row]:
        """Return a row for each outcome."""
        if outcomes is not self._group:
            self._group, self._rows = outcomes, _rows(outcomes)
        return self._rows


def _rows(outcomes: ColumnBatch[Outcome]) -> list[Row]:
    totals, succeeded = outcomes.column("total"), outcomes.column("succeeded")
    statuses = outcomes.column("status")
    return list(
        zip(
            outcomes.column("index"),
            outcomes.column("attempt"),
            outcomes.column("started"),
            totals,
            succeeded,
            _failed(statuses, totals, succeeded),
            _seconds(outcomes.column("elapsed_s")),
            _seconds(outcomes.column("cpu_s")),
            _seconds(outcomes.column("run_s")),
            [status.value for status in statuses],
            strict=True,
        )
    )


def _failed(
    statuses: Sequence[Status], totals: Sequence[int], succeeded: Sequence[int]
) -> list[int]:
    items = zip(totals, succeeded, strict=True)
    if statuses.count(Status.RUN_DONE) == len(statuses):  # nearly always, and much quicker
        return [total - done if total > done else 0 for total, done in items]
    return list(map(failed_items, statuses, totals, succeeded))


def _seconds(column: Sequence[float]) -> list[str]:
    return [f"{seconds:.6f}" for seconds in column]
