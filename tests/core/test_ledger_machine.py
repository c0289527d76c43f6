"""Whatever the order of events: each mini-batch ends once, and budgets stop at the exact count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from daskprs._core.actions import (
    Abort,
    Commit,
    FailAttempt,
    Finish,
    LeaseFailed,
    LeaseKept,
    LeaseWithdrawn,
    Remark,
    SlotAdded,
    SlotId,
    SlotResources,
    SlotsLost,
    Submit,
    ThreadsCounted,
    Ticked,
    Withdraw,
)
from daskprs._core.lease import (
    AgentAssignment,
    AgentExited,
    AgentStarted,
    Death,
    InitFailed,
    LeaseReturned,
)
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._core.pieces import Recovered
from daskprs._core.placement import ELSEWHERE_S
from tests.support.returns import returned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DONE, RAISED, BROKEN = "done", "raised", "broken"
POISON = "poison"
"""A failure after which everything else fails in the same process."""
FATAL = "fatal"
"""A fatal error of a device, which ends the process; in a first call its mini-batch caused it."""
DEVICES = {0: (), 1: ("0",), 2: ("GPU-a", "GPU-b")}
"""Of the nodes."""
NOT_LOADED = "not loaded"
"""A failure that says nothing about the process."""
ENDS = st.sampled_from([DONE, DONE, DONE, RAISED, RAISED, BROKEN, POISON, FATAL, NOT_LOADED])


WORKERS = [*(f"tcp://host{node}" for node in range(3)), "tcp://good", "tcp://never-there"]
ANSWERS = st.sampled_from(["withdrawn", "withdrawn", "returned", "kept"])
"""Of workers that were asked to give a lease back."""


class LedgerMachine(RuleBasedStateMachine):
    """A cluster that does anything at all, and a clerk who checks every order of the ledger."""

    @initialize(
        count=st.integers(0, 6) | st.integers(20, 60),
        known=st.booleans(),
        flaky=st.booleans(),
        homes=st.just([""]) | st.lists(st.sampled_from(["", *WORKERS]), min_size=1, max_size=4),
        known_yet=st.just(100) | st.integers(0, 10),
        done_before=st.sets(st.integers(0, 40), max_size=8),
        run_max_try=st.integers(1, 3),
        retry_delay_s=st.sampled_from([0.0, 0.0, 20.0, None]),
        max_node_losses=st.integers(1, 3),
        error_threshold=st.just(-1) | st.integers(0, 12),
        allowed_failed_count=st.just(-1) | st.integers(0, 3),
        allowed_failed_percent=st.sampled_from([0.0, 10.0, 25.0, 50.0, 100.0, 100.0]),
    )
    def begin(
        self,
        count: int,
        homes: list[str],
        known_yet: int,
        done_before: set[int],
        *,
        known: bool,
        flaky: bool,
        **limits: Any,
    ) -> None:
        """Start a job."""
        self.flaky = flaky
        self.count = count
        self.homes = homes
        self.known_yet = known_yet
        self.calm = not flaky
        self.limits = Limits(**limits, progress_update_timeout_s=1e6)
        self.done_before = {index for index in done_before if index < count}
        self.ledger = Ledger(
            self.plan(),
            self.limits,
            recovered=lambda one: OLD if one.index in self.done_before else None,
            expected=count if known else None,
        )
        self.now_s = 0.0
        self.due_s: dict[int, float] = {}
        """Time before which no retry of a mini-batch begins."""
        self.slots: dict[SlotId, int | None] = {}
        self.flights: dict[int, dict[int, int]] = {}
        self.may_have_more = True
        self.seen: list[LeaseReturned] = []
        self.settled: dict[int, str] = {}
        self.charged: dict[int, int] = {}
        self.losses: dict[int, int] = {}
        self.posts: dict[SlotId, AgentAssignment] = {}
        self.processes: dict[SlotId, tuple[str, int]] = {}
        """Name of the process that works in a slot, and how many attempts ended in it."""
        self.poisoned: dict[SlotId, str] = {}
        """Process of each slot that something has broken."""
        self.faults: Counter[int] = Counter()
        """How often a mini-batch failed that was to blame for it, or may have been."""
        self.fatal = 0
        self.fails_everywhere = False
        """Whether five processes were renewed in vain since the last success."""
        self.excused: Counter[int] = Counter()
        """How often a mini-batch was charged then."""
        self.busy_workers: frozenset[str] = frozenset()
        self.waiting: frozenset[int] = frozenset()
        self.continuing: set[int] = set()
        self.asked: set[int] = set()
        self.attempts: dict[int, int] = {}
        self.leased: Counter[int] = Counter()
        """How often mini-batches went to a worker that did not give their lease back."""
        self.items_failed = 0
        self.mini_batches_failed = 0
        self.end: Abort | Finish | None = None

    def plan(self) -> Iterator[MiniBatch | None]:
        """Yield what is known by now, and None while there is no more."""
        for index in range(self.count):
            while index >= self.known_yet:
                yield None
            yield MiniBatch(index, None, str(index), 2, worker=self.homes[index % len(self.homes)])

    # ---- the clerk ----

    def tell(self, event: Any) -> None:
        """Let something happen, and check every action that follows."""
        said = self.ledger.handle(event, self.now_s)
        assert self.end is None or said == []
        for action in said:
            assert self.end is None, "nothing comes after the end"
            self.act(action)

    def act(self, action: Any) -> None:
        """Check an action against the books, and enter it."""
        match action:
            case Submit(lease, slot):
                self.submitted(lease, slot)
            case Withdraw(lease_id):
                self.asked_back(lease_id)
            case Commit(mini_batches):
                assert mini_batches
                for mini_batch, outcome in zip(mini_batches, action.made.outcomes, strict=True):
                    assert outcome.status is Status.RUN_DONE
                    assert outcome.index == mini_batch.index
                    self.settle(mini_batch.index, "committed")
                    self.fails_everywhere = False
                    self.items_failed += outcome.failed
            case FailAttempt():
                self.attempt_failed(action)
            case Remark(_, message):
                self.fails_everywhere |= "Failures count as tries again" in message
            case Abort() | Finish():
                self.end = action

    def submitted(self, lease: Any, slot: SlotId) -> None:
        """Check that a lease goes to a free slot, and carries what nobody else works on."""
        assert self.slots[slot] is None
        self.slots[slot] = lease.id
        if lease.assignment is not None:
            self.posts[slot] = lease.assignment
            shown = lease.assignment.environment.get("CUDA_VISIBLE_DEVICES", "-1")
            assert (shown == "-1") is (lease.gpus == 0.0)
        kept = {} if lease.continues is None else self.still_running
        if kept:
            self.continuing.add(lease.id)
        assert lease.work or kept
        assert self.may_have_more or not kept or not lease.work
        out = {index for flight in self.flights.values() for index in flight}
        for mini_batch, attempt, *_ in lease.work:
            assert mini_batch.index not in out
            assert mini_batch.index not in self.settled
            assert self.due_s.get(mini_batch.index, 0.0) <= self.now_s
            assert attempt >= self.attempts.get(mini_batch.index, 1)
            self.attempts[mini_batch.index] = attempt
        new = {one.mini_batch.index: one.attempt for one in lease.work}
        self.leased.update(new.keys())
        self.flights[lease.id] = kept | new
        suspects = {index for index in self.flights[lease.id] if self.losses.get(index)}
        assert not suspects or len(self.flights[lease.id]) == 1
        assert not (suspects and lease.prefetch)
        beside = {
            index
            for other, flight in self.slots.items()
            if flight is not None and other != slot and other.worker == slot.worker
            for index in self.flights[flight]
        }
        lost_one = {index for index, losses in self.losses.items() if losses}
        assert not (suspects & lost_one and beside & lost_one), "two that may kill a worker"

    def asked_back(self, lease_id: int) -> None:
        """Check that a lease comes back only if it waits, and another worker would begin it."""
        assert lease_id in self.waiting
        assert lease_id in self.flights
        assert lease_id not in self.continuing
        assert lease_id not in self.asked
        self.asked.add(lease_id)
        (mine,) = (slot for slot, lease in self.slots.items() if lease == lease_id)
        free = [
            slot
            for slot, lease in self.slots.items()
            if lease is None and slot.worker not in self.busy_workers
        ]
        assert any(slot.worker != mine.worker for slot in free)
        assert len(self.asked & self.flights.keys()) <= len(free)

    def attempt_failed(self, action: FailAttempt) -> None:
        """Check who pays for a failed attempt."""
        index = action.mini_batch.index
        self.calm = False
        self.charged[index] = self.charged.get(index, 0) + action.charged
        self.excused[index] += action.charged and self.fails_everywhere
        if action.outcome.status is Status.NODE_LOST:
            assert not action.charged
            self.losses[index] = self.losses.get(index, 0) + 1
            assert action.final is (self.losses[index] >= self.limits.max_node_losses)
        assert self.charged[index] <= self.limits.run_max_try
        most = self.faults[index] + self.excused[index]
        assert self.charged[index] <= most, "it pays for what broke its process"
        if action.final:
            self.settle(index, "given up")
            self.items_failed += action.outcome.total
            self.mini_batches_failed += 1
        else:
            assert self.charged[index] < self.limits.run_max_try
            if action.charged:
                grown_s = 0.5 * 2 ** (self.charged[index] - 1)
                delay_s = self.limits.retry_delay_s
                self.due_s[index] = self.now_s + (grown_s if delay_s is None else delay_s)

    def settle(self, index: int, how: str) -> None:
        """Check that this is the first and only end of a mini-batch."""
        assert index not in self.settled
        assert index not in self.done_before
        assert 0 <= index < self.count
        self.settled[index] = how

    # ---- the cluster ----

    def busy(self) -> list[SlotId]:
        """Return the slots that work on a lease."""
        return [slot for slot, lease_id in self.slots.items() if lease_id is not None]

    @rule(number=st.integers(0, 1), node=st.integers(0, 2))
    def add_slot(self, number: int, node: int) -> None:
        """Let a worker come, or be announced again."""
        slot = SlotId(f"tcp://host{node}", number, node)
        self.slots.setdefault(slot, None)
        self.tell(SlotAdded(slot, SlotResources(DEVICES[node], 1)))

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), expected=st.booleans(), whole=st.booleans(), waits=st.booleans())
    def lose_slots(self, data: Any, *, expected: bool, whole: bool, waits: bool) -> None:
        """Let a worker go, with whatever it had or waited for; or one of its slots."""
        one = data.draw(st.sampled_from(sorted(self.slots)))
        gone = [slot for slot in self.slots if slot == one or (whole and slot.worker == one.worker)]
        single, waited = 0, set[int]()
        for slot in gone:
            lease_id = self.slots.pop(slot)
            if lease_id is not None:
                lost = self.flights.pop(lease_id)
                if waits:
                    waited.add(lease_id)
                single += len(lost) == 1 and not waits
                # An answer that was on its way comes too late.
                outcomes = tuple(self.outcome(index, lost[index], DONE) for index in lost)
                self.seen.append(returned(lease_id, outcomes))
        losses, single = sum(self.losses.values()), 0 if expected or self.end else single
        self.tell(SlotsLost(tuple(gone), expected, frozenset(waited)))
        self.calm &= expected
        more = sum(self.losses.values()) - losses
        assert more <= single if self.end else more == single

    def take_back(self, data: Any) -> tuple[SlotId, int, dict[int, int]]:
        """Return a slot, its lease, and what that carries; the slot is free again."""
        slot = data.draw(st.sampled_from(sorted(self.busy())))
        lease_id = self.slots[slot]
        assert lease_id is not None
        self.slots[slot] = None
        return slot, lease_id, self.flights.pop(lease_id)

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), end=st.sampled_from([DONE, DONE, RAISED, BROKEN]))
    def return_alike(self, data: Any, end: str) -> None:
        """Let everything in a lease come to the same end."""
        slot, lease_id, flight = self.take_back(data)
        agent = self.agent(slot)
        outcomes = tuple(self.ended(slot, *one, end) for one in flight.items())
        self.seen.append(returned(lease_id, outcomes, **agent))
        self.tell(self.seen[-1])

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), stray=st.booleans(), at_hand=st.integers(0, 2))
    def return_some(self, data: Any, at_hand: int, *, stray: bool) -> None:
        """Let a lease come back with some of it done, some failed, some running, the rest not."""
        slot, lease_id, flight = self.take_back(data)
        agent = self.agent(slot)
        finished = data.draw(st.integers(0, len(flight)))
        outcomes = list[Outcome]()
        for one in [*flight.items()][:finished]:
            outcomes.append(self.ended(slot, *one, data.draw(ENDS)))
            if is_fatal(outcomes[-1]):
                exited = AgentExited(agent["process"], -9, "fatal", expected=False)
                agent["agent_events"] += (exited,)
                at_hand = 0
                break
        rest = [*flight][len(outcomes) :]
        if stray and rest:  # an answer of an attempt that was never made
            outcomes.append(self.outcome(rest[0], flight[rest[0]] + 1, DONE))
        self.still_running = {index: flight[index] for index in rest[:at_hand]}
        running, untouched = tuple(rest[:at_hand]), tuple(rest[at_hand:])
        self.may_have_more = not untouched
        recalled = bool(untouched)
        rest_of_it = {"running": running, "untouched": untouched, "recalled": recalled}
        self.seen.append(returned(lease_id, outcomes, **rest_of_it, **agent))
        self.tell(self.seen[-1])
        if running and self.end is None:
            assert self.still_running.items() <= self.flights[self.slots[slot]].items()

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), suspects=st.integers(0, 2))
    def return_dead(self, data: Any, suspects: int) -> None:
        """Let an agent die in the middle of a lease."""
        slot, lease_id, flight = self.take_back(data)
        agent = self.agent(slot)
        finished = data.draw(st.integers(0, len(flight)))
        attempts = [*flight.items()]
        outcomes = tuple(self.ended(slot, *one, DONE) for one in attempts[:finished])
        rest = attempts[finished:]
        blamed = tuple(self.outcome(*one, RAISED) for one in rest[:suspects])
        if len(blamed) == 1 and not self.is_poisoned(slot):
            self.faults[blamed[0].index] += 1
        untouched = tuple(index for index, _ in rest[suspects:])
        death = Death(blamed, untouched[:1])
        exited = AgentExited(agent["process"], -9, "killed", expected=False)
        agent["agent_events"] += (exited,)
        self.seen.append(returned(lease_id, outcomes, untouched=untouched, death=death, **agent))
        self.tell(self.seen[-1])

    @precondition(lambda self: self.flaky and self.busy())
    @rule(data=st.data(), elapsed_s=st.sampled_from([0.1, 1000.0]), may_pass=st.booleans())
    def fail_init(self, data: Any, elapsed_s: float, may_pass: bool) -> None:  # noqa: FBT001 - drawn
        """Let an agent not come up, and its lease come back untouched."""
        _, lease_id, flight = self.take_back(data)
        untouched = tuple(flight)
        failure = Failure("ImportError", "no such module", retryable=may_pass)
        failed = InitFailed("process000", failure, elapsed_s)
        self.tell(returned(lease_id, (), untouched=untouched, agent_events=(failed,)))

    @precondition(lambda self: self.flaky and self.busy())
    @rule(data=st.data())
    def fail_lease(self, data: Any) -> None:
        """Let the task of a lease raise."""
        _, lease_id, _ = self.take_back(data)
        self.tell(LeaseFailed(lease_id, Failure("AgentError", "no zygote")))

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def count_threads(self, data: Any) -> None:
        """Let workers report their threads, and the leases that wait for one."""
        workers = sorted({slot.worker for slot in self.slots})
        self.busy_workers = frozenset(data.draw(st.sets(st.sampled_from(workers))))
        could = self.leases_of(self.busy_workers)
        waiting = st.sets(st.sampled_from(could)) if could else st.just(set())
        self.waiting = frozenset(data.draw(waiting))
        self.tell(ThreadsCounted(self.busy_workers, self.waiting))

    def leases_of(self, workers: frozenset[str]) -> list[int]:
        """Return the leases that some workers have."""
        leases = (lease for slot, lease in self.slots.items() if slot.worker in workers)
        return [lease for lease in leases if lease is not None]

    @precondition(lambda self: self.busy() and self.end is None)
    @rule(data=st.data(), spare=st.integers(1, 12))
    def strand(self, data: Any, spare: int) -> None:
        """Let all leases of a worker wait for a thread, and a worker with idle ones come."""
        stranded = data.draw(st.sampled_from(sorted(self.busy())))
        for number in range(spare):
            slot = SlotId("tcp://spare", number, 0)
            self.slots.setdefault(slot, None)
            self.tell(SlotAdded(slot))
        self.busy_workers = frozenset({stranded.worker})
        self.waiting = frozenset(self.leases_of(self.busy_workers))
        self.tell(ThreadsCounted(self.busy_workers, self.waiting))
        if data.draw(st.booleans()) and self.asked & self.flights.keys():
            self.answer_one(data, data.draw(ANSWERS))

    @precondition(lambda self: self.asked & self.flights.keys())
    @rule(data=st.data(), how=ANSWERS)
    def answer(self, data: Any, how: str) -> None:
        """Let a worker give a lease back, or keep it because it has begun."""
        self.answer_one(data, how)

    def answer_one(self, data: Any, how: str) -> None:
        """Let a worker answer for one of the leases that it was asked for."""
        lease_id = data.draw(st.sampled_from(sorted(self.asked & self.flights.keys())))
        self.asked.discard(lease_id)
        self.waiting -= {lease_id}
        if how == "kept":
            self.tell(LeaseKept(lease_id))
            return
        (slot,) = (slot for slot, lease in self.slots.items() if lease == lease_id)
        flight = self.flights.pop(lease_id)
        self.slots[slot] = None
        # Were it to begin after all, its answer came too late.
        outcomes = tuple(self.outcome(*one, DONE) for one in flight.items())
        self.seen.append(returned(lease_id, outcomes))
        charged, losses = dict(self.charged), dict(self.losses)
        if how == "withdrawn":
            self.tell(LeaseWithdrawn(lease_id))
        else:
            self.tell(returned(lease_id, (), untouched=tuple(flight), withdrawn=True))
        assert (self.charged, self.losses) == (charged, losses)
        self.leased.subtract(flight.keys())
        is_retry = any(map(self.leased.get, flight))
        if is_retry and not self.runs_any_of(flight):  # it may wait for another node
            self.now_s += ELSEWHERE_S
            self.tell(Ticked())
        # Meanwhile new work may have taken its slot: it comes next once one is free.
        waits = is_retry and None not in self.slots.values()
        assert self.end or waits or self.runs_any_of(flight), "what was withdrawn comes next"

    def runs_any_of(self, indexes: Iterable[int]) -> bool:
        """Return whether a lease carries any of these mini-batches."""
        return any(index in flight for flight in self.flights.values() for index in indexes)

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        """Let an answer come a second time, or too late."""
        self.tell(data.draw(st.sampled_from(self.seen)))

    @rule(seconds=st.floats(0, 100))
    def tick(self, seconds: float) -> None:
        """Time goes by."""
        self.now_s += seconds
        self.tell(Ticked())

    @precondition(lambda self: self.known_yet < self.count)
    @rule(more=st.integers(1, 20))
    def learn(self, more: int) -> None:
        """Let more of the plan be known."""
        self.known_yet += more
        self.tell(Ticked())

    @precondition(lambda self: self.calm and self.slots)
    @rule()
    def wait(self) -> None:
        """Check that no slot is idle for long while there is work, wherever that lies."""
        for seconds in (0.0, 2.0, 0.5):
            self.now_s += seconds
            self.tell(Ticked())
        idle = [slot for slot, lease in self.slots.items() if lease is None]
        standing = self.ledger.standing()
        assert self.end or not idle or standing.waiting == 0
        drawn = standing.mini_batches.total + len(self.done_before)
        assert self.end or not idle or drawn >= min(self.known_yet, self.count)

    def ended(self, slot: SlotId, index: int, attempt: int, end: str) -> Outcome:
        """Return how an attempt ended in the process of a slot, and who is to blame for it."""
        name, attempts = self.processes[slot]
        self.processes[slot] = name, attempts + 1
        if end in (RAISED, POISON, BROKEN, NOT_LOADED):
            self.faults[index] += 1
        elif end == FATAL:
            self.fatal += 1
            self.faults[index] += attempts == 0
        elif self.is_poisoned(slot):
            end = RAISED
        if end == POISON:
            self.poisoned[slot] = name
        return self.outcome(index, attempt, end)

    def is_poisoned(self, slot: SlotId) -> bool:
        """Return whether something has broken the process of a slot."""
        return self.poisoned.get(slot) == self.processes[slot][0]

    def agent(self, slot: SlotId) -> dict[str, Any]:
        """Return what a lease tells of the agent of its slot, which works from now on."""
        assignment = self.posts.get(slot)
        if assignment is None:
            self.processes.setdefault(slot, ("process000", 0))
            return {"process": "process000", "agent_events": ()}
        if self.processes.get(slot, ("", 0))[0] != assignment.process:
            self.processes[slot] = assignment.process, 0
        return {
            "process": assignment.process,
            "agent_events": (AgentStarted(assignment.process, 1),),
        }

    def outcome(self, index: int, attempt: int, end: str) -> Outcome:
        """Return how an attempt ended; every seventh mini-batch loses an item on the way."""
        if end == DONE:
            succeeded = 2 - (index % 7 == 3)
            return Outcome(index, attempt, Status.RUN_DONE, 2, succeeded, 0.0, 0.01, 0.01, 0.01)
        failure = Failure("ValueError", "boom", retryable=end != BROKEN, fatal=end == FATAL)
        status = Status.LOAD_EXCEPTION if end == NOT_LOADED else Status.RUN_EXCEPTION
        return Outcome(index, attempt, status, 2, 0, 0.0, 0.01, 0.01, 0.01, failure=failure)

    # ---- what always holds ----

    @invariant()
    def the_counts_add_up(self) -> None:
        """Check that what the ledger tells is what it ordered."""
        standing = self.ledger.standing()
        committed = sum(how == "committed" for how in self.settled.values())
        assert standing.mini_batches.failed == self.mini_batches_failed
        assert standing.mini_batches.succeeded == committed + standing.recovered
        assert standing.items.failed == self.items_failed
        assert 0 <= standing.delayed <= standing.waiting
        assert (standing.retry_in_s is None) is (standing.delayed == 0)
        if self.end is None:
            assert standing.running == sum(map(len, self.flights.values()))
            begun = len(self.settled) + standing.recovered + standing.running + standing.waiting
            assert standing.mini_batches.total == begun

    @invariant()
    def renewals_are_paid_for(self) -> None:
        """Check that processes are renewed only for charged attempts and for fatal errors."""
        renewals = self.ledger.standing().renewals
        assert renewals <= sum(self.charged.values()) + 2 * self.fatal

    @invariant()
    def budgets_are_exact(self) -> None:
        """Check that a budget ends the job if, and only if, it is exceeded."""
        limits = self.limits
        over = {
            f"allowed_failed_count={limits.allowed_failed_count}": (
                -1 < limits.allowed_failed_count < self.mini_batches_failed
            ),
            f"error_threshold={limits.error_threshold}": (
                -1 < limits.error_threshold < self.items_failed
            ),
        }
        if self.end is None or isinstance(self.end, Finish):
            assert not any(over.values())
            return
        for name, exceeded in over.items():
            assert exceeded or name not in self.end.reason
        if limits.allowed_failed_count >= 0:
            assert self.mini_batches_failed <= limits.allowed_failed_count + 1

    @invariant()
    def the_end_is_the_end_of_everything(self) -> None:
        """Check that a job that finished has settled every mini-batch, within its percentage."""
        if isinstance(self.end, Finish):
            assert self.settled.keys() | self.done_before == set(range(self.count))
            share = 100 * self.mini_batches_failed
            assert share <= self.limits.allowed_failed_percent * self.count + 1e-9

    def teardown(self) -> None:
        """With a good worker at last, every job comes to its end."""
        if not hasattr(self, "ledger"):
            return
        good = SlotId("tcp://good", 0, 99)
        self.slots[good] = None
        self.known_yet = self.count
        self.tell(SlotAdded(good))
        for _ in range(9 * self.count + 200):
            if self.end is not None:
                break
            if not self.busy():
                self.now_s += 0.5
                self.tell(Ticked())
                continue
            slot = self.busy()[0]
            lease_id = self.slots[slot]
            assert lease_id is not None
            flight = self.flights.pop(lease_id)
            self.slots[slot] = None
            outcomes = tuple(self.outcome(index, flight[index], DONE) for index in flight)
            self.tell(returned(lease_id, outcomes))
        self.tell(Ticked())
        assert self.end is not None
        self.the_counts_add_up()
        self.budgets_are_exact()
        self.the_end_is_the_end_of_everything()


def is_fatal(outcome: Outcome) -> bool:
    """Return whether an outcome ends its process."""
    return outcome.failure is not None and outcome.failure.fatal


OLD = Recovered(total=2, succeeded=2)

TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    settings.default,
    max_examples=4 * settings.default.max_examples,  # 80, and 8,000 in the long form
    stateful_step_count=50,
)
