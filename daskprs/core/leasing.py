"""Leasing: the free slots get leases of waiting mini-batches."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.actions import Submit, Withdraw
from daskprs.core.columnar import ColumnBatch
from daskprs.core.entry import InFlightLease
from daskprs.core.lease import Lease
from daskprs.core.lease_sizes import UNKNOWN
from daskprs.core.retry_placement import CHOICES, RetryPlacement

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.core.accounts import Accounts
    from daskprs.core.actions import SlotId, ThreadsCounted
    from daskprs.core.agent_allocation import AgentAllocator
    from daskprs.core.backlog import Backlog
    from daskprs.core.entry import Entry
    from daskprs.core.lease import LeaseReturned
    from daskprs.core.lease_sizes import LeaseSizes
    from daskprs.core.placement import Placement
    from daskprs.core.startup_failures import StartupFailures


REST_S = 1.0
"""Seconds without a new lease after a lease of the slot failed by an error of daskprs. The pause
doubles each time: a system limit allows new processes once others end."""
LONGEST_REST_S = 60.0
"""Maximum of this pause in seconds."""


class _Rest(NamedTuple):
    until_s: float
    pause_s: float


class Leasing:
    """Moves mini-batches from the backlog into flights.

    Parameters
    ----------
    job_id
        Stamped on leases.
    expected
        Number of mini-batches of the plan, where that is known beforehand.
    accounts, backlog, sizes, usable, init, allocator
        Parts of the ledger, shared with it.

    """

    def __init__(
        self,
        job_id: str,
        expected: int | None,
        *,
        accounts: Accounts,
        backlog: Backlog,
        sizes: LeaseSizes,
        usable: Placement,
        init: StartupFailures,
        allocator: AgentAllocator,
    ) -> None:
        self.slots: dict[SlotId, int | None] = {}
        """Id of each slot's lease; None for a free slot."""
        self.flights: dict[int, InFlightLease] = {}
        """The leases that have not returned, by id."""
        self._job_id = job_id
        self._expected = expected
        self._accounts = accounts
        self._backlog = backlog
        self._sizes = sizes
        self._usable = usable
        self._init = init
        self._allocator = allocator
        self._leases = 0
        self._busy: frozenset[str] = frozenset()
        """Workers without an idle Dask thread: a lease waits there."""
        self._waiting: set[int] = set()
        """Leases that have waited too long for a thread."""
        self._asked: set[int] = set()
        """Waiting leases that their workers were asked to give back."""
        self._elsewhere = RetryPlacement((), {}, 0.0)
        self._rests: dict[SlotId, _Rest] = {}

    @property
    def work_s(self) -> float:
        """Estimated seconds of work left."""
        left = self._left()
        return self._sizes.work_s(UNKNOWN if left is None else left + len(self.flights))

    def feed(self, now_s: float) -> None:
        """Submit leases to the free slots.

        A place under a probe gets one mini-batch first, whatever that prefers. Then all rounds of
        `RetryPlacement` fill slots on workers with an idle thread, then slots on busy workers.
        """
        free = [
            slot for slot, lease in self.slots.items() if lease is None and self._awake(slot, now_s)
        ]
        if not free:
            return
        usable = self._usable.of(self.slots)
        self._elsewhere = elsewhere = RetryPlacement(usable, self.flights, now_s)
        trial = self._usable.on_trial(free, now_s)
        if trial is not None:
            self._give(trial, 1, lambda _: False)
        idle = [slot for slot in usable if slot.worker not in self._busy]
        busy = [slot for slot in usable if slot.worker in self._busy]
        for slots, choice in product((idle, busy), range(CHOICES)):
            for slot in slots:
                if self._accounts.over or self._backlog.empty:
                    return
                if self.slots[slot] is None and self._awake(slot, now_s):
                    size = self._sizes.next(len(usable), self._left())
                    skips = partial(elsewhere.skips, slot=slot, choice=choice)
                    self._give(slot, size, skips, self._sizes.to_the_end(size, len(usable)))

    # ---- rests ----

    def rest(self, slot: SlotId, now_s: float) -> None:
        """Pause the leases of a slot after one failed by an error of daskprs."""
        before = self._rests.get(slot)
        pause_s = REST_S if before is None else min(LONGEST_REST_S, 2 * before.pause_s)
        self._rests[slot] = _Rest(now_s + pause_s, pause_s)

    def wake(self, slot: SlotId) -> None:
        """Forget the rests of a slot: an agent works there, or the slot is gone."""
        self._rests.pop(slot, None)

    def _awake(self, slot: SlotId, now_s: float) -> bool:
        return slot not in self._rests or now_s >= self._rests[slot].until_s

    # ---- leases that wait for a thread ----

    def count_threads(self, counted: ThreadsCounted) -> None:
        """Record which workers have an idle thread, and which leases wait for one."""
        self._busy = counted.busy
        self._waiting = set(counted.waiting)

    def keep(self, lease_id: int) -> None:
        """Record that a lease stays with its worker."""
        self._asked.discard(lease_id)
        self._waiting.discard(lease_id)

    def withdraw(self) -> None:
        """Ask for waiting leases back, as many as free slots elsewhere would begin at once.

        A lease that continues another one stays: its agent has some of its mini-batches.
        """
        if not self._waiting or self._accounts.over:
            return
        self._waiting.intersection_update(self.flights)
        self._asked.intersection_update(self.flights)
        free = [
            slot
            for slot in self._usable.of(self.slots)
            if self.slots[slot] is None
            and slot.worker not in self._busy
            and slot not in self._rests
        ]
        for lease_id in sorted(self._waiting - self._asked):
            if len(self._asked) >= len(free):
                return
            flight = self.flights[lease_id]
            if not flight.continues and any(
                self._would_take(slot, entry)
                for slot in free
                if slot.worker != flight.slot.worker
                for entry in flight.entries.values()
            ):
                self._asked.add(lease_id)
                self._accounts.actions.append(Withdraw(lease_id))

    def _would_take(self, slot: SlotId, entry: Entry) -> bool:
        return not self._elsewhere.skips(entry, slot, choice=CHOICES - 1)

    # ---- leases ----

    def go_on(self, returned: LeaseReturned, flight: InFlightLease) -> None:
        """Continue a lease whose agent still has mini-batches, with more work after those.

        An agent whose work was recalled behind a long mini-batch gets no more work yet.
        """
        slot, suspects = flight.slot, flight.of_suspects
        running = flight.keep(returned.running)
        if not running:
            return
        more: list[Entry] = []
        busy = suspects or returned.recalled or not self._allocator.process(slot)
        if not busy and self._usable.is_good(slot):
            size = self._sizes.next(self._elsewhere.slots, self._left())
            rest = self._sizes.to_the_end(size, self._elsewhere.slots)
            skips = partial(self._elsewhere.skips, slot=slot, choice=0)
            more = self._backlog.take(max(0, size - len(running)), skips, rest, innocent=True)
        self._submit(slot, running, more, after=returned.lease_id)

    def _give(
        self, slot: SlotId, most: int, skips: Callable[[Entry], bool], to_the_end: int = 0
    ) -> None:
        work = self._backlog.take(most, skips, to_the_end)
        if work and not self._accounts.over:
            self._submit(slot, {}, work)

    def _left(self) -> int | None:
        """Return the number of mini-batches still to be leased; None where it is unknown."""
        if self._backlog.exhausted:
            return len(self._backlog)
        if self._expected is None:
            return None
        return max(1, self._expected - self._accounts.tally.drawn + len(self._backlog))

    def _submit(
        self, slot: SlotId, running: dict[int, Entry], work: list[Entry], after: int | None = None
    ) -> None:
        self._leases += 1
        assignment = self._usable.assignment(slot) if after is None else None
        entries = running | {entry.mini_batch.index: entry for entry in work}
        lease = Lease(
            id=self._leases,
            job_id=self._job_id,
            work=ColumnBatch(entry.assigned for entry in work),
            prefetch=next(iter(entries.values())).lease_at_most is None,
            continues=after,
            node=slot.node,
            slot=slot.number,
            return_after_s=self._sizes.return_after_s(len(self.slots)),
            assignment=assignment,
            return_when_ready=assignment is not None and self._init.has_failed,
            gpus=self._allocator.gpus(slot),
        )
        self._init.begin(slot)
        self.slots[slot] = lease.id
        self.flights[lease.id] = InFlightLease(slot, entries, continues=after is not None)
        self._accounts.actions.append(Submit(lease, slot))
