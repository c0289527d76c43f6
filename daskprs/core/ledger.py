"""The ledger: what is to be done, what is being done, and how often it was tried.

Plain and synchronous: an event goes in, actions come out. It knows nothing of Dask, disks, clocks
or processes. Tries are counted here and nowhere else; blame is exact; whatever the order of
events, each mini-batch ends committed or given up, once.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, NamedTuple, assert_never

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
from daskprs.core.backlog import Backlog
from daskprs.core.budgets import Budgets
from daskprs.core.entry import Entry
from daskprs.core.init_rules import InitRules
from daskprs.core.lease import AgentReady, InitFailed, Lease, LeaseReturned
from daskprs.core.lease_sizes import LeaseSizes
from daskprs.core.mini_batch import Assigned, MiniBatch
from daskprs.core.outcomes import Failure, Outcome, Status
from daskprs.core.patience import Patience
from daskprs.core.tally import Tally
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from daskprs.core.actions import LedgerEvent
    from daskprs.core.events import Standing
    from daskprs.core.limits import Limits

    class Recovered(Protocol):
        """What an earlier run of the job committed for a mini-batch."""

        @property
        def total(self) -> int: ...
        @property
        def succeeded(self) -> int: ...
        @property
        def empty(self) -> bool: ...


REFUSALS_BORNE = 5
"""So many times the slots, no agent may take a lease of one mini-batch before the job fails."""


class Flight(NamedTuple):
    """A lease that is out: its slot, and what it carries by index."""

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
        """The first error of the script, whether a later attempt went well or not."""
        self._job_id = job_id
        self._plan = plan
        self._limits = limits
        self._recovered = recovered
        self._expected = expected
        self._tally = Tally()
        self._budgets = Budgets(limits)
        self._sizes = LeaseSizes()
        self._init = InitRules(limits.init_timeout_s)
        self._patience = Patience(limits)
        self._backlog = Backlog(self._fresh())
        self._plan_complete = False
        self._flights: dict[int, Flight] = {}
        self._slots: dict[SlotId, int | None] = {}
        """Each slot with the lease that it works on."""
        self._leases = 0
        self._over = False
        self._actions: list[Action] = []

    def handle(self, event: LedgerEvent, now_s: float) -> list[Action]:
        """Take an event, and return what is to be done about it, in order.

        Once the job is over nothing more comes of any event.

        Parameters
        ----------
        event
            What happened.
        now_s
            Seconds on a clock that never goes back.

        """
        if self._over:
            return []
        self._actions = []
        self._patience.pass_time(now_s, with_slots=bool(self._slots))
        match event:
            case LeaseReturned():
                self._lease_returned(event)
            case LeaseFailed():
                self._lease_failed(event)
            case SlotAdded(slot):
                self._slot_added(slot)
            case SlotLost(slot):
                self._slot_lost(slot)
            case Ticked():
                self._abort_if(self._patience.verdict())
            case _:
                assert_never(event)
        self._go_on()
        return self._actions

    def standing(self) -> Standing:
        """Return how far the job is."""
        return self._tally.standing(
            plan_complete=self._plan_complete,
            expected=self._expected,
            running=sum(len(flight.entries) for flight in self._flights.values()),
            waiting=len(self._backlog),
        )

    # ---- events ----

    def _lease_returned(self, returned: LeaseReturned) -> None:
        """Settle what a lease brings back. A lease that was taken back brings nothing."""
        flight = self._flights.pop(returned.lease_id, None)
        if flight is None:
            return
        carried = len(flight.entries)
        init_failed = self._hear_of_agents(returned, flight.slot)
        self._settle_all(returned, flight)
        if returned.death is not None:
            self._bury(returned, flight)
        if self._over:
            return
        self._slots[flight.slot] = None
        if returned.running:
            self._wait_on(returned, flight)
        if len(flight.entries) == carried and not init_failed:
            self._refuse(flight, Failure("AgentError", "an agent did not begin what it was given"))
        else:
            self._backlog.put_back(flight.entries.values())

    def _lease_failed(self, event: LeaseFailed) -> None:
        """Bear an error of daskprs itself, as long as there are nodes without: nothing ran."""
        flight = self._flights.pop(event.lease_id, None)
        if flight is not None:
            self._slots[flight.slot] = None
            self._init.fail(flight.slot, event.failure)
            self._refuse(flight, event.failure)

    def _slot_added(self, slot: SlotId) -> None:
        if slot not in self._slots:
            self._slots[slot] = None
            self._init.slot_added(slot)

    def _slot_lost(self, slot: SlotId) -> None:
        """Take back what was on a slot that is gone: that is never a try.

        Only of a lease of one is it sure what was at work when the worker went, and only that is
        counted as a loss; of a larger one nobody knows how far it was.
        """
        if slot not in self._slots:
            return
        lease_id = self._slots.pop(slot)
        self._init.slot_lost(slot)
        entries = () if lease_id is None else tuple(self._flights.pop(lease_id).entries.values())
        if len(entries) == 1:
            self._lose(entries[0], slot)
        else:
            for entry in entries:
                self._backlog.again(entry.suspected(len(entries)))

    # ---- what a lease brings back ----

    def _hear_of_agents(self, returned: LeaseReturned, slot: SlotId) -> bool:
        """Take note of agents that came up or did not; say whether one did not."""
        failed = False
        for event in returned.agent_events:
            match event:
                case AgentReady():
                    self._init.succeed(slot)
                case InitFailed(failure=failure, elapsed_s=elapsed_s):
                    failed = True
                    self._init.fail(slot, failure, elapsed_s)
                    self.first_failure = self.first_failure or failure
        if returned.outcomes:
            self._init.succeed(slot)
        return failed

    def _settle_all(self, returned: LeaseReturned, flight: Flight) -> None:
        entries, slot = flight.entries, flight.slot
        seconds = [one.elapsed_s for one in returned.outcomes if one.status is Status.RUN_DONE]
        self._sizes.learn(len(seconds), sum(seconds))
        for outcome in returned.outcomes:
            entry = entries.get(outcome.index)
            if entry is None or entry.attempt != outcome.attempt:
                continue  # a late answer of an attempt that was taken back
            del entries[outcome.index]
            if outcome.status is Status.RUN_DONE:
                self._commit(entry, outcome)
            else:
                self._charge(entry, outcome, slot)
            if self._over:
                return

    def _bury(self, returned: LeaseReturned, flight: Flight) -> None:
        """Blame a death on the one that ran; of several suspects, run each alone."""
        death, entries = returned.death, flight.entries
        if death is None or self._over:
            return
        known = [
            (entries.pop(outcome.index), outcome)
            for outcome in death.suspects
            if outcome.index in entries and entries[outcome.index].attempt == outcome.attempt
        ]
        for entry, outcome in known:
            if len(known) == 1:
                self._charge(entry, outcome, flight.slot, alone=True)
            else:
                self._actions.append(
                    FailAttempt(entry.mini_batch, outcome, final=False, charged=False)
                )
                self._backlog.again(entry.suspected(len(known)))
        for index in death.alone:
            if index in entries:
                entries[index] = entries[index].alone()

    def _wait_on(self, returned: LeaseReturned, flight: Flight) -> None:
        """Go on waiting for what is still running; new work never comes to its slot before."""
        entries = flight.entries
        running = {index: entries.pop(index) for index in returned.running if index in entries}
        if running:
            self._submit(flight.slot, running, continues=returned.lease_id)

    def _refuse(self, flight: Flight, failure: Failure) -> None:
        """Take back what no agent began; one that no agent takes at all ends the job."""
        entries = flight.entries.values()
        refused = [entry.refused(flight.slot, len(entries)) for entry in entries]
        self._backlog.put_back(refused)
        borne = REFUSALS_BORNE * max(1, len(self._slots))
        if any(entry.refusals > borne for entry in refused):
            index = refused[0].mini_batch.index
            self._abort(f"no agent would take mini-batch {index}, {borne + 1} times", failure)

    # ---- attempts ----

    def _commit(self, entry: Entry, outcome: Outcome) -> None:
        self._patience.progress()
        self._tally.commit(outcome)
        self._actions.append(Commit(entry.mini_batch, outcome))
        if outcome.failed:
            self._abort_if(self._budgets.fail_items(outcome.failed))

    def _charge(
        self, entry: Entry, outcome: Outcome, slot: SlotId, *, alone: bool = False
    ) -> None:
        """Charge a failed attempt; give the mini-batch up when its tries are spent."""
        failure = outcome.failure
        self.first_failure = self.first_failure or failure
        again = entry.charged(slot, alone=alone)
        retryable = failure is None or failure.retryable
        if retryable and again.tries < self._limits.run_max_try:
            self._actions.append(FailAttempt(entry.mini_batch, outcome, final=False, charged=True))
            self._backlog.again(again)
        else:
            self._give_up(entry, outcome, charged=True)

    def _lose(self, entry: Entry, slot: SlotId) -> None:
        """Count the loss of the worker that a mini-batch was alone on."""
        again = entry.lost(slot)
        outcome = _lost(entry, slot, again.losses)
        if again.losses < self._limits.max_node_losses:
            self._actions.append(FailAttempt(entry.mini_batch, outcome, final=False, charged=False))
            self._backlog.again(again)
        else:
            self.first_failure = self.first_failure or outcome.failure
            self._give_up(entry, outcome, charged=False)

    def _give_up(self, entry: Entry, outcome: Outcome, *, charged: bool) -> None:
        self._patience.progress()
        items = outcome.total or entry.mini_batch.items or 1
        self._tally.give_up(items)
        outcome = outcome._replace(total=items)
        self._actions.append(FailAttempt(entry.mini_batch, outcome, final=True, charged=charged))
        self._abort_if(self._budgets.fail_mini_batch(items))

    # ---- going on ----

    def _go_on(self) -> None:
        """Give work to free slots, and see whether that is all."""
        self._abort_if(self._init.verdict(self._patience.elapsed_s), self._init.last)
        self._feed()
        if not self._flights and not self._over:
            self._backlog.look_ahead()
        if self._over or not self._backlog.exhausted:
            return
        self._abort_if(self._budgets.judge_percent(self._tally.planned))
        if not self._flights and self._backlog.empty and not self._over:
            self._over = True
            self._actions.append(Finish())

    def _feed(self) -> None:
        """Submit leases to the slots that are free; a retry prefers another slot than before."""
        usable = [slot for slot in self._slots if not self._init.is_out(slot.node)]
        for picky in (True, False):
            for slot in usable:
                if self._over or self._backlog.empty:
                    return
                if self._slots[slot] is None:
                    size = self._sizes.next(len(usable), self._left())
                    work = self._backlog.take(size, slot, picky=picky and len(usable) > 1)
                    if work and not self._over:
                        self._submit(slot, {entry.mini_batch.index: entry for entry in work})

    def _left(self) -> int | None:
        """Return how many mini-batches are to be leased yet, where that is known."""
        if self._backlog.exhausted:
            return len(self._backlog)
        if self._expected is None:
            return None
        return max(1, self._expected - self._tally.drawn + len(self._backlog))

    def _submit(
        self, slot: SlotId, entries: dict[int, Entry], continues: int | None = None
    ) -> None:
        self._leases += 1
        work = tuple(Assigned(entry.mini_batch, entry.attempt) for entry in entries.values())
        lease = Lease(
            id=self._leases,
            job_id=self._job_id,
            work=work if continues is None else (),
            prefetch=all(entry.lease_at_most is None for entry in entries.values()),
            continues=continues,
            node=slot.node,
            slot=slot.number,
        )
        self._init.begin(slot)
        self._slots[slot] = lease.id
        self._flights[lease.id] = Flight(slot, entries)
        self._actions.append(Submit(lease, slot))

    def _fresh(self) -> Iterator[Entry]:
        """Yield the plan, but what an earlier run has committed: that is settled at once."""
        while True:
            try:
                mini_batch = next(self._plan, None)
            except Exception as error:  # noqa: BLE001 - plans read what users give, lazily
                self._abort_plan(error)
                return
            if mini_batch is None:
                self._plan_complete = True
                return
            self._patience.move_plan()
            done = self._recovered(mini_batch)
            if done is None:
                self._tally.plan()
                yield Entry(mini_batch)
                continue
            self._tally.recover(done.total, done.succeeded, empty=done.empty)
            self._abort_if(self._budgets.fail_items(max(0, done.total - done.succeeded)))
            if self._over:
                return

    # ---- the end ----

    def _abort_plan(self, error: Exception) -> None:
        if isinstance(error, DaskprsError):
            self._abort(str(error), None)
        else:
            text = "".join(traceback.format_exception(error))
            failure = Failure(type(error).__name__, str(error), text)
            self._abort("the next mini-batch could not be made", failure)

    def _abort_if(self, why: str | None, failure: Failure | None = None) -> None:
        if why is not None:
            self._abort(why, self.first_failure or failure)

    def _abort(self, why: str, failure: Failure | None) -> None:
        if not self._over:
            self._over = True
            self._actions.append(Abort(why, failure))


def _lost(entry: Entry, slot: SlotId, losses: int) -> Outcome:
    message = (
        f"the worker {slot.worker} was lost while this was at work on it; that was loss {losses}. "
        "The mini-batch may be what ends them. max_node_losses says how many it may have."
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
