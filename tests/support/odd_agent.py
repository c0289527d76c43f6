"""An agent that does to its mini-batches whatever chance says, as a slot sees it."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.messages import ExtendLease, Outcomes, RunLease
from daskprs._agent.protocol.shared_page import NOTHING, Activity, Phase
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentExited
from daskprs._core.outcomes import Failure, Outcome, Results, Status

if TYPE_CHECKING:
    from random import Random

    from daskprs._agent.supervision.slot import Slot
    from daskprs._core.lease import Lease
    from daskprs._core.mini_batch import Assigned

WHY = Failure("PROCESS_DIED", "it is gone")


def outcome_by_chance(draw: Random, index: int) -> Outcome:
    """Return the outcome of a stage."""
    status = Status.RUN_DONE if draw.random() < 0.8 else Status.RUN_EXCEPTION
    empty = status is Status.RUN_DONE and draw.random() < 0.1
    return Outcome(index, 1, status, 5, 5, 0.0, 0.0, 0.0, 0.0, empty=empty)


class OddAgent:
    """An agent that makes one mini-batch after the other, until it dies, hangs or halts."""

    function, pid, gone, also_wakes = "run", 1, False, ()

    def __init__(self, draw: Random) -> None:
        self.spec = SimpleNamespace(name="process000", far=True, working_dir="/none/of", spool=None)
        self.process = SimpleNamespace(orphaned=draw.random() < 0.2)
        self.usage = SimpleNamespace(samples=())
        self.page = SimpleNamespace(
            look=self._look,
            counted=lambda: (),
            printed=lambda: (0, 0),
            claimed=self._claimed,
            recall=self._recall,
        )
        self.order, self.done = 0, 0
        self.work: deque[Assigned] = deque()
        self._draw, self._is_late = draw, False

    def _look(self) -> Activity:
        phase = self._draw.choice([Phase.LOADING, Phase.RUNNING]) if self.work else Phase.IDLE
        ahead = self.done + 1 if len(self.work) > 1 and self._draw.random() < 0.5 else NOTHING
        return Activity(phase, self.done, 1, self.order, ahead, self.done, 4)

    def _claimed(self, order: int) -> int:
        """Return the last position that is begun."""
        del order
        return self.done if self.work else self.done - 1

    def _recall(self, order: int) -> int:
        """Give back what is not begun."""
        self.work = deque([*self.work][:1])
        return self._claimed(order)

    def send(self, message: Any) -> None:
        """Take work."""
        if isinstance(message, RunLease):
            self.order, self.done, self.work = message.lease_id, 0, deque()
        if isinstance(message, (RunLease, ExtendLease)):
            self.work += message.work

    def receive(self, within_s: float) -> list[Any]:
        """Work for a moment."""
        del within_s
        fate = self._draw.random()
        if fate < 0.02:
            self.gone = True
        elif fate < 0.04 and self.work:
            self._is_late = True
        elif self.work and fate < 0.7:
            return self.drain(is_last=fate < 0.06)
        return []

    def drain(self, *, is_last: bool = False) -> list[Any]:
        """Return the outcomes of some mini-batches."""
        if not self.work or self._draw.random() < 0.2:
            return []
        many = self._draw.randint(1, len(self.work))
        outcomes = [
            outcome_by_chance(self._draw, self.work.popleft().mini_batch.index) for _ in range(many)
        ]
        self.done += many
        if is_last:
            self.work.clear()
        results = Results(ColumnBatch(outcomes))
        return [Outcomes(self.order, results, "its device is lost" if is_last else None)]

    def overdue(self) -> Activity | None:
        """Return what takes too long."""
        return self._look() if self._is_late else None

    def alive(self) -> bool:
        """Say whether it is there."""
        return not self.gone

    def end(self, **_: Any) -> int:
        """Die."""
        self.gone = True
        return -9

    def stop(self) -> AgentExited:
        """Stop."""
        return AgentExited("process000", 0, "stopped", expected=True)

    def __getattr__(self, name: str) -> Any:
        """Return what else a supervisor knows of its agent."""
        known = {"death": WHY, "timeout": WHY, "too_big": None, "excuse": None, "printed": None}
        known |= {"late_beside": [], "close": None}
        return lambda *_: (known | {"peak_bytes": 0})[name]


def places_of(slot: Slot, lease: Lease, of_run: set[int]) -> list[int]:
    """Run a lease, and return each mini-batch as often as it is in one of the places."""
    back = slot.run(lease)
    suspects = [] if back.death is None else [one.index for one in back.death.suspects]
    ended = [one.index for made in back.results for one in made.outcomes]
    of_run.clear()
    of_run.update(back.running)
    alone = () if back.death is None else back.death.alone
    assert {*alone} <= {*back.untouched}
    return sorted([*ended, *suspects, *back.running, *back.untouched])
