"""A failed attempt, and the mini-batch that was given up after it, as the journal has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.outcomes import Failure
from daskprs._core.pieces import FailedItems
from daskprs._output.journal.journal import records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.events import Place
    from daskprs._core.mini_batch import MiniBatch, Where
    from daskprs._core.outcomes import Outcome
    from daskprs._folders.job_folder import JobFolder

ATTEMPTS = ("failed", "given up")
ITEMS = "failed rows"


class Attempt(NamedTuple):
    """One attempt, and where and when it was made."""

    attempt: int
    status: str
    kind: str | None
    message: str | None
    traceback: str | None
    charged: bool
    started: float
    elapsed_s: float
    run_s: float
    node: int | None
    process: str | None
    host: str | None
    pid: int | None
    peak_bytes: int | None = None

    @classmethod
    def of(cls, outcome: Outcome, place: Place, *, charged: bool) -> Attempt:
        """Return the record of an attempt; without a process, the attempt had not begun."""
        failure = outcome.failure or Failure("", "")
        return cls(
            outcome.attempt,
            str(outcome.status),
            failure.kind or None,
            failure.message or None,
            failure.traceback or None,
            charged,
            outcome.started,
            outcome.elapsed_s,
            outcome.run_s,
            place.node if place.process else None,
            place.process or None,
            place.host or None,
            place.pid or None,
            outcome.peak_bytes or None,
        )

    @property
    def error(self) -> str:
        """Return the error as the last line of a traceback has it."""
        return str(Failure(self.kind or self.status, self.message or ""))


class Item(NamedTuple):
    """A mini-batch that was given up, in words, paths and numbers."""

    label: str
    items: int
    paths: Sequence[str]
    row_group: int | None
    rows: Sequence[int] | None
    bytes: Sequence[int] | None
    partition_key: Sequence[Sequence[str | None]]

    @classmethod
    def of(cls, mini_batch: MiniBatch, items: int, where: Where) -> Item:
        """Return the record of a mini-batch."""
        key = mini_batch.partition_key
        values = [(name, None if value is None else str(value)) for name, value in key]
        return cls(mini_batch.label, items, *where, values)


class RecordedFailure(NamedTuple):
    """A failure of a mini-batch, or of some items of it."""

    epoch: int
    identity: str
    """The identity of the mini-batch."""
    status: str
    kind: str
    message: str
    item: Item | None = None
    """The mini-batch in words; None for an attempt that was not the last one."""
    items: tuple[int, int] | None = None
    """The items that failed by themselves; None: the mini-batch failed as a whole."""


def recorded_failures(folder: JobFolder, index: int, identity: str = "") -> list[RecordedFailure]:
    """Return the failures of a mini-batch, in the order in which they were recorded.

    It is known by its `identity`, or else by its number in the run that recorded it.
    """
    found: list[RecordedFailure] = []
    for epoch, _, (kind, of, number, *rest) in records_of(folder, *ATTEMPTS, ITEMS):
        if of != identity if identity else number != index:
            continue
        if kind in ATTEMPTS:
            attempt, item = Attempt(*rest[0]), rest[1]
            message = attempt.message or ""
            of_item = None if item is None else Item(**item)
            name = attempt.kind or attempt.status
            found.append(RecordedFailure(epoch, of, attempt.status, name, message, of_item))
        else:
            for items in (FailedItems(*one) for one in rest[1]):
                place = items.start, items.stop
                found.append(
                    RecordedFailure(epoch, of, items.status, items.kind, items.message, items=place)
                )
    return found
