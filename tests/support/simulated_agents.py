"""Agents that only let time pass, in the place of those that run scripts.

A real lease waits in a thread. A thousand threads in one process would do little but wait for each
other, so these leases are coroutines.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from distributed import get_worker

from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.supervision.lease_run import LeaseRun
from daskprs._agent.supervision.pool import AgentPool
from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import Place, SlotState
from daskprs._core.lease import AgentReady, AgentStarted, LeaseReturned
from daskprs._core.outcomes import Extent, Outcome, Results, Status

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.lease import AgentAssignment, Lease

ROW = b"done\n"
CHECKSUM = 0
SHORTEST_SLEEP_S = 0.001


class Work:
    """What all simulated agents do, and how much of it they did."""

    seconds = 1.0
    """For each mini-batch."""
    done = 0
    begun_s: float | None = None
    ended_s = 0.0

    @classmethod
    def begin(cls, seconds: float) -> None:
        """Begin another job."""
        cls.seconds, cls.done, cls.begun_s, cls.ended_s = seconds, 0, None, 0.0

    @classmethod
    def add(cls, count: int, now: float) -> None:
        """Count what is done."""
        cls.done += count
        cls.ended_s = max(cls.ended_s, now)

    @classmethod
    def busy(cls, slots: int) -> float:
        """Return the share of the time in which the slots were at work, from first to last."""
        assert cls.begun_s is not None
        return cls.done * cls.seconds / (slots * (cls.ended_s - cls.begun_s))


class SimulatedSlot:
    """A slot whose agent takes the same time for each mini-batch, loading ahead included."""

    def __init__(self) -> None:
        self._run: LeaseRun | None = None
        self._free_s = 0.0
        self.process = ""
        self.node = 0

    async def run(self, lease: Lease) -> LeaseReturned:
        """Let time pass until something of the lease is to be handed back."""
        now = time.monotonic()
        if Work.begun_s is None:
            Work.begun_s = now
        if lease.continues is None or self._run is None:
            self._run = LeaseRun(lease.id, lease.work, lease.return_after_s)
            self._free_s = now
        elif lease.work:
            if self._run.finished:
                self._free_s = now
            self._run.extend(lease.work)
            self._run.return_after_s = lease.return_after_s
        return await self._watch(lease, self._run, self._events(lease.assignment, lease.node))

    def state(self) -> SlotState:
        """Return what a slot is doing."""
        place = Place(self.node, self.process, "simulated", os.getpid())
        return SlotState(place, "running", 0.0, None)

    def _events(self, assignment: AgentAssignment | None, node: int) -> tuple[Any, ...]:
        if assignment is None:
            return ()
        self.process, self.node = assignment.process, node
        return AgentStarted(self.process, os.getpid()), AgentReady(self.process, 0.0)

    async def _watch(self, lease: Lease, run: LeaseRun, events: tuple[Any, ...]) -> LeaseReturned:
        while True:
            self._finish(run, time.monotonic())
            untouched: tuple[int, ...] = ()
            due_in_s = run.due_in_s()
            if due_in_s == 0.0 and run.stuck:
                untouched = run.keep(run.received)
            if run.finished or due_in_s == 0.0:
                return LeaseReturned(
                    lease_id=lease.id,
                    process=self.process,
                    results=run.share(),
                    running=run.left,
                    untouched=untouched,
                    agent_events=events,
                    host="simulated",
                )
            next_s = self._free_s + Work.seconds - time.monotonic()
            sleep_s = next_s if due_in_s is None else min(next_s, due_in_s)
            await asyncio.sleep(max(SHORTEST_SLEEP_S, sleep_s))

    def _finish(self, run: LeaseRun, now: float) -> None:
        """Enter what is done by now."""
        left = run.kept + 1 - run.received
        count = left if Work.seconds == 0 else min(left, int((now - self._free_s) / Work.seconds))
        if count <= 0:
            return
        self._free_s += count * Work.seconds
        indexes = run.indexes(run.received, run.received + count)
        outcomes = ColumnBatch(_outcome(index) for index in indexes)
        run.receive(Outcomes(run.order, Results(outcomes, ROW * count)))
        Work.add(count, self._free_s)


def _outcome(index: int) -> Outcome:
    seconds = Work.seconds
    extent = Extent(len(ROW), CHECKSUM)
    return Outcome(index, 1, Status.RUN_DONE, 1, 1, time.time(), seconds, seconds, seconds, extent)


class SimulatedPool(AgentPool):
    """Takes the place of the pool of agents of a worker, and starts none."""

    def __init__(self, job: JobSpec, **more: Any) -> None:
        super().__init__(job, **more)
        self._simulated: dict[int, SimulatedSlot] = {}

    def prepare(self, threads: int) -> None:
        """There is nothing to prepare."""

    async def work(self, lease: Lease) -> LeaseReturned:
        """Work on a lease in the slot that it names."""
        return await self._simulated.setdefault(lease.slot, SimulatedSlot()).run(lease)

    def states(self) -> dict[int, SlotState]:
        """Return what each slot is doing."""
        return {number: slot.state() for number, slot in list(self._simulated.items())}

    def withdraw(self, slot: int, lease_id: int, *, rest: bool = False) -> bool:  # noqa: ARG002
        """Keep every lease: each begins at once."""
        return False


async def run_lease(job: str, lease: Lease, staged: object = None) -> LeaseReturned:  # noqa: ARG001 - no data lies there
    """Run a lease in the simulated agent of its slot."""
    pool: SimulatedPool = get_worker().plugins[job].pool
    return await pool.work(lease)
