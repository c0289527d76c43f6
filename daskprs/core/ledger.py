"""The ledger: the open mini-batches, the leases in flight, and the tries of each mini-batch.

It is plain and synchronous: an event goes in, actions come out. It knows nothing of Dask, disks,
clocks or processes. Only the ledger counts tries, and blame is exact. Whatever the order of events,
each mini-batch is committed or given up exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from daskprs.core.accounts import Accounts
from daskprs.core.actions import (
    LeaseFailed,
    LeaseKept,
    LeaseWithdrawn,
    Remark,
    SlotAdded,
    SlotId,
    SlotsLost,
    ThreadsCounted,
    Ticked,
)
from daskprs.core.agent_allocation import AgentAllocator
from daskprs.core.backlog import Backlog
from daskprs.core.lease import LeaseReturned
from daskprs.core.lease_sizes import LeaseSizes
from daskprs.core.leasing import Leasing
from daskprs.core.outcome_handling import NOT_BEGUN, Settling
from daskprs.core.placement import Placement
from daskprs.core.plan_entries import CarriedOverFailure, Recovered, plan_entries
from daskprs.core.stall_timer import StallTimer
from daskprs.core.startup_failures import StartupFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs.core.actions import Action, LedgerEvent
    from daskprs.core.ending import Errors
    from daskprs.core.events import Progress
    from daskprs.core.limits import Limits
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Failure


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
        Returns what an earlier run committed for a mini-batch, or its earlier failure. These
        mini-batches do not run again. None for all others.
    expected
        Number of mini-batches of the plan, where that is known beforehand.
    first_process
        Returns the first process number of a node that no earlier run of the job has used.

    """

    def __init__(
        self,
        job_id: str,
        plan: Iterator[MiniBatch],
        limits: Limits,
        *,
        recovered: Callable[[MiniBatch], Recovered | CarriedOverFailure | None] = lambda _: None,
        expected: int | None = None,
        first_process: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._expected = expected
        self._init = StartupFailures(limits.init_timeout_s)
        self._allocator = AgentAllocator(limits.gpus_per_process, first_process)
        self._patience = StallTimer(limits)
        self._accounts = Accounts(limits, self._patience)
        self._backlog = Backlog(plan_entries(plan, recovered, self._accounts, self._patience))
        self._usable = Placement(self._init, self._allocator)
        sizes = LeaseSizes()
        self._leasing = Leasing(
            job_id,
            expected,
            accounts=self._accounts,
            backlog=self._backlog,
            sizes=sizes,
            usable=self._usable,
            init=self._init,
            allocator=self._allocator,
        )
        self._slots, self._flights = self._leasing.slots, self._leasing.flights
        self._settling = Settling(self._accounts, self._backlog, sizes, self._usable, self._slots)
        self._now_s = 0.0

    @property
    def headline(self) -> Failure | None:
        """The first error of a mini-batch that was given up, or of a start if all starts failed."""
        return self._accounts.headline

    @property
    def errors(self) -> Errors:
        """The errors of the job, by what became of the mini-batches that had them."""
        return self._accounts.errors

    @property
    def work_s(self) -> float:
        """Estimated seconds of work left."""
        return self._leasing.work_s

    def handle(self, event: LedgerEvent, now_s: float) -> list[Action]:
        """Handle an event, and return the resulting actions, in order.

        Once the job is over, events cause no actions.

        Parameters
        ----------
        event
            What happened.
        now_s
            Seconds on a clock that never goes back.

        """
        if self._accounts.over:
            return []
        self._accounts.actions = []
        self._now_s = now_s
        self._patience.pass_time(now_s, with_slots=bool(self._slots))
        match event:
            case LeaseReturned():
                self._lease_returned(event)
            case LeaseFailed():
                self._lease_failed(event)
            case SlotAdded():
                self._slot_added(event)
            case SlotsLost(slots, expected):
                self._slots_lost(slots, expected=expected)
            case ThreadsCounted():
                self._leasing.count_threads(event)
            case LeaseWithdrawn(lease_id):
                self._lease_withdrawn(lease_id)
            case LeaseKept(lease_id):
                self._leasing.keep(lease_id)
            case Ticked():
                self._accounts.abort_if(self._patience.verdict())
            case _:
                assert_never(event)
        self._go_on()
        return [*map(Remark, self._usable.bad.taken_out()), *self._accounts.actions]

    def take_back(self, actions: Iterable[Action]) -> None:
        """Undo the counts of commits that could not be written (a full disk)."""
        self._accounts.take_back(actions)

    def standing(self) -> Progress:
        """Return the progress of the job."""
        return self._accounts.tally.standing(
            expected=self._expected,
            running=sum(len(flight.entries) for flight in self._flights.values()),
            waiting=len(self._backlog),
        )._replace(left_out=tuple(map(str, self._usable.bad.ever)))

    # ---- events ----

    def _lease_returned(self, returned: LeaseReturned) -> None:
        """Settle the results of a returned lease; a withdrawn lease has none."""
        if returned.withdrawn:
            self._lease_withdrawn(returned.lease_id)
            return
        flight = self._flights.pop(returned.lease_id, None)
        if flight is None:
            return
        carried, self._slots[flight.slot] = len(flight.entries), None
        self._leasing.wake(flight.slot)
        places = self._usable.places(flight.slot, returned.process)
        init_failure = self._init.hear(returned, flight.slot)
        self._allocator.hear(returned, flight.slot)
        self._accounts.not_started(init_failure)
        self._settling.settle(returned, flight, places, self._now_s)
        if returned.death is not None and not self._accounts.over:
            self._settling.handle_death(returned.death, flight, places, self._now_s)
        self._usable.dismiss(self._settling.bad, self._slots)
        self._settling.bad.clear()
        self._usable.hear(returned, flight.slot)
        if self._accounts.over:
            return
        self._leasing.go_on(returned, flight)
        if returned.vacant:
            self._allocator.dismiss(flight.slot)
        elif len(flight.entries) == carried > 0 and init_failure is None:
            self._settling.refuse(flight, NOT_BEGUN, len(self._slots))
            return
        self._backlog.put_back(flight.entries.values())

    def _lease_failed(self, event: LeaseFailed) -> None:
        """Handle a lease that failed by an error of daskprs itself: none of its work ran."""
        flight = self._flights.pop(event.lease_id, None)
        if flight is not None:
            self._slots[flight.slot] = None
            self._init.fail(flight.slot, event.failure)
            self._leasing.rest(flight.slot, self._now_s)
            self._settling.refuse(flight, event.failure, len(self._slots))

    def _lease_withdrawn(self, lease_id: int) -> None:
        """Take back a lease that has not begun: its mini-batches come next, without a charge."""
        flight = self._flights.pop(lease_id, None)
        if flight is not None:
            self._slots[flight.slot] = None
            self._allocator.withdraw(flight.slot)
            self._init.withdraw(flight.slot)
            self._backlog.put_back(flight.entries.values())

    def _slot_added(self, added: SlotAdded) -> None:
        slot = added.slot
        if slot not in self._slots:
            self._slots[slot] = None
            self._init.slot_added(slot)
            self._allocator.slot_added(slot, added.slot_resources)

    def _slots_lost(self, slots: Iterable[SlotId], *, expected: bool) -> None:
        """Take back the mini-batches of lost slots; this never counts as a try.

        Only a lease of one mini-batch shows which one was running when the worker was lost, so
        only that one is charged with a loss. A larger lease makes suspects. When the loss was
        expected, the mini-batches go back as if they had never begun.
        """
        for slot in slots:
            if slot not in self._slots or self._accounts.over:
                continue
            lease_id = self._slots.pop(slot)
            self._leasing.wake(slot)
            self._init.slot_lost(slot)
            self._allocator.slot_lost(slot)
            entries = [] if lease_id is None else [*self._flights.pop(lease_id).entries.values()]
            if expected:
                self._backlog.put_back(entry.again() for entry in entries)
            elif len(entries) == 1:
                self._settling.lose(entries[0], slot, self._now_s)
            else:
                for entry in entries:
                    self._backlog.again(entry.suspected(len(entries), of_lost_worker=True))

    # ---- going on ----

    def _go_on(self) -> None:
        """Give work to free slots, and end the job when no work is left."""
        accounts, init = self._accounts, self._init
        hopeless = init.verdict(self._patience.elapsed_s)
        if hopeless is not None:
            accounts.abort(hopeless, accounts.errors.final.first or init.last)
        self._leasing.feed(self._now_s)
        self._leasing.withdraw()
        if not self._flights and not accounts.over:
            self._backlog.look_ahead()
        if self._backlog.exhausted and not accounts.over:
            accounts.judge_percent()
            if self._backlog.empty and not self._flights:
                accounts.finish()
