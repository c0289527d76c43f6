"""A driver's desk without a cluster: what a ledger says is kept, what it hears is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daskprs._core import lease_sizes
from daskprs._core.actions import (
    Abort,
    Action,
    Commit,
    FailAttempt,
    Finish,
    LeaseFailed,
    SlotAdded,
    SlotId,
    SlotsLost,
    Submit,
    Ticked,
)
from daskprs._core.lease import AgentExited, AgentReady, Death, InitFailed, Lease
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from tests.support.returns import returned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._core.actions import LedgerEvent
    from daskprs._core.lease import AgentEvent

BOOM = Failure("ValueError", "boom", "Traceback …")


TURN_S = 30.0
LONG_S = 1e5


class Desk:
    """A ledger with its slots, the leases that are out, and all that it ever ordered."""

    def __init__(
        self,
        plan: int | Iterator[MiniBatch | None] = 10,
        *,
        slots: int = 1,
        recovered: Callable[[MiniBatch], Any] = lambda _: None,
        seed: str = "",
        ahead: bool = False,
        **limits: Any,
    ) -> None:
        expected = plan if isinstance(plan, int) else None
        mini_batches = map(mini_batch, range(plan)) if isinstance(plan, int) else plan
        limits = {"allowed_failed_count": -1} | limits
        if "progress_update_timeout_s" in limits:
            stall_s = limits["progress_update_timeout_s"]
            limits = {"first_progress_timeout_s": stall_s} | limits
        self.ledger = Ledger(
            mini_batches,
            Limits(**limits),
            recovered=recovered,
            expected=expected,
            seed=seed,
            ahead=ahead,
        )
        self.now_s = 0.0
        self.said: list[Action] = []
        self.leases: dict[SlotId, Lease] = {}
        self.processes: dict[SlotId, str] = {}
        """The latest process of each slot."""
        for number in range(slots):
            self.add(number)

    # ---- what happens ----

    def tell(self, event: LedgerEvent, after_s: float = 0.0) -> list[Action]:
        """Let something happen, and return what the ledger says to it."""
        self.now_s += after_s
        said = self.ledger.handle(event, self.now_s)
        self.said += said
        for action in said:
            if isinstance(action, Submit):
                self.leases[action.slot] = action.lease
                if action.lease.assignment is not None:
                    self.processes[action.slot] = action.lease.assignment.process
        return said

    def add(self, number: int = 0, node: int = 0) -> SlotId:
        """Let a slot come."""
        slot = SlotId(f"tcp://host{node}", number, node)
        self.tell(SlotAdded(slot))
        return slot

    def lose(self, *slots: SlotId) -> list[Action]:
        """Let slots go at once."""
        for slot in slots:
            self.leases.pop(slot, None)
        return self.tell(SlotsLost(slots))

    def tick(self, after_s: float) -> list[Action]:
        """Let time go by, up to some hours as a driver lives through it, more as one jump."""
        said: list[Action] = []
        while TURN_S < after_s < LONG_S:
            said += self.tell(Ticked(), TURN_S)
            after_s -= TURN_S
        return said + self.tell(Ticked(), after_s)

    def give(self, slot: SlotId, *outcomes: Outcome, **rest: Any) -> list[Action]:
        """Let the lease of a slot return with this."""
        lease = self.leases.pop(slot)
        return self.tell(returned(lease.id, outcomes, **rest))

    def do(
        self,
        slot: SlotId,
        seconds_each: float = 1.0,
        events: tuple[AgentEvent, ...] = (),
        **change: Any,
    ) -> list[Action]:
        """Let all in the lease of a slot come to the same end; leases of a second stay single."""
        outcomes = [
            outcome(one.mini_batch.index, one.attempt, elapsed_s=seconds_each, **change)
            for one in self.leases[slot].work
        ]
        return self.give(slot, *outcomes, agent_events=events)

    def fail(self, slot: SlotId, *, ends: bool = True, **change: Any) -> list[Action]:
        """Let everything in the lease of a slot raise, and its process end, so that it pays."""
        failed = {"status": Status.RUN_EXCEPTION, "failure": BOOM, "succeeded": 0} | change
        exited = AgentExited(self.processes[slot], 0, "ended", expected=True)
        return self.do(slot, events=(exited,) if ends else (), **failed)

    def die(self, slot: SlotId, *positions: int, alone: tuple[int, ...] = ()) -> list[Action]:
        """Let the agent die, these positions of its lease being suspects."""
        work = self.leases[slot].work
        suspects = [
            outcome(
                work[position].mini_batch.index,
                work[position].attempt,
                status=Status.PROCESS_DIED,
                failure=BOOM,
            )
            for position in positions
        ]
        return self.give(slot, death=Death(tuple(suspects), alone))

    def fail_init(
        self, slot: SlotId, elapsed_s: float = 0.1, failure: Failure = BOOM
    ) -> list[Action]:
        """Let the agent of a slot not come up."""
        untouched = tuple(self.indexes(slot))
        failed = InitFailed("process000", failure, elapsed_s)
        return self.give(slot, untouched=untouched, agent_events=(failed,))

    def come_up(self, slot: SlotId) -> list[Action]:
        """Let the agent of a slot come up, and go on with its lease."""
        ready = AgentReady("process000", 0.1)
        return self.give(slot, running=tuple(self.indexes(slot)), agent_events=(ready,))

    def refuse(self, slot: SlotId) -> list[Action]:
        """Let the task of the lease of a slot raise."""
        return self.tell(LeaseFailed(self.leases.pop(slot).id, BOOM))

    def do_all(self) -> None:
        """Let everything succeed from now on."""
        while self.leases:
            self.do(next(iter(self.leases)), seconds_each=0.01)

    # ---- what was said ----

    def indexes(self, slot: SlotId) -> list[int]:
        """Return what a slot is working on."""
        return [one.mini_batch.index for one in self.leases[slot].work]

    @property
    def committed(self) -> list[int]:
        """Indexes in the order of their commits."""
        commits = [one for one in self.said if isinstance(one, Commit)]
        return [mini_batch.index for commit in commits for mini_batch in commit.mini_batches]

    @property
    def failures(self) -> list[FailAttempt]:
        """Failed attempts, in order."""
        return [one for one in self.said if isinstance(one, FailAttempt)]

    @property
    def given_up(self) -> list[int]:
        """Indexes in the order in which they were given up."""
        return [one.mini_batch.index for one in self.failures if one.final]

    @property
    def abort(self) -> Abort | None:
        """The abort, if it came to that."""
        return next((one for one in self.said if isinstance(one, Abort)), None)

    @property
    def finished(self) -> bool:
        """Whether the ledger said that everything is settled."""
        return Finish() in self.said


def mini_batch(index: int, items: int | None = 1, worker: str = "") -> MiniBatch:
    """Return a mini-batch."""
    return MiniBatch(index, None, f"id-{index}", items, worker=worker)


def outcome(index: int, attempt: int = 1, **change: Any) -> Outcome:
    """Return an outcome: a success in one item unless said otherwise."""
    done = Outcome(index, attempt, Status.RUN_DONE, 1, 1, 0.0, 0.1, 0.1, 0.1)
    return done._replace(**change)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> type[Desk]:
    """Make desks at which leases of a second stay single: easy to follow."""
    monkeypatch.setattr(lease_sizes, "AT_LEAST", 1)
    monkeypatch.setattr(lease_sizes, "IN_HAND_S", 1.0)
    return Desk


@pytest.fixture
def an_outcome() -> Callable[..., Outcome]:
    """Make outcomes."""
    return outcome


@pytest.fixture
def a_mini_batch() -> Callable[..., MiniBatch]:
    """Make mini-batches."""
    return mini_batch
