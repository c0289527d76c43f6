"""One process that runs the stages beside `run`, and what it is given.

A process has a slot of its own (`supervision.slot`), so that timeouts, kills and blame are those of
any agent. What it fails in is a failed attempt at the mini-batch, and never ends the process of
`run`.

A stage process holds no device and starts within moments. So it is judged more simply than a
process of `run` (`core.renewals`): what fails in a process in which another mini-batch has failed
since the last success runs again in a new one, and only that failure counts. So does what ends a
process for want of memory that has worked before.
"""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.supervision.slot import Slot
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentAssignment, AgentExited, InitFailed, Lease
from daskprs._core.memory_sizes import died_of_memory
from daskprs._core.outcomes import Failure, Results, Status
from daskprs._core.stages import StageWork

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.lease import AgentEvent, LeaseReturned
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Outcome, Printed

ANY_NUMBER = 1 << 30
"""As many as there are: a stage process does not stop after failures in a row, say."""
STARTS_IN_VAIN = 3
"""Processes that may end one after the other before they begin their first mini-batch."""
KILL_AGAIN_S = 0.05
"""A process that is just being started is not there to be killed yet."""
AT_ONCE_BYTES = 1 << 30
"""Linux writes 2 GiB at most in one call."""


class StageFile:
    """A file in memory between two stages; processes of the same user open it by its path."""

    def __init__(self) -> None:
        fd = os.memfd_create("daskprs-stage", os.MFD_CLOEXEC)
        self.path = f"/proc/{os.getpid()}/fd/{fd}"
        # At most once: its number may be that of another file by then. And with its last reference:
        # the record of a lease that has met an error closes nothing.
        self._close = weakref.finalize(self, os.close, fd)

    def write(self, value: memoryview) -> None:
        """Write what a stage process of another node has made."""
        with open(self.path, "wb", buffering=0) as file:  # noqa: PTH123 - a link to a file in memory
            while value:
                value = value[file.write(value[:AT_ONCE_BYTES]) :]

    def mapped(self) -> memoryview:
        """Return the content, which stays in memory while somebody has it."""
        with open(self.path, "rb") as file:  # noqa: PTH123 - a link to a file in memory
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Close the file; its memory is free once no process has it mapped any more."""
        self._close()


@dataclass(eq=False, slots=True)
class StageTask:
    """One stage of a mini-batch, and its files."""

    assigned: Assigned
    stage: str
    source: StageFile | None
    target: StageFile | None
    stays: bool = False
    """Whether only processes of this node may run it."""
    printed: Printed | None = None
    """What `run` has printed, if this is the stage behind it."""
    is_over: bool = False
    """Whether its lease is over: what it makes is dropped."""

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


class StageWorker:
    """One stage process after the other, and whether the present one is sound."""

    def __init__(
        self,
        employ: Callable[[int, AgentAssignment], Supervisor],
        node: int,
        name: str,
        environment: dict[str, str],
        events: deque[AgentEvent],
    ) -> None:
        self.name = name
        self._events = events
        self.slot = Slot(employ)
        self._node = node
        self._environment = environment
        self._leases = 0
        self._renewed = 0
        self._is_sound = True
        self._worked = ""
        """The last process in which a mini-batch has ended."""
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
            is_first, self._worked = self._worked != process, process
            if outcome.status is Status.RUN_DONE:
                self._is_sound = True
                if returned.halted:  # it has done enough
                    self._renewed += 1
                # The places are those in the log of the process of `run`, not of this one.
                made = outcome._replace(printed=task.printed)
                return StageEnded(task, _of_one(results, made))
            # What the script has kept of others may have filled the memory.
            was_sound = self._is_sound and (is_first or not died_of_memory(outcome))
            is_over = outcome.is_fatal or not self.slot.is_staffed
            self._renewed += is_over  # the next one has logs of its own
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
