"""A slot of a job with stages: an agent that runs `run`, and stage processes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._agent.supervision.slot import Slot
from daskprs._agent.supervision.stage_run import StageRun
from daskprs._agent.supervision.stage_worker import ANY_NUMBER, StagesNotReady
from daskprs._agent.supervision.stage_workers import StageWorkers
from daskprs._agent.supervision.supervisor import EXIT_GRACE_S
from daskprs._core.lease import AgentReady, InitFailed, LeaseReturned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs._agent.supervision.far_stages import Ask
    from daskprs._agent.supervision.lease_run import LeaseRun
    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.events import SlotState
    from daskprs._core.lease import AgentAssignment, AgentEvent, Lease
    from daskprs._core.spending import Amounts
    from daskprs._core.stages import Stages
    from daskprs._core.usage import ProcessUsage


class StageSlot(Slot):
    """Runs leases in stages.

    `employ_stage` starts a stage process as `employ` starts an agent. `ask` asks workers of other
    nodes to preprocess a mini-batch; None: there are no others. The agent ends after `most`
    mini-batches; None: any number.
    """

    def __init__(
        self,
        employ: Callable[[int, AgentAssignment], Supervisor],
        employ_stage: Callable[[int, AgentAssignment], Supervisor],
        stages: Stages,
        ask: Ask | None,
        most: int | None = None,
    ) -> None:
        super().__init__(employ)
        self._employ_stage = employ_stage
        self._stages = stages
        self._ask = ask
        self._most = ANY_NUMBER if most is None else most
        self._last: StageRun | None = None
        """The last record of the agent."""
        self._workers: StageWorkers | None = None
        self._of_dropped: tuple[AgentEvent, ...] = ()
        """Events of stage processes that were given up, and that no lease has returned yet."""
        self._ahead: StageRun | None = None
        """The record of a lease whose stages have begun before its agent is up."""

    @property
    def is_unwatched(self) -> bool:
        """Never: between two leases, nothing passes on what the processes wait for."""
        return False

    def stop(self) -> tuple[AgentEvent, ...]:
        """Shut down all processes, and return their events."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()
        events = super().stop()
        if workers is not None:
            workers.stop()
            self._of_dropped += workers.taken_events()
        return (*events, *self._taken_stage_events())

    def kill(self, lease_id: int | None = None) -> None:
        """End the processes at once, if the slot works on that lease."""
        with self._turning:  # else the processes may work on the next lease by now
            workers = self._workers
            if workers is not None and lease_id in (None, self._lease_id):
                workers.kill()
        super().kill(lease_id)

    def close(self) -> None:
        """Let the stage processes end, without waiting for it."""
        workers = self._workers  # the thread of the lease may drop them
        if workers is not None:
            workers.close()

    def state(self) -> SlotState:
        """Return the state of the agent, or while that is idle, of the stage longest at work."""
        state, workers = super().state(), self._workers
        if workers is None or state.phase != "idle":
            return state
        beside = (slot.state() for slot in workers.slots())
        at_work = (one for one in beside if one.index is not None)
        longest = max(at_work, key=lambda one: one.since_s, default=state)
        return longest._replace(counted=state.counted)

    def usages(self, of_devices: Mapping[int, int]) -> list[ProcessUsage]:
        """Return the usage of all processes of the slot."""
        workers = self._workers
        stages = () if workers is None else workers.slots()
        beside = [usage for slot in stages for usage in slot.usages(of_devices)]
        return [*super().usages(of_devices), *beside]

    def counted(self) -> tuple[tuple[str, Amounts], ...]:
        """Return what the script has counted in all processes of the slot."""
        workers = self._workers
        return (*super().counted(), *(() if workers is None else workers.counted()))

    # ---- the agent ----

    def _started(self, assignment: AgentAssignment) -> Supervisor | None:
        """Return a new agent; None when `init` failed, here or in all stage processes."""
        if self._workers is not None and self._workers.are_lost:
            self._drop_workers()
        workers = self._workers
        if workers is None:  # first, so that all of them start at the same time
            workers = self._workers = StageWorkers(
                self._employ_stage,
                self._node,
                assignment.process,
                assignment.environment,
                assignment.stage_processes,
            )
        agent = self._last = None
        try:
            if self._lease is not None:  # a model takes seconds to load, a decoder none
                self._ahead = self._run_on(workers, self._lease, self._orders + 1)
                self._ahead.begin()
            agent = self._started_beside(workers, assignment)
        finally:
            if agent is None and self._ahead is not None:
                self._ahead.close()
                self._ahead = None
        return agent

    def _started_beside(
        self, workers: StageWorkers, assignment: AgentAssignment
    ) -> Supervisor | None:
        agent = super()._started(assignment)
        if agent is None:
            return None
        try:
            workers.wait_until_ready()
        except StagesNotReady as error:
            # A start is one of all processes: each that came up would count as a success.
            self._events = [one for one in self._events if not isinstance(one, AgentReady)]
            self._refuse(agent, error)
            return None
        agent.also_wakes = (workers.wake_fd,)
        return agent

    def _refuse(self, agent: Supervisor, error: StagesNotReady) -> None:
        """End an agent whose stage processes do not come up: the start has failed."""
        self._drop_workers()
        self._events.append(InitFailed(agent.spec.name, error.failure, error.elapsed_s))
        self._lose(agent, agent.end(grace_s=EXIT_GRACE_S), str(error))

    def _drop_workers(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()
            self._of_dropped += workers.taken_events()

    # ---- the lease ----

    def _run_of(self, lease: Lease) -> LeaseRun:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.join()
            return ahead
        if self._workers is None:  # a stop has ended them meanwhile
            return super()._run_of(lease)
        return self._run_on(self._workers, lease, self._orders)

    def _run_on(self, workers: StageWorkers, lease: Lease, order: int) -> StageRun:
        most = self._most if self._last is None else self._last.most
        after_s = lease.return_after_s
        self._last = StageRun(order, lease.work, after_s, self._stages, workers, most)
        return self._last

    def _watch(self, lease: Lease) -> LeaseReturned:
        if self._workers is not None and self._ask is not None:
            self._workers.share(lease.stage_hosts, self._ask)
        try:
            return super()._watch(lease)
        except StagesNotReady as error:
            agent, run = self._agent, self._run
            if agent is not None:
                self._refuse(agent, error)
            self._drop_workers()
            return self._returned(lease, untouched=() if run is None else run.left)
        except BaseException as error:
            # The next lease gets other processes: those that are left may use the files of this.
            if self._agent is not None:
                self._lose(self._agent, self._agent.end(), str(error))
            self._drop_workers()
            raise

    def _taken_stage_events(self) -> tuple[AgentEvent, ...]:
        before, self._of_dropped = self._of_dropped, ()
        return before if self._workers is None else (*before, *self._workers.taken_events())
