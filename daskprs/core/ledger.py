"""The ledger: what is to be done, what is being done, and how often it was tried.

Plain and synchronous: an event goes in, actions come out. It knows nothing of Dask, disks, clocks
or processes. Tries are counted here and nowhere else; blame is exact; whatever the order of
events, each mini-batch ends committed or given up, once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.actions import (
    Abort,
    Action,
    Commit,
    FailAttempt,
    Finish,
    LeaseFailed,
    SlotAdded,
    SlotId,
    SlotLost,
    Submit,
    Ticked,
)
from daskprs.core.budgets import Budgets
from daskprs.core.events import Standing
from daskprs.core.init_rules import InitRules
from daskprs.core.lease import AgentReady, InitFailed, Lease, LeaseReturned
from daskprs.core.lease_sizes import LeaseSizes
from daskprs.core.mini_batch import Assigned, MiniBatch
from daskprs.core.outcomes import Failure, Outcome, Status
from daskprs.core.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs.core.actions import LedgerEvent
    from daskprs.core.limits import Limits

OWN_ERRORS_BORNE = 5
"""So many leases in a row may fail for reasons of daskprs itself, per slot, before the job does."""


class Recovered(NamedTuple):
    """What an earlier run of the job committed for a mini-batch."""

    total: int
    succeeded: int
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One mini-batch that is not settled."""

    mini_batch: MiniBatch
    attempt: int = 1
    """The number of the attempt that is being made or comes next."""
    tries: int = 0
    """Attempts that were charged."""
    losses: int = 0
    """Workers that were lost while it may have been at work on them."""
    alone: bool = False
    """Runs in a lease by itself, and nothing is loaded ahead: it may be what kills."""

    def again(self, *, charged: bool = False, lost: bool = False, alone: bool = False) -> Entry:
        """Return the entry for another attempt."""
        return replace(
            self,
            attempt=self.attempt + 1,
            tries=self.tries + charged,
            losses=self.losses + lost,
            alone=self.alone or alone,
        )


@dataclass(slots=True)
class Flight:
    """A lease that is out."""

    slot: SlotId
    entries: dict[int, Entry]


class Ledger:
    """Decides what runs where and how often, and when the job is over.

    Parameters
    ----------
    job_id
        Stamped on leases.
    plan
        The mini-batches, made lazily; never held as a list.
    limits
        Tries, budgets and timeouts.
    recovered
        Returns what an earlier run committed for a mini-batch, or None: such are not run again.
    expected
        How many mini-batches there will be, where that is known beforehand.

    """

    def __init__(
        self,
        job_id: str,
        plan: Iterator[MiniBatch],
        limits: Limits,
        *,
        recovered: Callable[[MiniBatch], Recovered | None] = lambda _: None,
        expected: int | None = None,
    ) -> None:
        self.first_failure: Failure | None = None
        self._job_id = job_id
        self._plan = plan
        self._limits = limits
        self._recovered = recovered
        self._expected = expected
        self._tally = Tally()
        self._budgets = Budgets(limits)
        self._sizes = LeaseSizes()
        self._init = InitRules()
        self._exhausted = False
        self._over = False
        self._waiting: deque[Entry] = deque()
        self._flights: dict[int, Flight] = {}
        self._slots: dict[SlotId, int | None] = {}
        """Each slot with the lease that it works on."""
        self._leases = 0
        self._own_errors = 0
        self._started_s: float | None = None
        self._settled_s = 0.0
        self._slots_seen_s = 0.0
        self._actions: list[Action] = []

    def handle(self, event: LedgerEvent, now_s: float) -> list[Action]:
        """Take an event, and return what is to be done about it, in order.

        Parameters
        ----------
        event
            What happened.
        now_s
            Seconds on a clock that never goes back.

        """
        if self._over:
            return []
        if self._started_s is None:
            self._started_s = self._settled_s = self._slots_seen_s = now_s
        self._actions = []
        match event:
            case LeaseReturned():
                self._lease_returned(event, now_s)
            case SlotAdded(slot):
                self._slots.setdefault(slot, None)
                self._init.slot_added(slot.node)
            case SlotLost(slot):
                self._slot_lost(slot)
            case LeaseFailed():
                self._lease_failed(event)
            case Ticked():
                self._judge_time(now_s)
        self._go_on(now_s)
        return self._actions

    def standing(self) -> Standing:
        """Return how far the job is."""
        running = sum(len(flight.entries) for flight in self._flights.values())
        return self._tally.standing(
            plan_complete=self._exhausted,
            expected=self._expected,
            running=running,
            waiting=len(self._waiting),
        )

    # ---- events ----

    def _lease_returned(self, returned: LeaseReturned, now_s: float) -> None:
        """Settle what a lease brings back. A lease that was taken back brings nothing."""
        flight = self._flights.pop(returned.lease_id, None)
        if flight is None:
            return
        self._own_errors = 0
        self._init_told(returned, flight.slot.node)
        settled = len(returned.outcomes)
        self._sizes.learn(settled, sum(outcome.elapsed_s for outcome in returned.outcomes))
        for outcome in returned.outcomes:
            entry = flight.entries.pop(outcome.index, None)
            if entry is not None and entry.attempt == outcome.attempt:
                self._settle(entry, outcome, now_s)
            if self._over:
                return
        self._bury(returned, flight, now_s)
        if not self._over:
            self._carry_on(returned, flight)

    def _init_told(self, returned: LeaseReturned, node: int) -> None:
        for event in returned.agent_events:
            match event:
                case AgentReady():
                    self._init.succeed(node)
                case InitFailed(failure=failure):
                    self._init.fail(node, failure)
                    self.first_failure = self.first_failure or failure

    def _bury(self, returned: LeaseReturned, flight: Flight, now_s: float) -> None:
        """Blame a death on the one that ran; of several suspects, run each alone."""
        if returned.death is None:
            return
        suspects = [(flight.entries.pop(one.index, None), one) for one in returned.death.suspects]
        known = [(entry, outcome) for entry, outcome in suspects if entry is not None]
        for entry, outcome in known:
            if len(known) == 1:
                self._fail(replace(entry, alone=True), outcome, now_s)
            else:
                self._actions.append(FailAttempt(entry.mini_batch, outcome, False, False))  # noqa: FBT003
                self._waiting.append(entry.again(alone=True))
        for index in returned.death.alone:
            if index in flight.entries:
                flight.entries[index] = replace(flight.entries[index], alone=True)

    def _carry_on(self, returned: LeaseReturned, flight: Flight) -> None:
        """Wait on for what is still running; give what has not begun to others."""
        running = {
            index: flight.entries.pop(index)
            for index in returned.running
            if index in flight.entries
        }
        self._waiting.extendleft(reversed(flight.entries.values()))
        if flight.slot not in self._slots:
            self._waiting.extendleft(reversed(running.values()))
        elif running:
            self._submit(flight.slot, running, continues=returned.lease_id)
        else:
            self._slots[flight.slot] = None

    def _slot_lost(self, slot: SlotId) -> None:
        """Take back what was on a slot that is gone: no try is charged, losses are counted."""
        if slot not in self._slots:
            return
        lease_id = self._slots.pop(slot)
        self._init.slot_lost(slot.node)
        flight = self._flights.pop(lease_id, None) if lease_id is not None else None
        for entry in flight.entries.values() if flight else ():
            lost = entry.again(lost=True, alone=True)
            if lost.losses >= self._limits.max_node_losses:
                self._give_up(lost, _lost_outcome(entry, slot), charged=False)
            else:
                self._waiting.append(lost)

    def _lease_failed(self, event: LeaseFailed) -> None:
        """Bear an error of daskprs itself for a while: the work was not touched."""
        flight = self._flights.pop(event.lease_id, None)
        if flight is None:
            return
        self._waiting.extendleft(reversed(flight.entries.values()))
        if flight.slot in self._slots:
            self._slots[flight.slot] = None
        self._own_errors += 1
        if self._own_errors >= OWN_ERRORS_BORNE * max(1, len(self._slots)):
            self._abort("no agent could be had", event.failure)

    def _judge_time(self, now_s: float) -> None:
        if self._slots:
            self._slots_seen_s = now_s
        else:
            self._settled_s = now_s  # progress stands still while there are no workers
        limits = self._limits
        patience = limits.no_workers_timeout_s
        if patience is not None and now_s - self._slots_seen_s > patience:
            self._abort(f"no worker came within no_workers_timeout={patience:g} s", None)
        elif now_s - self._settled_s > limits.progress_update_timeout_s:
            seconds = limits.progress_update_timeout_s
            self._abort(f"nothing was finished for progress_update_timeout={seconds:g} s", None)

    # ---- settling ----

    def _settle(self, entry: Entry, outcome: Outcome, now_s: float) -> None:
        if outcome.status is not Status.RUN_DONE:
            self._fail(entry, outcome, now_s)
            return
        self._settled_s = now_s
        self._tally.commit(outcome)
        self._actions.append(Commit(entry.mini_batch, outcome))
        self._judge(self._budgets.fail_items(outcome.failed))

    def _fail(self, entry: Entry, outcome: Outcome, now_s: float) -> None:
        """Charge a failed attempt; give the mini-batch up when its tries are spent."""
        failure = outcome.failure
        self.first_failure = self.first_failure or failure
        again = entry.again(charged=True)
        retryable = failure is None or failure.retryable
        if retryable and again.tries < self._limits.run_max_try:
            self._actions.append(FailAttempt(entry.mini_batch, outcome, False, True))  # noqa: FBT003
            self._waiting.append(again)
        else:
            self._settled_s = now_s
            self._give_up(entry, outcome, charged=True)

    def _give_up(self, entry: Entry, outcome: Outcome, *, charged: bool) -> None:
        items = outcome.total or entry.mini_batch.items or 1
        self._tally.give_up(items)
        self.first_failure = self.first_failure or outcome.failure
        outcome = outcome._replace(total=items)
        self._actions.append(FailAttempt(entry.mini_batch, outcome, True, charged))  # noqa: FBT003
        self._judge(self._budgets.fail_mini_batch(items))

    def _judge(self, exceeded: str | None) -> None:
        if exceeded is not None:
            self._abort(exceeded, self.first_failure)

    def _abort(self, why: str, failure: Failure | None) -> None:
        if not self._over:
            self._over = True
            self._actions.append(Abort(why, failure or self.first_failure or self._init.last))

    # ---- going on ----

    def _go_on(self, now_s: float) -> None:
        """Give work to free slots, and see whether that is all."""
        if self._over:
            return
        exceeded = self._init.verdict(now_s - (self._started_s or now_s))
        if exceeded is not None:
            self._abort(exceeded, self._init.last)
            return
        for slot in [slot for slot, lease_id in self._slots.items() if lease_id is None]:
            if not self._init.is_out(slot.node):
                work = self._next_work()
                if self._over or not work:
                    break
                self._submit(slot, {entry.mini_batch.index: entry for entry in work})
        if self._exhausted and not self._over:
            self._judge(self._budgets.judge_percent(self._tally.planned))
            if not self._flights and not self._waiting and not self._over:
                self._over = True
                self._actions.append(Finish())

    def _submit(
        self, slot: SlotId, entries: dict[int, Entry], continues: int | None = None
    ) -> None:
        self._leases += 1
        work = tuple(Assigned(entry.mini_batch, entry.attempt) for entry in entries.values())
        lease = Lease(
            id=self._leases,
            job_id=self._job_id,
            work=work if continues is None else (),
            prefetch=not any(entry.alone for entry in entries.values()),
            continues=continues,
            node=slot.node,
            slot=slot.number,
        )
        self._slots[slot] = lease.id
        self._flights[lease.id] = Flight(slot, entries)
        self._actions.append(Submit(lease, slot))

    def _next_work(self) -> list[Entry]:
        """Return the work of the next lease: what waits first, then what is new."""
        size = self._sizes.next(len(self._slots), self._left())
        work: list[Entry] = []
        while len(work) < size and self._waiting:
            if self._waiting[0].alone:
                return work or [self._waiting.popleft()]
            work.append(self._waiting.popleft())
        work.extend(self._planned(size - len(work)))
        return work

    def _left(self) -> int | None:
        """Return how many mini-batches are to be leased yet, where that is known."""
        if self._exhausted:
            return len(self._waiting)
        if self._expected is None:
            return None
        return max(1, self._expected - self._tally.drawn + len(self._waiting))

    def _planned(self, count: int) -> Iterator[Entry]:
        """Yield new mini-batches of the plan that are not committed already."""
        while count > 0 and not self._exhausted:
            mini_batch = next(self._plan, None)
            if mini_batch is None:
                self._exhausted = True
                return
            done = self._recovered(mini_batch)
            if done is None:
                self._tally.plan()
                count -= 1
                yield Entry(mini_batch)
            else:
                self._tally.recover(done.total, done.succeeded, empty=done.empty)
                self._judge(self._budgets.fail_items(max(0, done.total - done.succeeded)))


def _lost_outcome(entry: Entry, slot: SlotId) -> Outcome:
    message = (
        f"the worker {slot.worker} was lost while this was at work on it, as others were before: "
        "the mini-batch may be what ends them. Raise max_node_losses to try it more often."
    )
    return Outcome(
        index=entry.mini_batch.index,
        attempt=entry.attempt,
        status=Status.NODE_LOST,
        total=entry.mini_batch.items or 0,
        succeeded=0,
        started=0.0,
        elapsed_s=0.0,
        run_s=0.0,
        cpu_s=0.0,
        failure=Failure("NODE_LOST", message),
    )
