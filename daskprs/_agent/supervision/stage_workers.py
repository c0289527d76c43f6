"""The processes of a slot that run the stages beside `run`.

Each has a thread that gives it one mini-batch after the other. Those of this node are a
`StageWorker` each (`supervision.stage_worker`), and run both stages. Processes of nodes without
`run` may help with `preprocess` (`supervision.far_stages`).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from daskprs._agent.supervision.far_stages import FarStageWorker
from daskprs._agent.supervision.slot import counted_before
from daskprs._agent.supervision.stage_worker import (
    KILL_AGAIN_S,
    StageEnded,
    StagesNotReady,
    StageWorker,
)
from daskprs._core.lease import InitFailed
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._agent.supervision.far_stages import Ask
    from daskprs._agent.supervision.slot import Slot
    from daskprs._agent.supervision.stage_worker import StageTask
    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.lease import AgentAssignment, AgentEvent
    from daskprs._core.spending import Amounts
    from daskprs._core.stages import StageHost


class StageWorkers:
    """The stage processes of one slot, each with a thread.

    Their names begin with that of the process of `run`, and their environment variables are those
    of that process.
    """

    def __init__(
        self,
        employ: Callable[[int, AgentAssignment], Supervisor],
        node: int,
        process: str,
        environment: dict[str, str],
        count: int,
    ) -> None:
        self.is_closed = False
        """Whether the processes shut down: what waits for them is run by none."""
        # A connection, since it is closed with its last reference: a pool that is closed does not
        # wait for the threads.
        self._wake = Connection(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._events: deque[AgentEvent] = deque()
        self._workers: dict[StageWorker, threading.Thread] = {}
        self._left = 0
        """Number of processes of this node that come up."""
        self._far: dict[tuple[str, int, int], tuple[FarStageWorker, threading.Thread]] = {}
        """The places at other workers: by address, node, and a number."""
        self._tasks: deque[StageTask] = deque()
        self._change = threading.Condition()
        self._ended: SimpleQueue[StageEnded | BaseException] = SimpleQueue()
        self._is_known = threading.Event()
        """Set once a process is up, or all have failed."""
        self._not_ready: StagesNotReady | None = None
        with self._change:  # none counts itself as lost before all are counted
            for number in range(count):
                name = f"{process}-{number:02d}"
                if not self._start(StageWorker(employ, node, name, environment, self._events)):
                    break
            self._left = len(self._workers)

    @property
    def count(self) -> int:
        """The number of tasks that run at the same time."""
        return len(self._workers) + sum(not one.is_over for one, _ in self._far.values())

    @property
    def wake_fd(self) -> int:
        """The descriptor that is readable when a task has ended."""
        return self._wake.fileno()

    @property
    def are_lost(self) -> bool:
        """Whether no process is left that comes up."""
        return self._left == 0

    def wait_until_ready(self) -> None:
        """Wait until the first process is up; raise `StagesNotReady` if none comes up."""
        self._is_known.wait()
        if self._not_ready is not None:
            raise self._not_ready

    def give(self, task: StageTask, *, at_once: bool = False) -> None:
        """Let a process run a task: the next one, or after all others."""
        with self._change:
            if at_once:
                self._tasks.appendleft(task)
            else:
                self._tasks.append(task)
            self._change.notify_all()  # not each may run it

    def share(self, hosts: Iterable[StageHost], ask: Ask) -> None:
        """Let these workers of other nodes help from now on, and no others."""
        wanted = {(one.worker, one.node, n): one for one in hosts for n in range(one.share)}
        for place in self._far.keys() - wanted.keys():
            self._far.pop(place)[0].end()
        for place in () if self.is_closed else wanted.keys() - self._far.keys():
            far = FarStageWorker(wanted[place], ask)
            thread = threading.Thread(
                target=self._serve_far, args=(far,), name=f"daskprs-{far.name}", daemon=True
            )
            with suppress(RuntimeError):  # no more threads: there are fewer
                thread.start()
                self._far[place] = far, thread
        with self._change:
            self._change.notify_all()

    def taken(self, within_s: float = 0.0) -> list[StageEnded]:
        """Return what has ended, and wait for the first one for a time.

        Raise the error for which no process works any more.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)
        ended = []
        with suppress(Empty):
            while True:
                one = self._ended.get(timeout=within_s) if within_s else self._ended.get_nowait()
                if isinstance(one, BaseException):
                    raise one
                within_s = 0.0
                ended.append(one)
        return ended

    def taken_events(self) -> tuple[AgentEvent, ...]:
        """Return the processes that have started, come up or ended since the last call."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def drop(self) -> None:
        """Run no task that has not begun; what runs is not waited for."""
        with self._change:
            tasks, self._tasks = self._tasks, deque()
        for task in tasks:
            task.close()

    def drop_ended(self) -> None:
        """Close the files of tasks that have ended; keep an error for the next call of `taken`."""
        errors = []
        with suppress(Empty):
            while True:
                one = self._ended.get_nowait()
                if isinstance(one, BaseException):
                    errors.append(one)
                else:
                    one.task.close()
        for error in errors:
            self._tell(error)

    def kill(self) -> None:
        """End the processes at once; their tasks end with them."""
        for one in self._workers:
            one.slot.kill()

    def close(self) -> None:
        """Let the processes shut down once their tasks are done, without waiting for them."""
        self.is_closed = True
        self.drop()
        for far, _ in [*self._far.values()]:
            far.end()
        with self._change:
            self._change.notify_all()

    def stop(self) -> None:
        """Shut down the processes, and wait for their end.

        Nobody waits for what they do: those that are still at work, or in `init`, are killed.
        """
        self.close()
        threads = self._workers.items()
        while at_work := [one for one, thread in threads if one.is_at_work and thread.is_alive()]:
            for one in at_work:
                one.slot.kill()
            time.sleep(KILL_AGAIN_S)
        for thread in (*self._workers.values(), *(thread for _, thread in self._far.values())):
            thread.join()
        with suppress(Exception):  # an error comes too late to matter
            for ended in self.taken():
                ended.task.close()

    def slots(self) -> list[Slot]:
        """Return the slots of the processes."""
        return [one.slot for one in self._workers]

    def counted(self) -> list[tuple[str, Amounts]]:
        """Return what the script has counted in the processes, also in those that have ended."""
        # First what is there: what ends meanwhile is among the events by then.
        there = [one for slot in self.slots() for one in slot.counted()]
        return [*counted_before(self._events), *there]

    # ---- the threads ----

    def _start(self, worker: StageWorker) -> bool:
        """Start a process in a thread; return False where the system refuses one more."""
        thread = threading.Thread(
            target=self._serve, args=(worker,), name=f"daskprs-{worker.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            if self._workers:
                return False
            msg = f"no thread for preprocess= and postprocess= can be started: {error}"
            raise AgentError(msg) from error
        self._workers[worker] = thread
        return True

    def _serve(self, worker: StageWorker) -> None:
        task: StageTask | None = None
        try:
            worker.start()
            self._is_known.set()
            while (task := self._next(worker)) is not None:
                ended, task = worker.run(task), None
                self._tell(ended)
        except StagesNotReady as error:
            self._lose(worker, task, error)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread of the lease
            if task is not None:
                task.close()
            self._is_known.set()
            self._tell(error)
        finally:
            self._events += worker.slot.stop()

    def _serve_far(self, far: FarStageWorker) -> None:
        """Give tasks to another worker, as long as it helps."""
        while (task := self._next_of_far(far)) is not None:
            try:
                ended = far.run(task)
            except StagesNotReady:  # that node has told it
                far.end()
                ended = None
            except BaseException as error:  # noqa: BLE001 - raised again by the thread of the lease
                task.close()
                self._tell(error)
                return
            if ended is not None:
                self._tell(ended)
            elif self.is_closed:
                task.close()
            else:
                task.stays = True
                self.give(task, at_once=True)
                far.rest()

    def _next_of_far(self, far: FarStageWorker) -> StageTask | None:
        with self._change:
            while not (far.is_over or self.is_closed):
                for task in self._tasks:
                    if far.takes(task):
                        self._tasks.remove(task)
                        return task
                self._change.wait()
        return None

    def _next(self, worker: StageWorker) -> StageTask | None:
        with self._change:
            worker.is_at_work = False
            self._change.wait_for(lambda: self._tasks or self.is_closed)
            if self.is_closed:
                return None
            worker.is_at_work = True
            return self._tasks.popleft()

    def _tell(self, ended: StageEnded | BaseException) -> None:
        if isinstance(ended, StageEnded) and ended.task.is_over:
            ended.task.close()
            return
        self._ended.put(ended)
        os.eventfd_write(self.wake_fd, 1)

    def _lose(self, worker: StageWorker, task: StageTask | None, error: StagesNotReady) -> None:
        """Go on without a process whose `init` has failed, while there are others."""
        if task is not None:
            self.give(task, at_once=True)
        with self._change:
            self._left -= 1
            is_last = self._left == 0
            if not (is_last or self.is_closed):  # else the slot reports it, or it was killed
                self._events.append(InitFailed(worker.name, error.failure, error.elapsed_s))
        if is_last:
            if not self._is_known.is_set():
                self._not_ready = error
            self._is_known.set()
            self._tell(error)
