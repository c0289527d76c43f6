"""The mini-batches that failed in the end: counted, journaled, written as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._core.pieces import CarriedOverFailure
from daskprs._output.failures.attempt import Attempt, Item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._core.events import Place
    from daskprs._core.mini_batch import MiniBatch, Where
    from daskprs._core.outcomes import Outcome
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.history import GivenUp


class FailedWork:
    """Keeps the mini-batches that have failed so far, in this run and in earlier runs."""

    def __init__(self, folder: JobFolder, where: Callable[[MiniBatch], Where]) -> None:
        self._folder = folder
        self._where = where
        """Says where a mini-batch lies."""
        self._failed: dict[int, str] = {}
        """Identity of each failed mini-batch, by number."""
        self._borne: dict[int, CarriedOverFailure] = {}

    def __len__(self) -> int:
        """Return how many mini-batches have failed."""
        return len(self._failed)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the mini-batches that have failed."""
        return {*self._failed}

    def take_over(self, given_up: dict[int, GivenUp], *, borne_is_left: bool) -> None:
        """Take over the mini-batches that earlier runs gave up, by number.

        With `borne_is_left`, those that failed in a run that completed are not run again.
        """
        failed = ((index, one) for index, one in given_up.items() if not one.is_committed)
        self._failed = {index: one.identity for index, one in failed}
        if borne_is_left:
            borne = {index: one for index, one in given_up.items() if one.borne}
            self._borne = {index: CarriedOverFailure(one.items) for index, one in borne.items()}

    def borne(self, index: int) -> CarriedOverFailure | None:
        """Return the failure to count for a mini-batch that is not run again."""
        return self._borne.get(index)

    @property
    def all_borne(self) -> list[int]:
        """The numbers of items of the mini-batches that are not run again."""
        return [one.items for one in self._borne.values()]

    def forget(self, indexes: Iterable[int]) -> None:
        """Take note of mini-batches that succeeded."""
        for index in indexes if self._failed else ():
            self._failed.pop(index, None)

    def record(
        self, mini_batch: MiniBatch, outcome: Outcome, place: Place, *, final: bool, charged: bool
    ) -> tuple[Any, ...]:
        """Return the journal record of a failed attempt, and count a final one."""
        kind, item = "failed", None
        if final:
            self._failed[outcome.index] = mini_batch.identity
            kind = "given up"
            item = Item.of(mini_batch, outcome.total, self._where(mini_batch))._asdict()
        attempt = Attempt.of(outcome, place, charged=charged)
        return kind, mini_batch.identity, outcome.index, attempt, item

    def write(self) -> None:
        """Write the table of failed mini-batches, or remove it when there are none."""
        if not self._failed:
            self._folder.failed.unlink(missing_ok=True)
            return
        # It imports pyarrow, which a job without failures may never need here.
        from daskprs._output.failures.failed_table import write_failed

        write_failed(self._folder, self._failed)
