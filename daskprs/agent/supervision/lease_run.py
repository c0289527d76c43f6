"""Leases on their way through an agent: what has come back, what has begun, what has not."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from daskprs.agent.protocol.shared_page import Activity, Phase
from daskprs.core.lease import Death
from daskprs.core.outcomes import Failure, Outcome, Status

if TYPE_CHECKING:
    from daskprs.agent.protocol.messages import Outcomes
    from daskprs.core.columnar import ColumnBatch
    from daskprs.core.lease import Results
    from daskprs.core.mini_batch import Assigned

RETURN_BYTES = 8 << 20
"""So many bytes of results are handed back at once."""
HOLD_BACK_S = 2.0
"""Where nothing has come back for so long, what has not begun is given to others."""


class LeaseRun:
    """The books of an order, kept by the supervisor of its agent: leases that continue each other.

    Outcomes come in the order of the work, so that two numbers say it all: positions below
    `received` are done, those up to `kept` are the agent's.
    """

    def __init__(
        self, order: int, work: ColumnBatch[Assigned], return_after_s: float = 1.0
    ) -> None:
        self.order = order
        """Its number between supervisor and agent."""
        self.return_after_s = return_after_s
        """What has finished is handed back so long after the first of it came."""
        self.received = 0
        self.kept = -1
        self.recalled = False
        """What had not begun was taken back, or nothing could be, since something came last."""
        self._work: deque[tuple[int, int, ColumnBatch[Assigned]]] = deque()
        """With the position of the first of each, and the one behind the last; what is done, or was
        taken back, is dropped."""
        self._quiet_since_s = time.monotonic()
        self._first_s: float | None = None
        self._results: list[Results] = []
        self._payload_bytes = 0
        self.extend(work)

    @property
    def finished(self) -> bool:
        """Nothing of it is left."""
        return self.received > self.kept

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append work, that of a lease that continues the last one."""
        if self.finished:
            self._quiet_since_s = time.monotonic()
        first = self.kept + 1
        self.kept += len(work)
        self._work.append((first, self.kept + 1, work))

    def receive(self, message: Outcomes, below: int | None = None) -> None:
        """Enter what the agent sent; with `below`, only what stands before that position."""
        results = message.results
        if below is not None:
            results = results.only(range(min(len(results.outcomes), below - self.received)))
        now = self._quiet_since_s = time.monotonic()
        if results.outcomes:
            self._first_s = self._first_s or now
            self._results.append(results)
            self.recalled = False
        self.received += len(results.outcomes)
        self._payload_bytes += len(results.payload)
        while self._work and self._work[0][1] <= self.received:
            self._work.popleft()

    def due_in_s(self) -> float | None:
        """Seconds until something of the lease ought to be handed back; None: not by itself."""
        now = time.monotonic()
        last = self._results and self.received == self.kept
        if last or self._payload_bytes >= RETURN_BYTES:
            return 0.0  # more may come while the last one runs
        if self._first_s is not None:
            return max(0.0, self._first_s + self.return_after_s - now)
        if not self.recalled and self.kept > self.received:
            return max(0.0, self._quiet_since_s + HOLD_BACK_S - now)
        return None

    @property
    def stuck(self) -> bool:
        """One takes long, and others that could be taken back wait for it."""
        quiet_s = time.monotonic() - self._quiet_since_s
        return not self.recalled and self.kept > self.received and quiet_s >= HOLD_BACK_S

    def keep(self, last: int) -> tuple[int, ...]:
        """Give up what lies beyond a position, and return the indexes of it."""
        last = min(self.kept, max(last, self.received - 1))
        given_back = self.indexes(last + 1, self.kept + 1)
        self.kept = last
        self._work = deque(
            (first, min(beyond, last + 1), work)
            for first, beyond, work in self._work
            if first <= last
        )
        self.recalled = True
        return given_back

    def share(self) -> tuple[Results, ...]:
        """Take out what has come back and not been handed over yet."""
        share = tuple(self._results)
        self._results.clear()
        self._payload_bytes = 0
        self._first_s = None
        return share

    def at(self, position: int) -> Assigned | None:
        """Return what is to be done at a position; None where nothing is, or is known any more."""
        work, place = self._place(position)
        return None if work is None else work[place]

    def index_at(self, position: int) -> int | None:
        """Return the index of that mini-batch, without unpacking all that it came with."""
        work, place = self._place(position)
        return None if work is None else work.column("mini_batch.index")[place]

    def _place(self, position: int) -> tuple[ColumnBatch[Assigned] | None, int]:
        for first, beyond, work in tuple(self._work):  # progress looks from another thread
            if first <= position < beyond:
                return work, position - first
        return None, 0

    def indexes(self, first: int, beyond: int) -> tuple[int, ...]:
        """Return the indexes of the mini-batches at these positions, which are not done."""
        columns = [
            (start, min(beyond, end), work.column("mini_batch.index"))
            for start, end, work in self._work
            if start < beyond and first < end
        ]
        return tuple(
            index
            for start, end, column in columns
            for index in column[max(0, first - start) : end - start]
        )

    @property
    def left(self) -> tuple[int, ...]:
        """Indexes of what is the agent's and has not come back."""
        return self.indexes(self.received, self.kept + 1)


class Blame(NamedTuple):
    """Who pays for the end of an agent: at most one of the first two is there."""

    outcome: Outcome | None
    """The attempt that exceeded a timeout by itself."""
    death: Death | None
    """Those that may have ended the agent, or kept it from going on."""
    untouched: tuple[int, ...]


def blame_timeout(run: LeaseRun, judged: Activity, failure: Failure) -> Blame:
    """Charge the attempt that was over its time, unless another may have held it up.

    It is charged even where it came to its end between the verdict and the kill (a signal wakes
    many a sleeper): it had taken too long by then. While another is being loaded ahead, nobody
    knows: code that keeps the GIL, or stops the process, keeps `run` from going on. Both run
    again alone, as after a death.
    """
    if judged.lease_id != run.order or judged.position < run.received:
        return Blame(None, None, run.left)
    running = judged.phase is Phase.RUNNING
    status = Status.RUN_TIMEOUT if running else Status.LOAD_TIMEOUT
    outcome = _outcome(run, judged, judged.position, status, failure)
    if judged.phase is not Phase.LOADING and judged.position < judged.loading <= run.kept:
        ahead = _outcome(run, judged, judged.loading, Status.LOAD_TIMEOUT, failure)
        return Blame(None, Death((outcome, ahead)), _others(run, outcome, ahead))
    return Blame(outcome, None, _others(run, outcome))


def blame_death(run: LeaseRun, last: Activity, failure: Failure) -> Blame:
    """Name those that may have ended their agent: what ran, and what was being loaded ahead."""
    if last.lease_id != run.order:
        return Blame(None, None, run.left)
    lost = list(range(run.received, last.done))
    suspects = _at_hand(run, last) or lost[-1:]
    alone = () if not lost or lost[-1] in suspects else run.indexes(lost[-1], lost[-1] + 1)
    if not suspects:
        return Blame(None, None, run.left)
    outcomes = tuple(
        _outcome(run, last, position, Status.PROCESS_DIED, failure) for position in suspects
    )
    return Blame(None, Death(outcomes, alone), _others(run, *outcomes))


def _others(run: LeaseRun, *blamed: Outcome) -> tuple[int, ...]:
    indexes = {outcome.index for outcome in blamed}
    return tuple(index for index in run.left if index not in indexes)


def _at_hand(run: LeaseRun, last: Activity) -> list[int]:
    positions = []
    if last.phase in (Phase.LOADING, Phase.RUNNING, Phase.RETURNING):
        positions.append(last.position)
    positions.append(last.loading)
    mine = [position for position in positions if max(run.received, last.done) <= position]
    return list(dict.fromkeys(position for position in mine if position <= run.kept))


def _outcome(
    run: LeaseRun, last: Activity, position: int, status: Status, failure: Failure
) -> Outcome:
    assigned = run.at(position)
    assert assigned is not None, "only what is not done is blamed"  # noqa: S101 - for the types
    mini_batch, attempt = assigned
    at_hand = position == last.position
    seconds = last.age_s() if at_hand else 0.0
    return Outcome(
        index=mini_batch.index,
        attempt=attempt,
        status=status,
        total=(last.total if at_hand else 0) or mini_batch.items or 0,
        succeeded=0,
        started=time.time() - seconds,
        elapsed_s=seconds,
        run_s=seconds if at_hand and last.phase is Phase.RUNNING else 0.0,
        cpu_s=0.0,
        failure=failure,
    )
