"""The ledger: the open mini-batches, the leases in flight, and the tries of each mini-batch.

It is plain and synchronous: an event goes in, actions come out. It knows nothing of Dask, disks,
clocks or processes. Only the ledger counts tries, and blame is exact. Whatever the order of events,
each mini-batch is committed or given up exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from daskprs._core.actions import (
    Commit,
    EndSet,
    LeaseFailed,
    LeaseKept,
    LeaseWithdrawn,
    SlotAdded,
    SlotsLost,
    ThreadsCounted,
    Ticked,
)
from daskprs._core.agent_allocation import AgentAllocator
from daskprs._core.backlog import Backlog
from daskprs._core.gpu_question import GpuQuestion
from daskprs._core.isolation import Isolation
from daskprs._core.lease import AgentExited, AgentNoted, LeaseReturned
from daskprs._core.leasing import Leasing
from daskprs._core.ledger_state import LedgerState
from daskprs._core.placement import Placement
from daskprs._core.plan_entries import plan_entries
from daskprs._core.renewals import Renewals
from daskprs._core.settling import NOT_BEGUN, Settling
from daskprs._core.spending import Spending
from daskprs._core.stall_timer import StallTimer
from daskprs._core.startup_failures import StartupFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from daskprs._core.accounts import Settled
    from daskprs._core.actions import Action, LedgerEvent, SlotId
    from daskprs._core.ending import Errors
    from daskprs._core.events import Progress
    from daskprs._core.limits import Limits
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure
    from daskprs._core.pieces import CarriedOverFailure, Pieces, Recovered
    from daskprs._core.stages import Stages


class Ledger:
    """Decides what runs where and how often, and when the job is over.

    Parameters
    ----------
    plan
        The mini-batches, made lazily; never held as a list. None says that no further one is known
        yet: the next event asks again.
    recovered
        Returns what an earlier run committed for a mini-batch, or its earlier failure. These
        mini-batches do not run again. None for all others.
    expected
        Number of mini-batches of the plan, where that is known beforehand.
    first_process, has_run
        As for `AgentAllocator`.
    seed
        Decides how much delays of retries differ: the same seed gives the same delays.
    stages
        The functions that run beside `run`, in processes of their own; None: there are none.
    spending
        What earlier runs have used by the script's own count; None: nothing.
    pieces
        What runs of each mini-batch; None: all of it.
    before
        What earlier runs have settled of the plan; None: nothing.
    ahead
        Whether the plan is made ahead of the slots, to find out how long it is.
    """

    def __init__(
        self,
        plan: Iterator[MiniBatch | None],
        limits: Limits,
        *,
        recovered: Callable[[MiniBatch], Recovered | CarriedOverFailure | None] = lambda _: None,
        expected: int | None = None,
        first_process: Callable[[int], int] = lambda _: 0,
        has_run: bool = False,
        seed: str = "",
        stages: Stages | None = None,
        spending: Spending | None = None,
        pieces: Pieces | None = None,
        before: Settled | None = None,
        ahead: bool = False,
    ) -> None:
        self._state = state = LedgerState(limits, expected, seed, stages)
        state.spending = self.spending = spending or Spending()
        if before is not None:
            state.tally.before = state.budgets.before = before
        self._timer = StallTimer(state)
        self._startup = StartupFailures(state)
        self._noted: set[str] = set()
        self._allocator = AgentAllocator(state, first_process, has_run=has_run)
        self._placement = Placement(state, self._startup, self._allocator)
        self._renewals = Renewals(state, self._timer)
        self._isolation = Isolation(state)
        self._settling = Settling(
            state, self._placement, self._timer, self._renewals, self._isolation
        )
        self._gpu_question = GpuQuestion(state)
        self._leasing = Leasing(
            state,
            self._placement,
            self._startup,
            self._allocator,
            self._renewals,
            self._gpu_question,
        )
        entries = plan_entries(plan, recovered, state, self._settling, self._timer, pieces)
        state.backlog = Backlog(entries, ahead=ahead)

    @property
    def headline(self) -> Failure | None:
        """The first error of a mini-batch that was given up, or of a start if all starts failed."""
        return self._state.errors.headline

    @property
    def is_sound(self) -> bool:
        """Whether no agent has failed in its last call."""
        return not any(agent.soundness.in_a_row for agent in self._state.agents())

    @property
    def has_found_gpu_use(self) -> bool:
        """Whether it is known by now what the script does with GPUs."""
        return self._gpu_question.is_answered

    @property
    def errors(self) -> Errors:
        """The errors of the job, by what became of the mini-batches that had them."""
        return self._state.errors.counts

    @property
    def work_s(self) -> float:
        """Estimated seconds of work left."""
        return self._leasing.work_s

    def wait_s(self, now_s: float, at_most_s: float) -> float:
        """Return the seconds after which the ledger needs an event, to begin a delayed retry.

        It has no clock of its own. Without a delayed retry, these are `at_most_s`.
        """
        due_s = self._state.backlog.due_s
        return at_most_s if due_s is None else min(at_most_s, max(0.0, due_s - now_s))

    def handle(self, event: LedgerEvent, now_s: float) -> list[Action]:  # noqa: C901 - one case for each event
        """Handle an event, and return the resulting actions, in order.

        `now_s` is of a clock that never goes back. Once the job is over, events cause no actions.
        """
        state = self._state
        if state.over:
            return []
        state.actions = []
        self._timer.pass_time(now_s)
        state.backlog.pass_time(now_s)
        match event:
            case LeaseReturned():
                self._lease_returned(event)
            case LeaseFailed(lease_id, failure):
                self._lease_failed(lease_id, failure)
            case SlotAdded():
                state.add_slot(*event)
            case SlotsLost(slots, expected, waited):
                self._slots_lost(slots, waited, expected=expected)
            case ThreadsCounted():
                self._leasing.count_threads(event)
            case LeaseWithdrawn(lease_id):
                self._lease_withdrawn(lease_id)
            case LeaseKept(lease_id):
                self._leasing.keep(lease_id)
            case EndSet():
                state.end = event
            case Ticked(waits):
                state.tick(waits=waits)
                self._judge_stall()
            case _:
                assert_never(event)
        self._go_on()
        return state.actions

    def _judge_stall(self) -> None:
        """End the job if nothing is settled any more; it is not to blame for an endpoint."""
        state, why = self._state, self._timer.verdict()
        if why is not None and state.is_throttled and not self._timer.is_deserted:
            state.interrupt(f"{why}, since the endpoint wanted fewer requests")
        else:
            state.abort_if(why)

    def take_back(self, actions: Iterable[Action]) -> None:
        """Undo the counts of commits that could not be written (a full disk)."""
        commits = [action for action in actions if isinstance(action, Commit)]
        self._settling.take_back(commits)
        for commit in commits:
            usage = commit.results.outcomes.column("usage")
            self.spending.commit(usage, commit.positions, sign=-1)

    def standing(self) -> Progress:
        """Return the progress of the job."""
        state = self._state
        due_s = state.backlog.due_s
        return state.tally.standing(
            expected=state.expected,
            running=sum(len(flight.entries) for flight in state.leases.values()),
            waiting=len(state.backlog)
            + len(self._isolation.waiting)
            + sum(len(agent.held) for agent in state.agents()),
        )._replace(
            left_out=self._left_out(),
            renewals=self._renewals.count,
            delayed=state.backlog.delayed,
            retry_in_s=None if due_s is None else max(0.0, due_s - state.now_s),
            spent=tuple(self.spending.spent.items()),
            useful=tuple(self.spending.useful.items()),
            throttled=state.throttled,
        )

    def _left_out(self) -> tuple[str, ...]:
        """Return the GPUs and nodes that were left out, as people read them."""
        without = (f"node {node} (no process came up)" for node in self._startup.given_up)
        return (*map(str, self._placement.quarantine.ever), *without)

    # ---- events ----

    def _tell_notes(self, returned: LeaseReturned) -> None:
        """Tell people what agents have noted, each text once."""
        for event in returned.agent_events:
            if isinstance(event, AgentNoted) and event.text not in self._noted:
                self._noted.add(event.text)
                self._state.remark("warning", f"{event.process}: {event.text}")

    def _count_usage(self, returned: LeaseReturned, node: int) -> None:
        """Count what the attempts of a lease have used, and those that are committed now."""
        for made in returned.results:
            self.spending.end(made.outcomes.column("usage"), node, returned.process)
        for event in returned.agent_events:
            if isinstance(event, AgentExited):
                self.spending.lose(node, event.process)
        for action in self._state.actions:
            if isinstance(action, Commit):
                self.spending.commit(action.results.outcomes.column("usage"), action.positions)
        self._state.tell_uncounted()

    def _lease_returned(self, returned: LeaseReturned) -> None:
        """Settle the results of a returned lease; a withdrawn lease has none."""
        state = self._state
        if returned.withdrawn:
            self._lease_withdrawn(returned.lease_id)
            return
        flight = state.end_lease(returned.lease_id)
        if flight is None:
            return
        slot, carried = flight.slot, len(flight.entries)
        init_failure = self._startup.record_events(returned, slot)
        self._leasing.judge_rest(slot)
        self._allocator.record_events(returned, slot)
        self._tell_notes(returned)
        state.errors.starts.add(init_failure)
        self._settling.settle(returned, flight)
        self._count_usage(returned, slot.id.node)
        if returned.death is not None and not state.over:
            self._settling.handle_death(returned.death, flight)
        if state.over:
            state.backlog.put_back(flight.entries.values())  # of them, nothing is settled
            return
        if self._gpu_question.answer(returned):
            self._allocator.hide_gpus()
        self._leasing.go_on(returned, flight)
        flight.agent.is_done |= returned.is_done
        if returned.vacant:
            slot.agent = None
        is_explained = init_failure is not None or returned.vacant or returned.halted
        # Work that comes back whole, without an error that explains it, would be leased again for
        # ever.
        if len(flight.entries) == carried > 0 and not is_explained:
            self._settling.refuse(flight, NOT_BEGUN)
        else:
            state.backlog.put_back(flight.entries.values())
        self._settling.put_first()
        if slot.agent is not flight.agent:
            self._renewals.retire(flight.agent)
        elif flight.agent.is_worn:
            self._renewals.release(flight.agent)

    def _lease_failed(self, lease_id: int, failure: Failure) -> None:
        """Handle a lease that failed by an error of daskprs itself: none of its work ran."""
        flight = self._state.end_lease(lease_id)
        if flight is not None:
            self._startup.fail(flight.slot, failure)
            self._leasing.rest(flight.slot)
            self._settling.refuse(flight, failure)

    def _lease_withdrawn(self, lease_id: int) -> None:
        """Take back a lease that has not begun: its mini-batches come next, without a charge."""
        flight = self._state.end_lease(lease_id)
        if flight is not None:
            self._allocator.withdraw(flight.slot)
            # Else the slot counts as one whose agent may still come up, and a job whose init()
            # fails in all other processes stands still.
            self._startup.withdraw(flight.slot)
            if flight.slot.agent is not flight.agent:
                self._renewals.retire(flight.agent)
            self._state.backlog.put_back(flight.entries.values(), anywhere=True)

    def _slots_lost(
        self, slots: Iterable[SlotId], waited: Collection[int], *, expected: bool
    ) -> None:
        """Take back the mini-batches of lost slots; this never counts as a try.

        Only a lease of one mini-batch shows which one was running when the worker was lost, so
        only that one is charged with a loss. A larger lease makes suspects. When the loss was
        expected, or the lease waited for its data, they go back as if they had never begun.
        """
        state = self._state
        for slot in slots:
            if slot not in state.slots or state.over:
                continue
            record = state.remove_slot(slot)
            lease_id = record.lease_id
            if slot.node not in state.node_slots:
                self._startup.forget_node(slot.node)
            if lease_id is None:
                if record.agent is not None:
                    self._renewals.retire(record.agent)
                continue
            flight = state.leases.pop(lease_id)
            entries = [*flight.entries.values()]
            if expected or lease_id in waited:
                state.backlog.put_back(entry.again() for entry in entries)
            elif len(entries) == 1:
                self._settling.lose(entries[0], slot)
            else:
                for entry in entries:
                    state.backlog.again(entry.suspected(len(entries), of_lost_worker=True))
            self._renewals.retire(flight.agent)

    # ---- going on ----

    def _go_on(self) -> None:
        """Give work to free slots, and end the job when no work is left."""
        state = self._state
        self._settling.release_waiting()
        self._settling.give_up_waiting(is_last=False)
        self._startup.judge()
        self._renewals.judge(self._placement.usable)
        self._leasing.feed()
        # A process holds failures until it is known to be whole. Where it got no more work, they
        # went with it, and the job was Completed without their rows.
        if self._settling.release_idle():
            self._renewals.judge(self._placement.usable)
            self._leasing.feed()
        self._leasing.withdraw()
        self._leasing.recall()
        if not state.leases and not state.over:
            state.backlog.look_ahead()
            if state.backlog.empty:
                # What an earlier run has committed counts, which may have been drawn just now.
                self._settling.release_waiting()
                self._settling.give_up_waiting(is_last=True)
                self._leasing.feed()
        if state.backlog.empty and not state.leases and not state.over:
            # Of whatever error of ours: better a job that fails than one without these rows.
            state.abort_if(state.tally.lost())
            state.abort_if(state.budgets.judge_percent(state.tally.planned))
            state.finish()
        state.interrupt_if_due()
