"""One attempt while it is being made: its clocks, its data, its outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from daskprs._core.outcomes import Outcome, Status
from daskprs._core.pieces import FailedItems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs._agent.child.null_rows import NullRows
    from daskprs._agent.child.peak_memory import PeakMemory
    from daskprs._core.mini_batch import Assigned
    from daskprs._output.rows.format_result import FormattedRows


NAMED = "NAMED"
"""The status of an item that the script itself has named as failed."""


class RunClock:
    """Adds up the seconds that the script takes for a mini-batch, without our own work.

    The script takes them while this is entered.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> Self:
        """Go on."""
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.seconds += time.perf_counter() - self._begun

    def around(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """Yield what a generator of the script yields."""
        while True:
            with self:
                try:
                    piece = next(pieces)
                except StopIteration:
                    return
            yield piece


class AttemptRun:
    """One attempt while it is being made: its clocks, its data, its outcome."""

    def __init__(self, assigned: Assigned, peak: PeakMemory, cpu_s: Callable[[], float]) -> None:
        self.mini_batch, self.number, self.pieces = assigned
        self._peak = peak
        self._cpu_s = cpu_s
        self.data: Any = None
        self.load_error: BaseException | None = None
        self.named: dict[int, FailedItems] = {}
        """The items that the script itself has named as failed, by number."""
        self.nulls: NullRows | None = None
        """Writes the rows, where they have a column `_error`."""
        self.total = self.mini_batch.items or 0
        self.run_clock = RunClock()
        self._wall = time.time()
        self._begun = time.perf_counter()
        self._cpu_before_s = cpu_s()

    def name(self, failed: Iterable[tuple[int, str]], first_row: int, count: int) -> None:
        """Take the items of a call that the script has named, which begins at `first_row`.

        Raise `IndexError` for a position that the call did not get.
        """
        for position, reason in failed:
            if not 0 <= position < count:
                msg = f"context.fail() named position {position}, and run() got {count}, from 0."
                raise IndexError(msg)
            number = first_row + position
            self.named[number] = FailedItems(number, number + 1, NAMED, "", reason, "", self.number)

    def done(self, rows: FormattedRows, succeeded: int) -> Outcome:
        """Return the outcome of an attempt that has made these rows."""
        return self.finished(
            Status.RUN_DONE,
            succeeded=succeeded,
            text=rows.text,
            typed=rows.typed,
            header=rows.header,
        )

    def finished(self, status: Status, **fields: Any) -> Outcome:
        """Return the outcome of an attempt that ends now."""
        now = time.perf_counter()
        return Outcome(
            index=self.mini_batch.index,
            attempt=self.number,
            status=status,
            total=self.total,
            started=self._wall,
            elapsed_s=now - self._begun,
            run_s=self.run_clock.seconds,
            cpu_s=self._cpu_s() - self._cpu_before_s,
            peak_bytes=self._peak.taken(),
            **({"succeeded": 0} | fields),
        )
