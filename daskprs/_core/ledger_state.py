"""The state of a job, which the ledger's policies share: slots, leases, waiting work, counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.accounts import Budgets, ErrorLog, Tally
from daskprs._core.actions import (
    Abort,
    Action,
    EndSet,
    Finish,
    Interrupt,
    Remark,
    SlotId,
    SlotResources,
)
from daskprs._core.backlog import Backlog
from daskprs._core.lease_sizes import LARGEST, LeaseSizes, fitting
from daskprs._core.limits import NEVER_S
from daskprs._core.retry_delay import retry_delay_s, throttle_delay_s
from daskprs._core.soundness import Soundness
from daskprs._core.spending import Spending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daskprs._core.entry import Entry
    from daskprs._core.lease import AgentAssignment
    from daskprs._core.limits import Limits
    from daskprs._core.outcomes import Failure, Outcome
    from daskprs._core.stages import Stages


COMES_BACK_S = 3.0
"""Seconds in which results come back of calls that have ended."""


class StartupError(NamedTuple):
    """The identity of an exception: two failures of `init` are the same if theirs are equal."""

    kind: str
    message: str
    line: tuple[str, str] | None
    """File and line number of the raising line, where the traceback has one."""


@dataclass(slots=True)
class AgentRecord:
    """The agent of a slot, from the first lease that carried its assignment."""

    assignment: AgentAssignment
    devices: tuple[str, ...]
    """The devices assigned to the agent; they are free once it has ended."""
    started: bool = False
    """Until the agent has started, all leases of its slot carry the same assignment."""
    leases: int = 0
    """Number of leases that carried this assignment."""
    epoch: int | None = None
    """The epoch of `Renewals` in which this agent renewed another one; None if it did not."""
    attempts: int = 0
    """Number of attempts that have ended in the process."""
    calls: int = 0
    """Number of these that say something about the process (`Outcome.is_neutral`)."""
    soundness: Soundness = field(default_factory=Soundness)
    was_sound: bool = False
    """Whether the process was ended for calls that took too long, and was sound before them."""
    first_failed: tuple[int, Failure | None] = (0, None)
    """The mini-batch that failed first in this row, and its error."""
    others_failed: int = 0
    """Number of failures in this row that were of other mini-batches than the first."""
    held: list[tuple[Entry, Outcome, int]] = field(default_factory=list)
    """The failures that the process may have caused, in order, with their numbers there."""
    is_worn: bool = False
    """Whether the process is renewed before it gets more work."""
    is_done: bool = False
    """Whether the process has done enough, so that the next work gets a new one."""
    short_of_memory: int = 0
    """Number of attempts since the last success that ran out of memory and are made in halves."""


@dataclass(slots=True)
class SlotRecord:
    """A slot, its lease, its agent, and how its agents started."""

    id: SlotId
    resources: SlotResources
    lease_id: int | None = None
    """Id of the slot's lease; None for a free slot."""
    agent: AgentRecord | None = None
    rests_until_s: float = 0.0
    """Time on the ledger's clock before which the slot gets no lease."""
    rest_s: float = 0.0
    """Seconds of the latest rest; 0 once an agent has worked after it."""
    ends_s: float | None = None
    """The end of the slot's worker on the ledger's clock, if it has one."""
    had_work: bool = False
    """Whether the slot was given work that was not withdrawn."""
    is_known: bool = False
    """Whether a start of an agent has succeeded or failed here."""
    is_up: bool = False
    """Whether the agent is up: `init` has returned, and the agent has not ended."""
    is_stuck: bool = False
    """Whether `init` of the latest agent took longer than its timeout."""
    failures_before: int = 0
    """Number of failed starts in the job when the slot got its latest lease."""
    failures_in_a_row: int = 0
    """Number of failed starts in the slot since the last success there."""
    latest_error: StartupError | None = None
    """The error of the latest start; None where it succeeded or is not known."""

    @property
    def process(self) -> str:
        """The process name of the agent; empty for a slot without an agent."""
        return "" if self.agent is None else self.agent.assignment.process


@dataclass(slots=True)
class InFlightLease:
    """A lease that has not returned."""

    slot: SlotRecord
    entries: dict[int, Entry]
    """Entries that have not returned, by mini-batch index."""
    agent: AgentRecord
    """The agent that works on the lease; the slot may have been given another one since."""
    continues: bool = False
    """Whether the agent of the slot has some of these mini-batches already."""

    @property
    def of_suspects(self) -> bool:
        """Whether the lease carries suspects."""
        return any(entry.lease_at_most is not None for entry in self.entries.values())

    @property
    def of_lost_worker(self) -> bool:
        """Whether the entries were on a lost worker: either all of them were, or none."""
        return any(entry.of_lost_worker for entry in islice(self.entries.values(), 1))

    def take(self, index: int, attempt: int) -> Entry | None:
        """Remove and return an entry; None for a late result of an earlier attempt."""
        entry = self.entries.get(index)
        if entry is None or entry.attempt != attempt:
            return None
        return self.entries.pop(index)

    def keep(self, indexes: Iterable[int]) -> dict[int, Entry]:
        """Remove and return the entries of these indexes, where they exist."""
        return {index: self.entries.pop(index) for index in indexes if index in self.entries}


@dataclass(slots=True, eq=False)
class LedgerState:
    """All that the ledger knows; its policies read it and change it."""

    limits: Limits
    expected: int | None = None
    """Number of mini-batches of the plan, where that is known beforehand."""
    seed: str = ""
    """Decides how much delays of retries differ."""
    stages: Stages | None = None
    """The functions beside `run`; None: there are none."""
    now_s: float = 0.0
    """Time of the current event on the ledger's clock."""
    elapsed_s: float = 0.0
    """Seconds since the first event."""
    slots: dict[SlotId, SlotRecord] = field(default_factory=dict)
    node_slots: Counter[int] = field(default_factory=Counter)
    leases: dict[int, InFlightLease] = field(default_factory=dict)
    """The leases in flight, by id."""
    backlog: Backlog = field(default_factory=Backlog)
    sizes: LeaseSizes = field(default_factory=LeaseSizes)
    tally: Tally = field(default_factory=Tally)
    budgets: Budgets = field(init=False)
    errors: ErrorLog = field(default_factory=ErrorLog)
    actions: list[Action] = field(default_factory=list)
    """Actions that follow from the current event, in order."""
    over: bool = False
    """Whether the job has ended; no further action follows then."""
    at_most: int | None = field(init=False)
    """Largest number of items of a call of `run`; None: those of a mini-batch."""
    end: EndSet = field(default=EndSet(None))
    spending: Spending = field(default_factory=Spending)
    throttled: int = 0
    """Number of attempts that an endpoint has refused."""
    is_throttled: bool = False
    """Whether it has refused one since anything was settled."""
    waits: bool = False
    """Whether calls wait for permits, and none is under way."""
    _ends_when_idle: bool = False
    """Whether the end of the job comes as soon as no call is under way."""
    _idle_since_s: float | None = None
    """Since when none is; None: some may be."""

    def __post_init__(self) -> None:
        self.budgets = Budgets(self.limits)
        self.at_most = self.limits.at_most

    def add_slot(self, slot: SlotId, resources: SlotResources, ends_s: float | None = None) -> None:
        """Add a slot; one that is there has other resources for its next agents."""
        if slot in self.slots:
            self.slots[slot].resources = resources
        else:
            self.slots[slot] = SlotRecord(slot, resources, ends_s=ends_s)
            self.node_slots[slot.node] += 1

    def remove_slot(self, slot: SlotId) -> SlotRecord:
        """Remove and return a slot; a node without slots is forgotten."""
        self.node_slots[slot.node] -= 1
        if self.node_slots[slot.node] == 0:
            del self.node_slots[slot.node]
        return self.slots.pop(slot)

    def agents(self) -> Iterator[AgentRecord]:
        """Yield the agents that may hold failures: those that work, and those of free slots."""
        yield from (flight.agent for flight in self.leases.values())
        idle = (slot.agent for slot in self.slots.values() if slot.lease_id is None)
        yield from (agent for agent in idle if agent is not None)

    def room(self, slot: SlotRecord) -> int | None:
        """Return how many mini-batches a slot can still do before its end; None without an end.

        A slot that has had no work yet may try one, however soon its worker ends: what was measured
        elsewhere may never fit into the life of a worker.
        """
        limits = self.limits.usage_limits
        if self.end.at_s is None and slot.ends_s is None and not limits:
            return None
        of_job, of_slot = self._fitting(self.end.at_s), self._fitting(slot.ends_s)
        of_job = min(of_job, self.affordable()) if limits else of_job
        return min(of_job, of_slot if slot.had_work else max(1, of_slot))

    def affordable(self, in_flight: int | None = None) -> int:
        """Return how many more mini-batches the limits of what is used have room for.

        `in_flight` of them are under way; None: all that are leased.
        """
        if in_flight is None:
            in_flight = sum(len(flight.entries) for flight in self.leases.values())
        return self.spending.room(self.limits.usage_limits, in_flight, self.limits.calls)

    def _fitting(self, end_s: float | None) -> int:
        """Return how many mini-batches fit before an end, one after the other."""
        if end_s is None:
            return LARGEST
        # What is done by then must also have been returned.
        left_s = end_s - self.now_s - self.sizes.return_after_s(len(self.slots))
        return min(LARGEST, fitting(left_s, self.sizes.mini_batch_s, self.limits.calls))

    def end_lease(self, lease_id: int) -> InFlightLease | None:
        """Remove and return a lease in flight, and free its slot; None for an unknown lease."""
        flight = self.leases.pop(lease_id, None)
        if flight is not None:
            flight.slot.lease_id = None
        return flight

    def delay_s(self, entry: Entry) -> float:
        """Return the seconds that the next attempt at a mini-batch that has failed waits."""
        return retry_delay_s(self.limits, self.seed, entry.mini_batch.index, entry.tries)

    def delay_throttled(self, entry: Entry, wait_s: float | None) -> None:
        """Let a mini-batch wait that an endpoint has refused."""
        index, count = entry.mini_batch.index, entry.throttled
        self.delay(entry, throttle_delay_s(self.seed, index, count, wait_s))

    def delay(self, entry: Entry, delay_s: float) -> None:
        """Let the next attempt at a mini-batch wait."""
        self.backlog.delay(entry, self.now_s + delay_s)
        index, attempt = entry.mini_batch.index, entry.attempt
        told = f"mini-batch {index}, attempt {attempt}, begins in {delay_s:.1f} s or later"
        self.remark("debug", f"{told}: its retry is delayed.")

    def remark(self, level: str, message: str) -> None:
        """Log a message; when the job has ended, just before its end."""
        self.actions.insert(len(self.actions) - self.over, Remark(level, message))

    def abort(self, why: str, failure: Failure | None) -> None:
        """End the job as failed, unless it has ended."""
        self._end(Abort(why, failure))

    def abort_if(self, why: str | None) -> None:
        """End the job as failed with the present headline, if there is a reason."""
        if why is not None:
            self.abort(why, self.errors.headline)

    def finish(self) -> None:
        """End the job as done, unless it has ended."""
        self.tell_uncounted(at_the_end=True)
        self._end(Finish())

    def interrupt(self, why: str) -> None:
        """Cut the job short, unless it has ended."""
        self._end(Interrupt(why))

    def interrupt_soon(self, why: str) -> None:
        """Cut the job short once the calls under way have come back, which were paid for.

        It waits for them as long as for an orderly end of their processes.
        """
        most_s = self.limits.shutdown_timeout_s
        # In the process of the caller, the only call has come back.
        at_s = self.now_s + (COMES_BACK_S if most_s >= NEVER_S else max(COMES_BACK_S, most_s))
        if self.end.at_s is None or at_s < self.end.at_s:
            self.end = EndSet(at_s, why)
            self._ends_when_idle, self._idle_since_s = True, None

    def tell_uncounted(self, *, at_the_end: bool = False) -> None:
        """Warn, once, of limits of what the script does not count."""
        limits = self.limits.usage_limits
        if limits and (told := self.spending.complaint(limits, at_the_end=at_the_end)):
            self.remark("warning", told)

    def tick(self, *, waits: bool) -> None:
        """Note whether calls wait for permits, and none is under way."""
        self.waits = waits
        if self.leases and not waits:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = self.now_s

    def interrupt_if_due(self) -> None:
        """Cut the job short if its end has come, or if nothing more fits before it."""
        limits = self.limits.usage_limits
        if limits and not self.leases and not self.affordable():
            higher = self.spending.higher(limits)
            self._end(Interrupt(self.spending.why_none(limits), (("usage_limits", higher),)))
        end_s = self.end.at_s
        if end_s is None or self.over:
            return
        idle_since_s = self._idle_since_s if self._ends_when_idle else None
        is_idle = idle_since_s is not None and self.now_s - idle_since_s >= COMES_BACK_S
        if is_idle or self.now_s >= end_s or not (self.leases or self._fitting(end_s)):
            self._end(Interrupt(self.end.why, self.end.again))

    def _end(self, action: Action) -> None:
        if not self.over:
            self.over = True
            self.actions.append(action)
