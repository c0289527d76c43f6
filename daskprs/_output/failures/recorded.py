"""The failures that the journals of a job have recorded, one mini-batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.pieces import FailedItems
from daskprs._output.failures.attempt import Attempt, Item
from daskprs._output.journal.journal import records_of

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

ATTEMPTS = ("failed", "given up")
ITEMS = "failed rows"


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
