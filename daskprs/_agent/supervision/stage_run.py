"""The record of a lease whose mini-batches pass through several processes: its stages.

A mini-batch waits, is at a stage process, or is in the hands of the agent, which runs `run`. The
agent gets it once the stage before is over: its order grows one by one. How many mini-batches are
on the way is bounded, since what one stage has made for the next is held in memory.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.messages import ExtendLease
from daskprs._agent.supervision.lease_run import LeaseRun
from daskprs._agent.supervision.stage_worker import ANY_NUMBER, StageFile, StageTask
from daskprs._core.columnar import ColumnBatch
from daskprs._core.outcomes import Status
from daskprs._core.stages import POSTPROCESS, PREPROCESS, RING, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.supervision.stage_worker import StageEnded
    from daskprs._agent.supervision.stage_workers import StageWorkers
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Results
    from daskprs._core.stages import Stages


class StageRun(LeaseRun):
    """The supervisor's record of an order; positions are those of the agent alone."""

    def __init__(
        self,
        order: int,
        work: ColumnBatch[Assigned],
        return_after_s: float,
        stages: Stages,
        workers: StageWorkers,
        most: int = ANY_NUMBER,
    ) -> None:
        self.most = most
        """How many more mini-batches the agent takes before it ends."""
        self._stages = stages
        self._workers = workers
        self._waiting: deque[Assigned] = deque()
        self._at_stage: dict[int, StageTask] = {}
        """What the stage processes have, by the index of the mini-batch."""
        self._at_agent: dict[int, StageTask] = {}
        """What the agent has."""
        self._behind: deque[tuple[set[int], Results]] = deque()
        """Results of the agent that wait for `postprocess` of what it had run before: the indexes
        of these mini-batches, and the results."""
        super().__init__(order, work, return_after_s)

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append the work of a lease; it begins with its first stage."""
        if self.finished:
            self._quiet_since_s = time.monotonic()
        self._waiting += work

    def given(self, work: ColumnBatch[Assigned]) -> ColumnBatch[Assigned]:  # noqa: ARG002
        """Return nothing: the agent gets each mini-batch when its turn has come."""
        return ColumnBatch()

    # ---- what goes on ----

    def join(self) -> None:
        """Go on with an agent that is up only now: what waits has waited for it."""
        self._quiet_since_s = time.monotonic()

    def turn(self, send: Callable[[Any], None]) -> bool:
        """Let each mini-batch go on whose stage has ended, and begin others.

        Return whether the agent has work.
        """
        for ended in self._workers.taken():
            self._end_stage(ended, send)
        self.begin(send)
        return bool(self._at_agent)

    def begin(self, send: Callable[[Any], None] | None = None) -> None:
        """Begin as many mini-batches as there is room for; those of the agent wait for it."""
        on_the_way = len(self._at_stage) + len(self._at_agent)
        before_run = sum(task.stage == PREPROCESS for task in self._at_stage.values())
        # More would be preprocessed in vain. Where nothing is on the way, one begins all the same:
        # the agent itself says when it has done enough.
        takes = max(self.most - before_run, 0 if on_the_way else 1)
        room = min(self._workers.count + RING - on_the_way, takes)
        while self._waiting and room > 0:
            assigned = self._waiting[0]
            if assigned.pieces is None and self._stages.preprocess is not None:
                self._give_stage(StageTask(assigned, PREPROCESS, None, StageFile()))
            elif send is not None:
                self._give_agent(assigned, None, send)
            else:
                return
            self._waiting.popleft()
            room -= 1

    def finish_stages(self) -> None:
        """Wait for what `run` has already passed on; all else of the lease is untouched.

        The agent works no more. What it has done need not be done again, unless the processes end,
        too: a pool that is closed drops what waits for them.
        """
        while not self._workers.is_closed and any(
            task.stage == POSTPROCESS for task in self._at_stage.values()
        ):
            for ended in self._workers.taken(within_s=1.0):
                self._end_stage(ended, None)

    def take_back(self, *_: Any) -> tuple[int, ...]:
        """Give up what waits, and return the indexes."""
        given_back = tuple(one.mini_batch.index for one in self._waiting)
        self._waiting.clear()
        self.recalled, self.is_wanted = True, False
        return given_back

    def close(self) -> None:
        """Close the files; the agent reads and writes them no more."""
        for task in self._at_agent.values():
            task.close()
        self.most += len(self._at_agent)  # an agent that goes on has dropped these
        self._at_agent.clear()
        for task in self._at_stage.values():  # some are at work, while the next agent starts
            task.is_over = True
        self._workers.drop()
        self._workers.drop_ended()  # nobody takes these before the next agent is up

    def _give_stage(self, task: StageTask) -> None:
        self._at_stage[task.assigned.mini_batch.index] = task
        # What is almost done comes first: it holds memory.
        self._workers.give(task, at_once=task.stage == POSTPROCESS)

    def _give_agent(
        self, assigned: Assigned, source: StageFile | None, send: Callable[[Any], None]
    ) -> None:
        # Pieces pass through all stages in the agent, one after the other: each is an attempt.
        is_whole = assigned.pieces is None
        target = StageFile() if is_whole and self._stages.postprocess is not None else None
        task = StageTask(assigned, RUN, source, target)
        self._at_agent[assigned.mini_batch.index] = task
        self.most -= 1
        work = ColumnBatch([task.with_work() if is_whole else assigned])
        super().extend(work)
        send(ExtendLease(self.order, work))

    def _end_stage(self, ended: StageEnded, send: Callable[[Any], None] | None) -> None:
        """Take the end of a stage; without an agent, only rows and failures count."""
        task, outcome = ended.task, ended.outcome
        if self._at_stage.get(outcome.index) is not task:  # of a lease that is over
            task.close()
            return
        if task.stage == POSTPROCESS or outcome.status is not Status.RUN_DONE or outcome.empty:
            task.close()
            super()._take(ended.results)
            self.recalled = False
        elif send is None:
            task.close()
            self._waiting.appendleft(task.assigned)
        else:
            self._give_agent(task.assigned, task.target, send)
        del self._at_stage[outcome.index]
        self._report()
        self._quiet_since_s = time.monotonic()

    def _take(self, results: Results) -> None:
        """Take what the agent has done; what has a further stage goes there."""
        made = []
        for position, outcome in enumerate(results.outcomes):
            task = self._at_agent.pop(outcome.index)
            if task.source is not None:
                task.source.close()
            if task.target is None:
                made.append(position)
            elif outcome.status is Status.RUN_DONE and not outcome.empty:
                after = StageTask(task.assigned, POSTPROCESS, task.target, None)
                after.printed = outcome.printed
                self._give_stage(after)
            else:
                task.target.close()
                made.append(position)
        if made:
            passed_on = [task for task in self._at_stage.values() if task.stage == POSTPROCESS]
            before = {task.assigned.mini_batch.index for task in passed_on}
            self._behind.append((before, results.only(made)))
            self._report()

    def _report(self) -> None:
        """Hand on each result of the agent, once all that the agent had run before it is done.

        Behind a failure, the success of an earlier mini-batch would show that the failure has left
        the process whole: what fails later, in a process that is broken, would be charged.
        """
        while self._behind and self._behind[0][0].isdisjoint(self._at_stage):
            super()._take(self._behind.popleft()[1])

    # ---- what is left ----

    @property
    def finished(self) -> bool:
        """Whether no mini-batch of the lease is left."""
        return not (self._waiting or self._at_stage or self._at_agent)

    @property
    def left(self) -> tuple[int, ...]:
        """Indexes of the mini-batches without a result."""
        waiting = [one.mini_batch.index for one in self._waiting]
        behind = [one for _, made in self._behind for one in made.outcomes.column("index")]
        return (*behind, *self._at_agent, *self._at_stage, *waiting)

    @property
    def _is_short(self) -> bool:
        """Whether processes may be without work before there is more."""
        on_the_way = len(self._at_stage) + len(self._at_agent)
        return not self._waiting and on_the_way <= self._workers.count

    @property
    def _waits(self) -> bool:
        """Whether there are mini-batches that no process has begun."""
        return bool(self._waiting)
