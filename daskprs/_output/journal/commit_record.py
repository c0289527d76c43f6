"""The record of one commit, as the journal of its epoch has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.pieces import FailedItems
from daskprs._output.journal.journal import lines

if TYPE_CHECKING:
    from daskprs._core.pieces import Range
    from daskprs._folders.job_folder import JobFolder

BEGINNINGS = tuple(f'["{kind}"'.encode() for kind in ("commits", "failed rows", "replaces"))


class CommitRecord(NamedTuple):
    """What a journal says of one commit, besides the place of its rows."""

    epoch: int
    index: int  # type: ignore[assignment] # tuple.index is of no use here
    """The number that the mini-batch had in that run."""
    identity: str
    attempt: int
    failed: list[Range]
    """The items that it lacks."""
    replaced: tuple[int, int] | None
    """Epoch and number of the commit whose rows it has taken over, but for its failed items."""


def commit_record(folder: JobFolder, epoch: int, index: int) -> CommitRecord | None:
    """Return the record of a commit, by the epoch that made it and its number there."""
    number = str(index).encode()
    failed: list[Range] = []
    replaced, found = None, None
    for _, body in lines(folder.journal(epoch)):
        if not (body.startswith(BEGINNINGS) and number in body):
            continue
        match json.loads(body):
            case ["failed rows", _, of, _, items, *_] if of == index:
                failed = [(one.start, one.stop) for one in (FailedItems(*each) for each in items)]
            case ["replaces", of_epoch, of_index, of] if of == index:
                replaced = of_epoch, of_index
            case ["commits", identities, attempts, indexes, *_] if index in indexes:
                at = indexes.index(index)
                found = CommitRecord(epoch, index, identities[at], attempts[at], failed, replaced)
    return found
