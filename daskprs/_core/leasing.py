"""Leasing: the free slots get leases of waiting mini-batches."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from daskprs._core.actions import Submit, Withdraw
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import Lease
from daskprs._core.lease_sizes import LARGEST, UNKNOWN
from daskprs._core.ledger_state import InFlightLease
from daskprs._core.placement import ROUNDS, RetryPlacement
from daskprs._core.stages import RING

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.actions import SlotId, ThreadsCounted
    from daskprs._core.agent_allocation import AgentAllocator
    from daskprs._core.entry import Entry
    from daskprs._core.gpu_question import GpuQuestion
    from daskprs._core.lease import AgentAssignment, LeaseReturned
    from daskprs._core.ledger_state import AgentRecord, LedgerState, SlotRecord
    from daskprs._core.placement import Placement
    from daskprs._core.renewals import Renewals
    from daskprs._core.startup_failures import StartupFailures


REST_S = 1.0
"""Seconds without a new lease after a lease of the slot failed by an error of daskprs, or one more
process did not come up there than its node may lose. The pause doubles each time: a system limit
allows new processes once others end."""
WAITING_CALLS = 2
"""Mini-batches of a slot for each call that its process makes at a time: one is under way, and one
waits."""
LONGEST_REST_S = 60.0
"""Maximum of this pause in seconds."""
MOVE_AFTER_S = 0.5
"""Seconds for which a slot is idle before it gets work that waits for another worker."""
RELEASE_AFTER_S = 2.0
"""Seconds for which work waits for a worker without usable slots. The slots of a new worker may be
about to come: workers report twice a second."""


class Leasing:
    """Moves mini-batches from the backlog into leases."""

    def __init__(
        self,
        state: LedgerState,
        placement: Placement,
        startup: StartupFailures,
        allocator: AgentAllocator,
        renewals: Renewals,
        gpu_question: GpuQuestion,
    ) -> None:
        self._state = state
        self._placement = placement
        self._startup = startup
        self._allocator = allocator
        self._renewals = renewals
        self._gpu_question = gpu_question
        self._number = 0
        self._busy: frozenset[str] = frozenset()
        """Workers without an idle Dask thread: a lease waits there."""
        self._waiting: set[int] = set()
        """Leases that have waited too long for a thread."""
        self._asked: set[int] = set()
        """Waiting leases that their workers were asked to give back."""
        self._recalled: set[int] = set()
        """Leases that were asked for what of them had not begun."""
        self._retries = RetryPlacement(state)
        self._idle_since_s: dict[SlotId, float] = {}
        """Slots for which there is only work that waits for other workers, and since when."""
        self._homeless_since_s: dict[str, float] = {}
        """Workers for which work waits, and that have no usable slot, and since when."""

    @property
    def work_s(self) -> float:
        """Estimated seconds of work left."""
        left = self._left()
        count = UNKNOWN if left is None else left + len(self._state.leases)
        return self._state.sizes.work_s(count)

    def feed(self) -> None:
        """Submit leases to the free slots.

        A location under a probe gets one mini-batch first, even one that failed there. Then all
        rounds of `RetryPlacement` fill slots on workers with an idle thread, then on busy ones.
        Slots that are still idle get work that waits for other workers.
        """
        state = self._state
        if not state.over:
            state.backlog.catch_up()
        free = [slot for slot in state.slots.values() if self._is_free(slot)]
        if not free:
            return
        usable = self._placement.usable()
        self._retries = RetryPlacement(state, usable)
        self._release_homeless()
        for slot, location in self._placement.probes(free):
            self._give(slot, 1, lambda _: False, reason=f"{location} gets it as a probe")
        idle = [slot for slot in usable if slot.id.worker not in self._busy]
        busy = [slot for slot in usable if slot.id.worker in self._busy]
        self._fill(idle, busy)
        self._move([*idle, *busy])

    def _fill(self, idle: list[SlotRecord], busy: list[SlotRecord]) -> None:
        """Give work to slots on workers with an idle thread, then to those on busy ones."""
        state, retries = self._state, self._retries
        for slots, round_ in product((idle, busy), range(ROUNDS)):
            for slot in slots:
                if state.over or state.backlog.has_none_now:
                    return
                if self._is_free(slot):
                    size = self._size(slot)
                    skips = partial(retries.skips, slot=slot.id, round_=round_)
                    self._give(slot, size, skips, state.sizes.to_the_end(size, retries.slots))

    # ---- work that waits for the worker that holds its data ----

    def _release_homeless(self) -> None:
        """Let any slot take work that waits for a worker without usable slots."""
        state, slots_of = self._state, self._retries.slots_of
        homes = state.backlog.homes if slots_of else {}
        self._homeless_since_s = {
            home: self._homeless_since_s.get(home, state.now_s)
            for home in homes
            if home not in slots_of
        }
        for home, since_s in self._homeless_since_s.items():
            if state.now_s - since_s >= RELEASE_AFTER_S:
                state.backlog.release(home)

    def _move(self, slots: list[SlotRecord]) -> None:
        """Give idle slots the last of the work that waits for the worker with the most of it."""
        state, slots_of = self._state, self._retries.slots_of
        free = [slot for slot in slots if self._is_free(slot)] if state.backlog.homes else []
        self._idle_since_s = {
            slot.id: self._idle_since_s.get(slot.id, state.now_s) for slot in free
        }
        for slot in free:
            if state.over or state.now_s - self._idle_since_s[slot.id] < MOVE_AFTER_S:
                continue
            homes = {home: n for home, n in state.backlog.homes.items() if home in slots_of}
            if not homes:
                return
            home = max(homes, key=homes.__getitem__)
            size = state.sizes.next(slots_of[home] + 1, homes[home])
            room = state.room(slot)
            if room == 0:  # another slot got the last that fits
                continue
            size = size if room is None else min(size, room)
            reason = f"{home} holds its data, and this slot was idle for {MOVE_AFTER_S:g} s"
            self._submit(slot, {}, state.backlog.move(home, size), reason=reason)

    # ---- free slots ----

    def _is_free(self, slot: SlotRecord, *, worn: bool = False) -> bool:
        """Return whether a slot can begin a lease; with `worn` if its process may be renewed."""
        if slot.lease_id is not None or self._state.now_s < slot.rests_until_s:
            return False
        if self._state.room(slot) == 0:
            return False
        is_worn = slot.agent is not None and slot.agent.is_worn
        return worn or not is_worn or self._renewals.may_begin()

    def rest(self, slot: SlotRecord) -> None:
        """Pause the leases of a slot that cannot start processes, longer each time."""
        slot.rest_s = min(LONGEST_REST_S, 2 * slot.rest_s) or REST_S
        slot.rests_until_s = self._state.now_s + slot.rest_s

    def judge_rest(self, slot: SlotRecord) -> None:
        """End the pauses of a slot whose lease returned; pause one that cannot start agents."""
        if self._startup.is_worse(slot):
            self.rest(slot)
        else:
            slot.rest_s = slot.rests_until_s = 0.0

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
        leases = self._state.leases
        if not self._waiting or self._state.over:
            return
        self._waiting.intersection_update(leases)
        self._asked.intersection_update(leases)
        # A worn process that waits for the first calls of others begins as soon as one of these
        # comes back.
        waiting = sorted(self._waiting - self._asked)
        is_open = any(self._renewals.is_pending(leases[lease_id].agent) for lease_id in waiting)
        free = [
            slot
            for slot in self._placement.usable()
            if (self._is_free(slot) or (is_open and self._is_free(slot, worn=True)))
            and slot.rest_s == 0  # after a rest, the slot has yet to show that it can start agents
            and slot.id.worker not in self._busy
        ]
        for lease_id in waiting:
            if len(self._asked) >= len(free):
                return
            flight = leases[lease_id]
            if not flight.continues and any(
                not self._retries.skips(entry, slot.id, ROUNDS - 1)
                for slot in free
                if slot.id.worker != flight.slot.id.worker
                for entry in flight.entries.values()
            ):
                self._asked.add(lease_id)
                self._state.actions.append(Withdraw(lease_id))

    def recall(self) -> None:
        """Ask for what agents have not begun where the limits of usage have no room for it."""
        state, at_once = self._state, self._state.limits.calls
        if state.over or not state.limits.usage_limits:
            return
        running = sum(min(at_once, len(flight.entries)) for flight in state.leases.values())
        if state.affordable(running):
            return
        self._recalled.intersection_update(state.leases)
        for lease_id, flight in state.leases.items():
            if lease_id not in self._recalled and len(flight.entries) > at_once:
                self._recalled.add(lease_id)
                state.actions.append(Withdraw(lease_id, rest=True))

    # ---- leases ----

    def go_on(self, returned: LeaseReturned, flight: InFlightLease) -> None:
        """Continue a lease whose agent still has mini-batches, with more work after those.

        An agent whose work was recalled behind a long mini-batch gets no more work yet.
        """
        state, slot, suspects = self._state, flight.slot, flight.of_suspects
        running = flight.keep(returned.running)
        if not running:
            return
        more: list[Entry] = []
        agent = flight.agent
        is_busy = suspects or returned.recalled or slot.agent is not agent or agent.is_worn
        if not is_busy and self._placement.is_good(slot):
            state.backlog.catch_up()
            size = self._size(slot)
            rest = state.sizes.to_the_end(size, self._retries.slots)
            skips = partial(self._retries.skips, slot=slot.id, round_=0)
            room = state.room(slot)
            if room is not None:
                size, rest = min(size, room), 0
            more = self._take(slot, max(0, size - len(running)), skips, rest, innocent=True)
        self._submit(slot, running, more, agent, after=returned.lease_id)

    def _give(
        self,
        slot: SlotRecord,
        most: int,
        skips: Callable[[Entry], bool],
        to_the_end: int = 0,
        reason: str = "",
    ) -> None:
        room = self._state.room(slot)
        if room is not None:
            most, to_the_end = min(most, room), 0
        work = self._take(slot, most, skips, to_the_end)
        if work and not self._state.over:
            self._submit(slot, {}, work, reason=reason)

    def _take(
        self,
        slot: SlotRecord,
        most: int,
        skips: Callable[[Entry], bool],
        to_the_end: int,
        *,
        innocent: bool = False,
    ) -> list[Entry]:
        """Take work for a slot; the slots of a worker share the work that waits for it."""
        worker = slot.id.worker
        slots = max(1, self._retries.slots_of[worker])
        return self._state.backlog.take(
            most, skips, to_the_end, worker=worker, slots=slots, innocent=innocent
        )

    def _size(self, slot: SlotRecord) -> int:
        """Return the number of mini-batches that a slot should have."""
        state = self._state
        of_job, left = self._retries.slots, self._left()
        size = state.sizes.next(of_job, left)
        if (calls := state.limits.calls) > 1:
            # Each call has work waiting; toward the end all slots have the same number of calls.
            # A plan of unknown length may be so short that other slots need what would wait here.
            waits = left is not None or state.sizes.count > 0
            share = LARGEST if left is None else -(-left // max(1, of_job))
            size = max(size, min((WAITING_CALLS if waits else 1) * calls, share))
        if state.stages is None:
            return size
        elsewhere = sum(one.share for one in slot.resources.stage_hosts)
        return max(size, slot.resources.stage_processes + elsewhere + RING)

    def _left(self) -> int | None:
        """Return the number of mini-batches still to be leased; None where it is unknown."""
        state = self._state
        if state.backlog.exhausted:
            return len(state.backlog)
        if state.expected is None:
            return None
        return max(1, state.expected - state.tally.drawn + len(state.backlog))

    def _submit(
        self,
        slot: SlotRecord,
        running: dict[int, Entry],
        work: list[Entry],
        agent: AgentRecord | None = None,
        after: int | None = None,
        reason: str = "",
    ) -> None:
        state = self._state
        self._number += 1
        assignment = None
        if state.at_most is not None:
            work = [entry.fitted(state.at_most) for entry in work]
        if agent is None:
            agent, assignment = self._agent(slot, work)
        entries = running | {entry.mini_batch.index: entry for entry in work}
        lease = Lease(
            id=self._number,
            work=ColumnBatch(entry.assigned for entry in work),
            prefetch=next(iter(entries.values())).lease_at_most is None,
            most_in_a_row=self._renewals.most_in_a_row,
            continues=after,
            node=slot.id.node,
            slot=slot.id.number,
            return_after_s=state.sizes.return_after_s(len(state.slots)),
            assignment=assignment,
            return_when_ready=assignment is not None and self._startup.has_failed,
            finds_gpu_use=self._gpu_question.asks(slot),
            gpus=self._allocator.gpus(slot),
            stage_hosts=slot.resources.stage_hosts,
        )
        self._startup.begin(slot)
        slot.lease_id = lease.id
        self._idle_since_s.pop(slot.id, None)
        state.leases[lease.id] = InFlightLease(slot, entries, agent, continues=after is not None)
        self._log_retries(slot, work, reason)
        state.actions.append(Submit(lease, slot.id))

    def _agent(
        self, slot: SlotRecord, work: list[Entry]
    ) -> tuple[AgentRecord, AgentAssignment | None]:
        """Return the agent for this work, and its assignment if it is new: a worn one is renewed.

        What runs only as the first mini-batch of a process gets a new one, too.
        """
        old, epoch = slot.agent, None
        if old is not None and old.is_worn:
            epoch = self._renewals.begin(slot, old)
        elif old is not None and old.is_done:
            state = self._state
            process = f"{old.assignment.process} on node {slot.id.node}"
            state.remark("info", f"{process} has done enough, and a new process takes its place.")
        elif old is not None and old.attempts and any(entry.runs_first for entry in work):
            index = work[0].mini_batch.index
            why = f"mini-batch {index} runs as the first one of a process"
            if work[0].bisection is None:
                why += ", as it may be innocent of how the last one has ended"
            else:
                why += ", since something had failed before it in the last one"
            self._renewals.replace(slot, old, why)
        else:
            old = None
        if old is not None:
            # It may hold failures: they would go with it, and the job would end without them.
            self._renewals.retire(old)
            slot.agent = None
        assignment = self._placement.assignment(slot)
        agent = slot.agent
        assert agent is not None, "it is there, or has been assigned"  # noqa: S101 - for the types
        agent.epoch = agent.epoch if epoch is None else epoch
        return agent, assignment

    def _log_retries(self, slot: SlotRecord, work: list[Entry], reason: str) -> None:
        """Log why these mini-batches go to this slot, where it is not just the next free one."""
        reasons: dict[str, list[Entry]] = {}
        placed = (
            work if reason else [entry for entry in work if entry.attempt > 1 or entry.failed_on]
        )
        for entry in placed:
            why = reason or self._retries.reason(entry, slot.id)
            reasons.setdefault(why, []).append(entry)
        for why, (first, *others) in reasons.items():
            more = f" and {len(others)} more," if others else ""
            message = (
                f"mini-batch {first.mini_batch.index}, attempt {first.attempt},{more} goes to node "
                f"{slot.id.node}, slot {slot.id.number} of {slot.id.worker}: {why}."
            )
            self._state.remark("debug", message)
