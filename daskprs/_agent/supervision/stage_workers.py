"""The processes of a slot that run the stages beside `run`, and the files between the stages.

Each process has a slot of its own (`supervision.slot`), so that timeouts, kills and blame are those
of any agent, and a thread that gives it one mini-batch after the other. What it fails in is a
failed attempt at the mini-batch, and never ends the process of `run`.

A stage process holds no device and starts within moments. So it is judged more simply than a
process of `run` (`core.renewals`): what fails in a process in which another mini-batch has failed
since the last success runs again in a new one, and only that failure counts.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.supervision.slot import Slot
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentAssignment, AgentExited, InitFailed, Lease, Results
from daskprs._core.outcomes import Failure, Status
from daskprs._core.stages import StageWork
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.lease import AgentEvent, LeaseReturned
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Outcome

ANY_NUMBER = 1 << 30
"""A stage process does not stop after failures in a row: its thread decides what follows."""
STARTS_IN_VAIN = 3
"""Processes that may end one after the other before they begin their first mini-batch."""
KILL_AGAIN_S = 0.05
"""A process that is just being started is not there to be killed yet."""


class StageFile:
    """A file in memory between two stages; processes of the same user open it by its path."""

    def __init__(self) -> None:
        fd = os.memfd_create("daskprs-stage", os.MFD_CLOEXEC)
        self.path = f"/proc/{os.getpid()}/fd/{fd}"
        # At most once: its number may be that of another file by then. And with its last reference:
        # the record of a lease that has met an error closes nothing.
        self._close = weakref.finalize(self, os.close, fd)

    def close(self) -> None:
        """Close the file; its memory is free once no process has it mapped any more."""
        self._close()


class StageTask(NamedTuple):
    """One stage of a mini-batch, and its files."""

    assigned: Assigned
    stage: str
    source: StageFile | None
    target: StageFile | None

    def with_work(self) -> Assigned:
        """Return the mini-batch as a process gets it."""
        source = None if self.source is None else self.source.path
        target = None if self.target is None else self.target.path
        return self.assigned._replace(work=StageWork(self.stage, source, target))

    def close(self) -> None:
        """Close the files."""
        for file in (self.source, self.target):
            if file is not None:
                file.close()


class StageEnded(NamedTuple):
    """The end of a stage: what it made is in the file for the next one, or in the results."""

    task: StageTask
    results: Results

    @property
    def outcome(self) -> Outcome:
        """The outcome of the stage."""
        return self.results.outcomes[0]


class StagesNotReady(Exception):  # noqa: N818 - it says what it is
    """No stage process came up; the failure says why."""

    def __init__(self, failure: Failure, elapsed_s: float) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.elapsed_s = elapsed_s


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
            _StageWorker(employ, job_id, node, f"{process}-{number:02d}", environment, self._events)
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

    def _serve(self, worker: _StageWorker) -> None:
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

    def _next(self, worker: _StageWorker) -> StageTask | None:
        with self._change:
            worker.is_at_work = False
            self._change.wait_for(lambda: self._tasks)
            task = self._tasks.popleft()
            worker.is_at_work = task is not None
            return task

    def _tell(self, ended: StageEnded | BaseException) -> None:
        self._ended.put(ended)
        os.eventfd_write(self.wake_fd, 1)

    def _lose(self, worker: _StageWorker, task: StageTask | None, error: StagesNotReady) -> None:
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


class _StageWorker:
    """One stage process after the other, and whether the present one is sound."""

    def __init__(
        self,
        employ: Callable[[int, AgentAssignment], Supervisor],
        job_id: str,
        node: int,
        name: str,
        environment: dict[str, str],
        events: deque[AgentEvent],
    ) -> None:
        self.name = name
        self._events = events
        self.slot = Slot(employ)
        self._job_id = job_id
        self._node = node
        self._environment = environment
        self._leases = 0
        self._renewed = 0
        self._is_sound = True
        self.is_at_work = True
        """Whether it starts its process, or runs a task."""

    @property
    def _process(self) -> str:
        return f"{self.name}-{self._renewed}" if self._renewed else self.name

    def start(self) -> None:
        """Start the process; raise `StagesNotReady` if it does not come up."""
        self._leased()

    def run(self, task: StageTask) -> StageEnded:
        """Run a task, if need be twice."""
        in_vain = 0
        while True:
            self.slot.function = task.stage
            returned, process = self._leased(task.with_work()), self._process
            if returned.death is not None:
                outcome = returned.death.suspects[0]
                results = Results(ColumnBatch([outcome]))
            elif returned.results:
                (results,) = returned.results
                outcome = results.outcomes[0]
            else:  # the process has ended before it began, or with the zygote
                in_vain += 1
                if in_vain == STARTS_IN_VAIN:
                    raise _in_vain(returned)
                continue
            in_vain = 0
            if outcome.status is Status.RUN_DONE:
                self._is_sound = True
                if returned.halted:  # it has done enough
                    self._renewed += 1
                # The places are those in the log of this process, not of the one that ran `run`.
                return StageEnded(task, _of_one(results, outcome._replace(printed=None)))
            was_sound, is_over = self._is_sound, outcome.is_fatal or not self.slot.is_staffed
            if not outcome.is_neutral:
                self._is_sound = is_over
            if was_sound or outcome.is_neutral:
                # An error of a device ends this process, and not that of `run`.
                failure = outcome.failure and outcome.failure._replace(fatal=False)
                named = outcome._replace(stage_process=process, failure=failure)
                return StageEnded(task, _of_one(results, named))
            self._renewed += not is_over
            self._is_sound = True

    def _leased(self, *work: Assigned) -> LeaseReturned:
        """Let the process work, which is started if it is not there."""
        self._leases += 1
        returned = self.slot.run(
            Lease(
                id=self._leases,
                job_id=self._job_id,
                work=ColumnBatch(work),
                prefetch=False,
                most_in_a_row=ANY_NUMBER,
                node=self._node,
                assignment=AgentAssignment(self._process, self._environment, threads=1),
                return_when_ready=not work,
            )
        )
        for event in returned.agent_events:
            if isinstance(event, InitFailed):
                raise StagesNotReady(event.failure, event.elapsed_s)
            self._events.append(event)
        return returned


def _in_vain(returned: LeaseReturned) -> StagesNotReady:
    """Return the error of a process that has ended before it began its mini-batch."""
    reasons = [one.reason for one in returned.agent_events if isinstance(one, AgentExited)]
    return StagesNotReady(Failure("PROCESS_DIED", "".join(reasons[-1:])), 0.0)


def _of_one(results: Results, outcome: Outcome) -> Results:
    """Return the results of one attempt with another outcome."""
    return results._replace(outcomes=ColumnBatch([outcome]))
