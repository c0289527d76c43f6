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

from daskprs._agent.supervision.stage_worker import StageEnded, StagesNotReady, StageWorker
from daskprs._core.lease import InitFailed
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.supervision.slot import Slot
    from daskprs._agent.supervision.stage_worker import StageTask
    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.lease import AgentAssignment, AgentEvent

KILL_AGAIN_S = 0.05
"""A process that is just being started is not there to be killed yet."""


class StageWorkers:
    """The stage processes of one slot, each with a thread.

    Parameters
    ----------
    employ
        Starts a process with an assignment on the node of a number.
    job_id
        The job.
    node
        The number of the node.
    process
        The name of the process of `run`, with which the names of these begin.
    environment
        The environment variables of that process.
    count
        Number of processes.

    """

    def __init__(
        self,
        employ: Callable[[int, AgentAssignment], Supervisor],
        job_id: str,
        node: int,
        process: str,
        environment: dict[str, str],
        count: int,
    ) -> None:
        self.count = count
        self.is_closed = False
        """Whether the processes shut down: what waits for them is run by none."""
        # A connection, since it is closed with its last reference: a pool that is closed does not
        # wait for the threads.
        self._wake = Connection(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._events: deque[AgentEvent] = deque()
        self._workers = [
            StageWorker(employ, job_id, node, f"{process}-{number:02d}", environment, self._events)
            for number in range(count)
        ]
        self._left = count
        """Number of processes that come up."""
        self._tasks: deque[StageTask | None] = deque()
        self._change = threading.Condition()
        self._ended: SimpleQueue[StageEnded | BaseException] = SimpleQueue()
        self._is_known = threading.Event()
        """Set once a process is up, or all have failed."""
        self._not_ready: StagesNotReady | None = None
        self._threads = [
            threading.Thread(
                target=self._serve, args=(one,), name=f"daskprs-{one.name}", daemon=True
            )
            for one in self._workers
        ]
        with self._change:  # none counts itself as lost before all are counted
            self._start_threads()

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
            self._change.notify()

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
            if task is not None:
                task.close()

    def kill(self) -> None:
        """End the processes at once; their tasks end with them."""
        for one in self._workers:
            one.slot.kill()

    def close(self) -> None:
        """Let the processes shut down once their tasks are done, without waiting for them."""
        self.is_closed = True
        self.drop()
        with self._change:
            self._tasks += [None] * self.count
            self._change.notify_all()

    def stop(self) -> None:
        """Shut down the processes, and wait for their end.

        Nobody waits for what they do: those that are still at work, or in `init`, are killed.
        """
        self.close()
        threads = [*zip(self._workers, self._threads, strict=True)]
        while at_work := [one for one, thread in threads if one.is_at_work and thread.is_alive()]:
            for one in at_work:
                one.slot.kill()
            time.sleep(KILL_AGAIN_S)
        for thread in self._threads:
            thread.join()
        with suppress(Exception):  # an error comes too late to matter
            for ended in self.taken():
                ended.task.close()

    def slots(self) -> list[Slot]:
        """Return the slots of the processes."""
        return [one.slot for one in self._workers]

    # ---- the threads ----

    def _start_threads(self) -> None:
        """Start a thread for each process; where the system refuses more, there are fewer."""
        started = 0
        try:
            for thread in self._threads:
                thread.start()
                started += 1
        except RuntimeError as error:
            if not started:
                msg = f"no thread for preprocess= and postprocess= can be started: {error}"
                raise AgentError(msg) from error
        del self._threads[started:], self._workers[started:]
        self.count = self._left = started

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

    def _next(self, worker: StageWorker) -> StageTask | None:
        with self._change:
            worker.is_at_work = False
            self._change.wait_for(lambda: self._tasks)
            task = self._tasks.popleft()
            worker.is_at_work = task is not None
            return task

    def _tell(self, ended: StageEnded | BaseException) -> None:
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
