"""The mini-batches that failed in the end: counted, journaled, written as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.outcomes import Failure
from daskprs.core.plan_entries import CarriedOverFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daskprs.core.events import Place
    from daskprs.core.mini_batch import MiniBatch, Where
    from daskprs.core.outcomes import Outcome
    from daskprs.folders.job_folder import JobFolder
    from daskprs.output.journal.history import GivenUp


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

    def take_over(self, given_up: dict[int, GivenUp], *, borne_is_left: bool) -> None:
        """Take over the mini-batches that earlier runs gave up, by number.

        With `borne_is_left`, those that failed in a run that completed are not run again.
        """
        self._failed = {index: one.identity for index, one in given_up.items()}
        if borne_is_left:
            borne = {index: one for index, one in given_up.items() if one.borne}
            self._borne = {index: CarriedOverFailure(one.items) for index, one in borne.items()}

    def borne(self, index: int) -> CarriedOverFailure | None:
        """Return the failure to count for a mini-batch that is not run again."""
        return self._borne.get(index)

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
        from daskprs.output.failures.failed_table import write_failed

        write_failed(self._folder, self._failed)
