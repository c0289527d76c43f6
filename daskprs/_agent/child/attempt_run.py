"""One attempt while it is being made: its clocks, its data, its outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from daskprs._agent.child.failure import reason_of
from daskprs._agent.child.handed_on import HandedOn
from daskprs._agent.protocol.shared_page import CallRecord, Phase
from daskprs._core.outcomes import Outcome, Status
from daskprs._core.pieces import NAMED, FailedItems
from daskprs._core.stages import POSTPROCESS, RUN
from daskprs._inputs.source.batch_format import rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._agent.child.included_columns import IncludedColumns
    from daskprs._agent.child.null_rows import NullRows
    from daskprs._agent.child.peak_memory import PeakMemory
    from daskprs._agent.child.permits import CallPermits
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.mini_batch import Assigned
    from daskprs._output.rows.format_result import FormattedRows


class CallTimeout(TimeoutError):  # noqa: N818 - what it is
    """A call has exceeded its timeout, and was canceled."""


# As what it is in tracebacks, and so in logs: there it has the same name as in all reports.
CallTimeout.__module__, CallTimeout.__qualname__ = "builtins", TimeoutError.__qualname__


class RunClock:
    """Adds up the seconds that the script takes for a mini-batch, without our own work.

    The script takes them while this is entered.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
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

    def __init__(
        self,
        assigned: Assigned,
        peak: PeakMemory,
        cpu_s: Callable[[], float],
        page: SharedPage | CallRecord,
        position: int,
        clock: RunClock | None = None,
    ) -> None:
        self.mini_batch, self.number, self.pieces, self.work = assigned
        self._peak = peak
        self._cpu_s = cpu_s
        self.stage = RUN if self.work is None else self.work.stage
        self.data: Any = None
        self.files: list[Any] = []
        """The files that the first stage gets; empty where it gets rows."""
        self.load_error: BaseException | None = None
        self.before: HandedOn | None = None
        """What the stage before has handed on, but for its value: the script may keep its context,
        and with it this attempt."""
        self.named: dict[int, FailedItems] = {}
        """The items that the script itself has named as failed, by number."""
        self.nulls: NullRows | None = None
        """Writes the rows, where they have a column `_error`."""
        self.total = self.mini_batch.items or 0
        self.run_clock = clock or RunClock()
        self._page = page
        self.position = position
        self._wall = time.time()
        self._begun = time.perf_counter()
        self._load_s: float | None = None
        self._cpu_before_s = cpu_s()
        self.usage: dict[str, float] = {}
        """What the attempt has used by the script's own count."""
        self.permits: CallPermits | None = None
        """Those of its calls; None before the first."""
        self._phase = Phase.IDLE
        self._since_ns = self._waits_since_ns = self._waited_ns = 0
        self._call = (0, 0)
        self._failed: list[tuple[int, str]] = []

    @property
    def target(self) -> str | None:
        """The file for what the next stage gets; None: this process makes the rows."""
        return None if self.work is None else self.work.target

    def enter(self, phase: Phase) -> None:
        """Note on the shared page what the attempt turns to now."""
        self._phase, self._since_ns = phase, time.monotonic_ns()
        self._page.enter(phase, self.position, self.total)

    def pause(self) -> None:
        """Note there that `run` waits for a permit: its time stands still."""
        if self._phase is Phase.RUNNING:
            self._phase, self._waits_since_ns = Phase.WAITING, time.monotonic_ns()
            self._page.enter(Phase.WAITING, self.position, self.total)

    def go_on(self) -> None:
        """Note there that `run` goes on, unless it was canceled meanwhile."""
        if self._phase is Phase.WAITING:
            waited_ns = time.monotonic_ns() - self._waits_since_ns
            self._waited_ns += waited_ns
            self._phase, self._since_ns = Phase.RUNNING, self._since_ns + waited_ns
            self._page.enter(Phase.RUNNING, self.position, self.total, self._since_ns)

    def waited_s(self) -> float:
        """Return the seconds for which `run` has waited."""
        waits = self._phase is Phase.WAITING
        now_ns = time.monotonic_ns() - self._waits_since_ns if waits else 0
        return (self._waited_ns + now_ns) / 1e9

    def wait(self, *, waits: bool) -> None:
        """Note there whether one of several calls waits for others; meanwhile it is not late."""
        if isinstance(self._page, CallRecord):
            self._page.wait(waits=waits)

    def excuse(self) -> None:
        """Begin its time anew there, if it is one of several calls."""
        if isinstance(self._page, CallRecord):
            self._page.excuse()

    def turn_to(self, piece: int) -> None:
        """Note there the piece that `run` gets next."""
        self._page.turn_to(piece)

    def begin(self) -> None:
        """Take what was loaded, and count its items."""
        self._load_s = time.perf_counter() - self._begun
        if isinstance(self.data, HandedOn):
            before, self.data = self.data, self.data.value
            self.before = before._replace(value=None)
            self.total, self.named, self.usage = before.total, before.named, dict(before.usage)
            return
        if self.mini_batch.items is None:
            self.total = rows_in(self.data)
        if isinstance(self.data, list):
            self.files = self.data

    def handed_on(self, included: IncludedColumns | None) -> HandedOn:
        """Return what the next stage gets beside the value."""
        before, is_run = self.before, self.stage == RUN
        now = time.perf_counter()
        return HandedOn(
            None,
            self.mini_batch.index,
            self.total,
            included,
            self.named,
            self._wall,
            self._cpu_s() - self._cpu_before_s + (0.0 if before is None else before.cpu_s),
            self.run_clock.seconds + (0.0 if before is None else before.run_s),
            elapsed_s=now - self._begun if is_run else 0.0,
            load_s=(self._load_s or 0.0) if is_run else 0.0,
            peak_bytes=self._peak.taken() if is_run else 0,
            usage=self.usage,
        )

    def call(self, first_row: int, count: int) -> list[tuple[int, str]]:
        """Begin a call with `count` items from `first_row` on; the list takes those that it names.

        They are positions, with the reasons.
        """
        self._call = first_row, count
        self._failed = []
        return self._failed

    def take_named(self) -> None:
        """Take the items that the script has named in the call.

        Raise `IndexError` for a position that the call did not get.
        """
        first_row, count = self._call
        for position, reason in self._failed:
            if not 0 <= position < count:
                got = f"{self.stage}() got {count}, from 0"
                msg = f"context.fail() named position {position}, and {got}."
                raise IndexError(msg)
            number = first_row + position
            self.named[number] = FailedItems(
                number, number + 1, NAMED, "", reason_of(reason), "", self.number
            )

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
        elapsed_s, before = time.perf_counter() - self._begun, self.before
        outcome = Outcome(
            index=self.mini_batch.index,
            attempt=self.number,
            status=status,
            total=self.total,
            started=self._wall,
            elapsed_s=elapsed_s,
            run_s=self.run_clock.seconds,
            cpu_s=self._cpu_s() - self._cpu_before_s,
            peak_bytes=self._peak.taken(),
            usage=tuple(self.usage.items()) or None,
            load_s=elapsed_s if self._load_s is None else self._load_s,
            **({"succeeded": 0} | fields),
        )
        if before is None or status is not Status.RUN_DONE:
            return outcome
        cpu_s, run_s = outcome.cpu_s + before.cpu_s, outcome.run_s + before.run_s
        outcome = outcome._replace(cpu_s=cpu_s, run_s=run_s)
        if self.stage == POSTPROCESS:
            # Others wait for the process of `run`, which the records name: its times and its
            # memory are those of the mini-batch.
            outcome = outcome._replace(started=before.started, elapsed_s=before.elapsed_s)
            return outcome._replace(load_s=before.load_s, peak_bytes=before.peak_bytes)
        return outcome
