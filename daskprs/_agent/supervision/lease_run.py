"""The record of a lease under way: which mini-batches are done, begun, and not begun.

It says whom to blame when the agent ends.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.protocol.messages import TruncateLease
from daskprs._agent.protocol.shared_page import Activity, Phase
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import Death
from daskprs._core.outcomes import Failure, Outcome, Printed, Results, Status
from daskprs._core.pieces import PiecesEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daskprs._agent.protocol.messages import Outcomes
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.mini_batch import Assigned

RETURN_BYTES = 8 << 20
"""Bytes of results that are handed back without waiting for more."""

IN_RUN = (Phase.RUNNING, Phase.WAITING, Phase.CANCELING, Phase.RETURNING)
"""The phases in which a mini-batch has been given to `run`."""


class LeaseRun:
    """The supervisor's record of an order: a lease and the leases that continue it.

    Outcomes arrive in the order of the work. Positions up to `kept` belong to the agent.
    """

    hold_back_s = 2.0
    """Seconds without a result after which mini-batches not begun are given to other agents."""

    def __init__(
        self, order: int, work: ColumnBatch[Assigned], return_after_s: float = 1.0
    ) -> None:
        self.order = order
        """The order's number between supervisor and agent."""
        self.return_after_s = return_after_s
        """Seconds from the first finished mini-batch until the finished ones are handed back."""
        self.received = 0
        """The first position without an outcome."""
        self.kept = -1
        self.halted: str | None = None
        """None while the agent works on the order. Else it has dropped the rest: a fatal error, or
        an empty text after failures in a row."""
        self.is_done = False
        """Whether it has dropped the rest after a success: the process has done enough."""
        self.recalled = False
        """Whether mini-batches not begun were taken back since the last outcome, or none were left
        to take back."""
        self.is_wanted = False
        """Whether the driver wants back what the agent has not begun."""
        self._work: deque[tuple[int, int, ColumnBatch[Assigned]]] = deque()
        """First position, position behind the last, and work of each lease. Done leases and
        work that was taken back are dropped."""
        self._left: dict[int, tuple[int, int]] = {}
        """Index and attempt of each mini-batch of the agent without an outcome, by position."""
        self._quiet_since_s = time.monotonic()
        self._first_s: float | None = None
        self._results: list[Results] = []
        self._payload_bytes = 0
        self.extend(work)

    @property
    def finished(self) -> bool:
        """Whether no mini-batch of the order is left."""
        return not self._left

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append the work of a lease that continues the last one."""
        if self.finished:
            self._quiet_since_s = time.monotonic()
        first = self.kept + 1
        self.kept += len(work)
        self._work.append((first, self.kept + 1, work))
        # Once for each lease: an agent in the caller's process reports each mini-batch alone, and
        # to read the columns of the lease each time took nine tenths of the time.
        self._left.update(enumerate(work.columns("mini_batch.index", "attempt"), first))

    def given(self, work: ColumnBatch[Assigned]) -> ColumnBatch[Assigned]:
        """Return what the agent gets at once of the work of a lease."""
        return work

    def turn(self, send: Callable[[Any], None]) -> bool:  # noqa: ARG002 - of several stages
        """Let go on what waits for the agent, and return whether the agent has work."""
        return True

    def expects(self, message: Outcomes) -> bool:
        """Say whether outcomes are those of mini-batches whose turn it is, each once."""
        outcomes = message.results.outcomes
        own = map(self._left.get, self._positions_of(outcomes))
        return [*own] == [*outcomes.columns("index", "attempt")]

    def _positions_of(self, outcomes: ColumnBatch[Outcome]) -> Sequence[int]:
        """Return the positions that outcomes are to have."""
        return range(self.received, self.received + len(outcomes))

    def receive(self, message: Outcomes, but: int | None = None) -> None:
        """Record the agent's outcomes; with `but`, not that of this position."""
        results = message.results
        positions = self._positions_of(results.outcomes)
        if but in positions:
            kept = [place for place, position in enumerate(positions) if position != but]
            results, positions = results.only(kept), [positions[place] for place in kept]
        self._quiet_since_s = time.monotonic()
        if results.outcomes:
            self._take(results)
            self.recalled = False
        self.halted = message.halted
        if message.halted is not None:
            self.is_done = [*results.outcomes.column("status")][-1:] == [Status.RUN_DONE]
        for position in positions:
            del self._left[position]
        while self.received <= self.kept and self.received not in self._left:
            self.received += 1
        while self._work and self._work[0][1] <= self.received:
            self._work.popleft()

    def _take(self, results: Results) -> None:
        self._first_s = self._first_s or time.monotonic()
        self._results.append(results)
        self._payload_bytes += len(results.payload)

    def due_in_s(self) -> float | None:
        """Return the seconds until results or work must be handed back; None without a deadline."""
        now_s = time.monotonic()
        is_short = self._results and self._is_short
        if is_short or self.is_wanted or self._payload_bytes >= RETURN_BYTES:
            return 0.0
        if self._first_s is not None:
            return max(0.0, self._first_s + self._wait_s(now_s) - now_s)
        if self._waits and not self.recalled:
            return max(0.0, self._quiet_since_s + self.hold_back_s - now_s)
        return None

    @property
    def _is_short(self) -> bool:
        """Whether nothing waits: more work may come while the last mini-batch runs."""
        return len(self._left) <= 1

    @property
    def _waits(self) -> bool:
        """Whether there may be mini-batches that the agent has not begun."""
        return len(self._left) > 1

    def _wait_s(self, now_s: float) -> float:  # noqa: ARG002 - of several calls
        """Return the seconds that the first result waits for others."""
        return self.return_after_s

    @property
    def stuck(self) -> bool:
        """Whether work is to be taken back: it is wanted, or waits behind what takes long."""
        quiet_s = time.monotonic() - self._quiet_since_s
        is_quiet = self._waits and not self.recalled and quiet_s >= self.hold_back_s
        return self.is_wanted or is_quiet

    def take_back(self, page: SharedPage, send: Callable[[Any], None]) -> tuple[int, ...]:
        """Take back what the agent has not begun, and return the indexes."""
        kept = page.claimed(self.order)
        # A recall makes the agent wait for an answer, so there is none where all work is begun.
        if kept < self.kept:
            kept = page.recall(self.order)
            send(TruncateLease(self.order, kept))
        return self.keep(kept)

    def keep(self, last: int) -> tuple[int, ...]:
        """Give up the mini-batches beyond a position, and return their indexes."""
        self.is_wanted = False
        last = min(self.kept, max(last, self.received - 1))
        given_back = self.indexes(last + 1, self.kept + 1)
        for position in range(last + 1, self.kept + 1):
            self._left.pop(position, None)
        self.kept = last
        self._work = deque(
            (first, min(beyond, last + 1), work)
            for first, beyond, work in self._work
            if first <= last
        )
        self.recalled = True
        return given_back

    def finish_stages(self) -> None:
        """Wait for what the agent has already passed on: it works no more."""

    def close(self) -> None:
        """Close what the mini-batches have needed: none is run any more."""

    def charge(self, outcomes: Iterable[Outcome]) -> None:
        """Add the outcomes of attempts that the supervisor has ended."""
        self._results.append(Results(ColumnBatch(outcomes)))

    def share(self) -> tuple[Results, ...]:
        """Remove and return the results that have not been handed over yet."""
        share = tuple(self._results)
        self._results.clear()
        self._payload_bytes = 0
        self._first_s = None
        return share

    def has(self, position: int) -> bool:
        """Say whether a position of the agent has no outcome."""
        return position in self._left

    def at(self, position: int) -> Assigned | None:
        """Return the mini-batch at a position; None if it is unknown, done or taken back."""
        work, place = self._place(position)
        return None if work is None else work[place]

    def index_of(self, activity: Activity) -> int | None:
        """Return the index of the mini-batch that the agent turned to, if it is not done."""
        index: int | None = self._value_of(activity, "mini_batch.index")
        return index

    def timeout_of(self, activity: Activity) -> float | None:
        """Return the timeout of `run` for that mini-batch, in seconds, if it has its own."""
        pieces = self._value_of(activity, "pieces")
        return None if pieces is None else pieces.timeout_s

    def size_of(self, activity: Activity) -> int | None:
        """Return the size of that mini-batch: its bytes, or else its items."""
        size: int | None = self._value_of(activity, "mini_batch.size_bytes")
        return self._value_of(activity, "mini_batch.items") if size is None else size

    def _value_of(self, activity: Activity, column: str) -> Any:
        """Return a value of the mini-batch of an activity, without unpacking its lease."""
        work, place = self._place(activity.position)
        if work is None or activity.lease_id != self.order:
            return None
        return work.column(column)[place]

    def _place(self, position: int) -> tuple[ColumnBatch[Assigned] | None, int]:
        for first, beyond, work in tuple(self._work):  # progress looks from another thread
            if first <= position < beyond and position in self._left:
                return work, position - first
        return None, 0

    def indexes(self, first: int, beyond: int) -> tuple[int, ...]:
        """Return the indexes of the mini-batches at these positions that are not done."""
        found = map(self._left.get, range(first, beyond))
        return tuple(one[0] for one in found if one is not None)

    @property
    def left(self) -> tuple[int, ...]:
        """Indexes of the agent's mini-batches without an outcome."""
        return tuple(index for index, _ in self._left.values())


class Blame(NamedTuple):
    """Mini-batches to blame for the end of an agent: `outcomes`, `death` or neither is set."""

    outcomes: tuple[Outcome, ...]
    """The attempts that exceeded a timeout by themselves."""
    death: Death | None
    """The attempts that may have ended the agent or held it up."""
    untouched: tuple[int, ...]


def blame_timeout(
    run: LeaseRun,
    judged: Activity,
    failure: Failure,
    printed: Printed | None = None,
    peak_bytes: int = 0,
    late: Iterable[Activity] = (),
) -> Blame:
    """Charge the attempt that exceeded its timeout, unless another may have held it up.

    It is charged even if it ended between the verdict and the kill (a signal wakes many a
    sleeper): it had taken too long by then, and so had those in `late`, calls at the same time.
    While another mini-batch is being loaded ahead, the culprit is unknown: loading code that keeps
    the GIL, or stops the process, holds up `run`. Then both run again alone, as after a death. So
    do all calls at the same time whose process could run none of its threads.
    """
    if judged.lease_id != run.order or not run.has(judged.position):
        return Blame((), None, run.left)
    if judged.is_mute:
        return _blame_all(run, judged, Status.RUN_TIMEOUT, failure, peak_bytes)
    blamed = partial(_outcome, run, failure, peak_bytes)
    running = judged.phase in (Phase.RUNNING, Phase.CANCELING)
    status = Status.RUN_TIMEOUT if running else Status.LOAD_TIMEOUT
    outcome = blamed(judged, judged.position, status, printed)
    is_ahead = judged.position < judged.loading and run.has(judged.loading)
    if judged.phase is not Phase.LOADING and is_ahead:
        ahead = blamed(judged, judged.loading, Status.LOAD_TIMEOUT)
        return Blame((), Death((outcome, ahead)), _others(run, outcome, ahead))
    beside = [blamed(one, one.position, status) for one in late if run.has(one.position)]
    return Blame((outcome, *beside), None, _others(run, outcome, *beside))


def blame_death(
    run: LeaseRun,
    last: Activity,
    failure: Failure,
    printed: Printed | None = None,
    peak_bytes: int = 0,
) -> Blame:
    """Return the attempts that may have ended the agent.

    They are the running one and the one loading, or all of several calls at the same time. If our
    own code has failed in the agent, those whose outcomes are lost may have spoilt the process.
    """
    if last.lease_id != run.order:
        return Blame((), None, run.left)
    if last.beside:
        return _blame_all(run, last, Status.PROCESS_DIED, failure, peak_bytes)
    lost = list(range(run.received, min(last.done, run.kept + 1)))
    at_hand = _at_hand(run, last)
    # A process can be spoilt by any mini-batch whose outcome it has not sent yet.
    suspects = [*lost, *at_hand] if failure.fatal else at_hand or lost[-1:]
    alone = () if not lost or lost[-1] in suspects else run.indexes(lost[-1], lost[-1] + 1)
    if not suspects:
        return Blame((), None, run.left)
    outcomes = tuple(
        _outcome(run, failure, peak_bytes, last, position, Status.PROCESS_DIED, printed)
        for position in suspects
    )
    return Blame((), Death(outcomes, alone), _others(run, *outcomes))


def _blame_all(
    run: LeaseRun, last: Activity, status: Status, failure: Failure, peak_bytes: int
) -> Blame:
    """Return all calls at the same time as suspects."""
    positions = [one for one in (last.position, *last.beside) if run.has(one)]
    outcomes = tuple(_outcome(run, failure, peak_bytes, last, one, status) for one in positions)
    return Blame((), Death(outcomes) if outcomes else None, _others(run, *outcomes))


def _others(run: LeaseRun, *blamed: Outcome) -> tuple[int, ...]:
    indexes = {outcome.index for outcome in blamed}
    return tuple(index for index in run.left if index not in indexes)


def _at_hand(run: LeaseRun, last: Activity) -> list[int]:
    positions = []
    if last.phase in (Phase.LOADING, *IN_RUN):
        positions.append(last.position)
    # The load ahead may have ended the process, or have held the GIL while `run` ran out of time.
    positions.append(last.loading)
    mine = [position for position in positions if last.done <= position and run.has(position)]
    return list(dict.fromkeys(mine))


def _outcome(
    run: LeaseRun,
    failure: Failure,
    peak_bytes: int,
    last: Activity,
    position: int,
    status: Status,
    printed: Printed | None = None,
) -> Outcome:
    assigned = run.at(position)
    assert assigned is not None, "only what is not done is blamed"  # noqa: S101 - for the types
    mini_batch, attempt, pieces, _ = assigned
    at_hand = position == last.position
    seconds = last.age_s() if at_hand else 0.0
    is_running = last.phase in IN_RUN
    # A trial turns to its second range only if the first one has failed.
    is_trial = pieces is not None and pieces.is_trial
    end = PiecesEnd(last.piece, passed_before=last.piece > 0 and not is_trial)
    return Outcome(
        index=mini_batch.index,
        attempt=attempt,
        status=status,
        total=max(0, last.total if at_hand else 0) or mini_batch.items or 0,
        started=time.time() - seconds,
        elapsed_s=seconds,
        run_s=seconds if at_hand and last.phase is Phase.RUNNING else 0.0,
        load_s=seconds if at_hand and last.phase is Phase.LOADING else 0.0,
        failure=failure,
        printed=printed if at_hand else None,
        peak_bytes=peak_bytes,
        pieces=end if pieces is not None and at_hand and is_running else None,
    )
