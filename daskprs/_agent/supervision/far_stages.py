"""`preprocess` on nodes that have no slots: what a slot asks of them, and what they answer.

A slot has a thread for each of its mini-batches that may be there at the same time, as it has one
for each stage process of its own. The other worker runs the mini-batch in a stage process, which it
supervises as any other. Its answer is the outcome, and the bytes for the process of `run`.

What goes wrong between the workers charges no mini-batch: it is preprocessed again, on the node of
the slot. So a mini-batch that ends workers ends one of the others at most.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.supervision.stage_worker import (
    KILL_AGAIN_S,
    StageEnded,
    StageFile,
    StagesNotReady,
    StageTask,
    StageWorker,
)
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import InitFailed
from daskprs._core.outcomes import Status
from daskprs._core.stages import PREPROCESS
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from daskprs._agent.supervision.slot import Slot
    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.lease import AgentAssignment, AgentEvent
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Failure, Results
    from daskprs._core.stages import StageHost

    Ask = Callable[[StageHost, Assigned], "Future[Preprocessed]"]

AGAIN_S = 5.0
"""Seconds after an error between the workers until the other one is asked again."""


class Preprocessed(NamedTuple):
    """The answer of a worker that was asked to preprocess a mini-batch."""

    results: Results | None
    """The outcome; None: no process has come up there."""
    value: Any = None
    """The bytes for the next stage; None: there are none, or the stage has failed."""
    failure: Failure | None = None
    """Why no process has come up."""


class FarStageWorker:
    """A place for one mini-batch at a stage process of another worker.

    `ask` asks that worker, the host, to preprocess a mini-batch.
    """

    def __init__(self, host: StageHost, ask: Ask) -> None:
        self.name = f"at-{host.worker}"
        self.is_over = False
        """Whether it takes no task any more."""
        self._host = host
        self._ask = ask
        self._lock = threading.Lock()
        self._answer: Future[Preprocessed] | None = None
        self._is_unsure = False
        """Whether something has gone wrong between the workers."""
        self._ended = threading.Event()

    @staticmethod
    def takes(task: StageTask) -> bool:
        """Say whether a task may leave this node: the staged partitions of Dask lie here."""
        is_here = getattr(task.assigned.mini_batch.piece, "partition", None) is not None
        return task.stage == PREPROCESS and not (task.stays or is_here)

    def run(self, task: StageTask) -> StageEnded | None:
        """Have a task run; return None if it has to run on this node.

        Raise `StagesNotReady` if no process comes up there.
        """
        try:
            with self._lock:
                if self.is_over:
                    return None
                self._answer = self._ask(self._host, task.assigned)
            made = self._answer.result()
        except Exception:  # noqa: BLE001 - whatever goes wrong between two workers
            self._is_unsure = True
            return None
        finally:
            self._answer = None
        self._is_unsure = False
        if made.results is None:
            assert made.failure is not None  # noqa: S101 - for the types
            raise StagesNotReady(made.failure, 0.0)
        outcome = made.results.outcomes[0]
        # The node may not see what this one sees.
        if outcome.status is Status.LOAD_EXCEPTION:
            return None
        if made.value is not None and task.target is not None:
            task.target.write(memoryview(made.value))
        return StageEnded(task, made.results)

    def rest(self) -> None:
        """Wait for a while if something has gone wrong between the workers."""
        if self._is_unsure:
            self._ended.wait(AGAIN_S)

    def end(self) -> None:
        """Wait no more for what the other worker does, and take no further task."""
        with self._lock:
            self.is_over = True
            answer = self._answer
        self._ended.set()
        if answer is not None:
            answer.cancel()


class HostedStages:
    """The stage processes of a worker whose node has no slots, for the slots of other nodes.

    Each call runs one mini-batch, in a thread of its own. `employ` starts a process with an
    assignment on the node of a number.
    """

    def __init__(self, employ: Callable[[int, AgentAssignment], Supervisor]) -> None:
        self._employ = employ
        self._events: deque[AgentEvent] = deque()
        self._change = threading.Condition()
        self._idle: list[StageWorker] = []
        self._at_work: list[StageWorker] = []
        self._made = 0
        self._failed: Failure | None = None
        """Why a process has not come up."""
        self._is_over = False

    def run(self, host: StageHost, assigned: Assigned) -> Preprocessed:
        """Preprocess a mini-batch in the next process that is free."""
        worker = self._taken(host)
        if worker is None:
            return Preprocessed(None, failure=self._failed)
        target, is_lost = StageFile(), False
        try:
            ended = worker.run(StageTask(assigned, PREPROCESS, None, target))
            outcome = ended.outcome
            if outcome.status is Status.RUN_DONE:
                return Preprocessed(ended.results, None if outcome.empty else target.mapped())
            failed = ColumnBatch([outcome._replace(stage_node=host.node)])
            return Preprocessed(ended.results._replace(outcomes=failed))
        except StagesNotReady as error:
            self._failed, is_lost = error.failure, True
            self._events.append(InitFailed(worker.name, error.failure, error.elapsed_s))
            return Preprocessed(None, failure=error.failure)
        finally:
            target.close()
            self._give_back(worker, is_lost=is_lost)

    def slots(self) -> list[Slot]:
        """Return the slots of the processes."""
        with self._change:
            return [one.slot for one in (*self._idle, *self._at_work)]

    def taken_events(self) -> tuple[AgentEvent, ...]:
        """Return the processes that have started, come up or ended since the last call."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def interrupt(self) -> None:
        """Kill the processes that are at work, and start nothing more."""
        with self._change:
            self._is_over = True
            self._change.notify_all()
            while self._at_work:
                for one in self._at_work:
                    one.slot.kill()
                self._change.wait(KILL_AGAIN_S)

    def _taken(self, host: StageHost) -> StageWorker | None:
        """Take a process that is free, or a new one; None if none of them comes up."""
        with self._change:
            while not (self._is_over or self._idle):
                if self._made < host.processes:
                    name = f"{PREPROCESS}{host.first + self._made:03d}"
                    self._made += 1
                    self._idle.append(StageWorker(self._employ, host.node, name, {}, self._events))
                elif not self._at_work:
                    return None
                else:
                    self._change.wait()
            if self._is_over:
                msg = "the job is over: no more agents are started."
                raise AgentError(msg)
            worker = self._idle.pop()
            self._at_work.append(worker)
            return worker

    def _give_back(self, worker: StageWorker, *, is_lost: bool) -> None:
        with self._change:
            self._at_work.remove(worker)
            if not is_lost:
                self._idle.append(worker)
            self._change.notify_all()
