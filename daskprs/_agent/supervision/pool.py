"""The agents of one worker: its slots, and the zygote that they are forked from."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from daskprs._agent.node.environment import OUTPUT_PATH, RUN_ID, agent_environment
from daskprs._agent.protocol.messages import INLINE, ProcessSpec
from daskprs._agent.supervision.far_stages import HostedStages
from daskprs._agent.supervision.permit_desk import PermitDesk
from daskprs._agent.supervision.slot import Slot
from daskprs._agent.supervision.stage_slot import StageSlot
from daskprs._agent.supervision.supervisor import Supervisor
from daskprs._agent.supervision.zygote import take_zygote
from daskprs._core.agent_allocation import DEVICES_VARIABLE, HIDDEN
from daskprs._core.lease import LeaseReturned
from daskprs._folders.job_folder import JobFolder
from daskprs._output.spec import SpoolSpec
from daskprs._system.file_lock import boot_id
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._agent.supervision.far_stages import Ask
    from daskprs._agent.supervision.supervisor import AgentStarter
    from daskprs._core.events import SlotState
    from daskprs._core.lease import AgentAssignment, AgentEvent, Lease
    from daskprs._core.usage import ProcessUsage


IN_MESSAGE_BYTES = 8 << 20
"""Smaller results travel with their outcomes if the driver does not see the worker's folder."""
ZYGOTES_BORNE = 5
"""Lost zygotes after which the pool starts no more agents: zygotes run no user code, so repeated
losses are not accidental."""


class AgentPool:
    """Starts and ends the agents of a worker's slots.

    Leases of different slots run at the same time, each in a thread of its own. The job has this
    node's paths. Without `spools`, all rows travel with their outcomes, and there are no logs of
    the processes. Without a starter, a zygote starts the agents; it is started when it is needed.
    `ask` asks workers of other nodes to preprocess a mini-batch; None: there are no others.
    """

    def __init__(
        self,
        job: JobSpec,
        *,
        spools: bool = True,
        starter: AgentStarter | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.job = job
        self._has_spools = spools
        self._ask = ask
        self.hosted = HostedStages(partial(self._employ, is_of_stage=True))
        """Runs `preprocess` for the slots of other nodes."""
        self._folder = JobFolder(job.job_dir)
        self._slots: dict[int, Slot] = {}
        self._lock = threading.Lock()
        self._starters = {} if starter is None else {False: starter}
        """The starters of agents, and of stage processes, which have one core each."""
        # Each has its own, since a zygote takes a second to come up.
        self._starting = {False: threading.Lock(), True: threading.Lock()}
        self._zygotes_lost = 0
        self._begun: dict[int, int] = {}
        """The id of the last lease that each slot has begun; ids only grow."""
        self._withdrawn: set[int] = set()
        self.permits = None if job.rate_limit is None else PermitDesk()
        """Passes on permits to the agents; None where nothing limits requests."""
        self._closed = False
        self._closing = threading.Lock()
        """Held while the agents are ended."""
        _living.add(self)

    def run(self, lease: Lease) -> LeaseReturned:
        """Work on a lease in the slot that it names, unless the lease was withdrawn before."""
        with self._lock:
            if lease.id in self._withdrawn:
                untouched = tuple(lease.work.column("mini_batch.index"))
                return LeaseReturned(lease.id, "", untouched=untouched, withdrawn=True)
            # A cancelled lease may get its thread after the next one of its slot.
            self._begun[lease.slot] = max(lease.id, self._begun.get(lease.slot, 0))
            slot = self._slots.get(lease.slot)
            if slot is None:
                slot = self._slots[lease.slot] = self._new_slot()
        return slot.run(lease)

    def _new_slot(self) -> Slot:
        stages = self.job.stages
        if stages is None or self.job.start_method == INLINE:
            calls = self.job.calls
            return Slot(self._employ, None if calls is None else calls.at_once)
        of_stage = partial(self._employ, is_of_stage=True)
        most = self.job.limits.agent_max_mini_batches
        return StageSlot(self._employ, of_stage, stages, self._ask, most)

    def prepare(self, threads: int) -> None:
        """Start the zygote before the first lease; that lease reports why this failed."""
        with suppress(AgentError):
            self._living_starter(threads)

    def withdraw(self, slot: int, lease_id: int, *, rest: bool = False) -> bool:
        """Withdraw a lease unless it has begun; return whether it was withdrawn.

        With `rest`, one that has begun returns soon with what of it has not.
        """
        with self._lock:
            if self._begun.get(slot, 0) >= lease_id:
                if rest and slot in self._slots:
                    self._slots[slot].recall(lease_id)
                return False
            self._withdrawn.add(lease_id)
            return True

    def states(self) -> dict[int, SlotState]:
        """Return the state of each slot, by its number; may be called by any thread."""
        return {number: slot.state() for number, slot in list(self._slots.items())}

    def is_unwatched(self) -> bool:
        """Say whether an agent is at work while no lease looks at it."""
        return any(slot.is_unwatched for slot in list(self._slots.values()))

    def watch(self) -> None:
        """Judge the agents that are at work between two leases."""
        for slot in list(self._slots.values()):
            if slot.is_unwatched:
                slot.watch()

    def usage(self, of_devices: Mapping[int, int]) -> list[ProcessUsage]:
        """Return the usage of each agent, given the memory on devices by process id."""
        slots = *self._slots.values(), *self.hosted.slots()
        return [one for slot in slots for one in slot.usages(of_devices)]

    def stop(self) -> tuple[AgentEvent, ...]:
        """Shut down all agents at the same time, and return their events.

        The last one is shut down in this thread, which is the one of an agent in this process.
        """
        events: list[AgentEvent] = []
        threads = []

        def stop(slot: Slot) -> None:
            events.extend(slot.stop())

        self.hosted.interrupt()
        slots = [*self.hosted.slots(), *self._slots.values()]
        for slot in slots[:-1]:
            thread = threading.Thread(target=stop, args=(slot,), name="daskprs-stop")
            try:
                thread.start()
                threads.append(thread)
            except RuntimeError:  # no more threads: this one waits for the agent
                stop(slot)
        for slot in slots[-1:]:
            stop(slot)
        for thread in threads:
            thread.join()
        return (*self.hosted.taken_events(), *events)

    def kill(self, slot: int, lease_id: int | None = None) -> None:
        """End the agent of a slot at once, if it works on a lease that was cancelled; None: any."""
        if slot in self._slots:
            self._slots[slot].kill(lease_id)

    def close(self) -> None:
        """Kill the agents that are left; a running lease sees the death of its agent."""
        # A second call waits for the first: what comes after it removes the agents' folders.
        with self._closing:
            with self._lock:
                self._closed = True
                starters, self._starters = self._starters, {}
            for slot in list(self._slots.values()):
                slot.close()
            for starter in starters.values():
                starter.close()
            for slot in list(self._slots.values()):
                slot.let_go()

    def _living_starter(self, threads: int, *, is_of_stage: bool = False) -> AgentStarter:
        """Return the starter of agents; replace a dead zygote.

        The zygote has the environment of this process, which may be on another machine than the
        caller, with the job's changes.
        """
        with self._starting[is_of_stage]:
            with self._lock:
                starter = self._starters.get(is_of_stage)
                self._refuse_after_the_end()
            if starter is not None and starter.alive:
                return starter
            if starter is not None:
                starter.close()
                self._zygotes_lost += 1
            if self._zygotes_lost >= ZYGOTES_BORNE:
                msg = (
                    f"the process that agents are forked from was killed {self._zygotes_lost} "
                    "times: look at the memory of the machine, and at what the script kills."
                )
                raise AgentError(msg)
            environment = agent_environment(
                os.environ, self.job.environment, threads=threads, python=self.job.python
            )
            starter = take_zygote(environment, self.job.start_method, self.job.preload)
            with self._lock:
                if not self._closed:
                    self._starters[is_of_stage] = starter
                    return starter
            starter.close()
            self._refuse_after_the_end()
            return starter

    def _refuse_after_the_end(self) -> None:
        if self._closed:
            msg = "the job is over: no more agents are started."
            raise AgentError(msg)

    def _spool(self, name: str) -> SpoolSpec:
        """Return an agent's spool; if the driver does not see it, it holds only large results."""
        far, epoch = self.job.far, self.job.epoch
        # A worker that is lost may leave its process's rows behind, and the name to another one.
        name = f"{name}-{secrets.token_hex(4)}"
        folders = self._folder.spools(epoch), self._folder.typed_spools(epoch)
        for folder in folders if far else ():
            folder.mkdir(exist_ok=True)
        text, typed = (str(folder / name) for folder in folders)
        synced = not far and boot_id() != self.job.boot_id
        return SpoolSpec(name, text, typed, synced, from_bytes=IN_MESSAGE_BYTES if far else 0)

    def _employ(
        self, node: int, assignment: AgentAssignment, *, is_of_stage: bool = False
    ) -> Supervisor:
        """Start an agent with log files of its own."""
        starter = self._living_starter(assignment.threads, is_of_stage=is_of_stage)
        folder, name = self._folder, assignment.process
        folder.create_logs(node)
        # An id that is there stays: packages find by it the run that this worker is part of.
        run_id = os.environ.get(RUN_ID, self.job.run_id)
        ours = {OUTPUT_PATH: self.job.output_dir, RUN_ID: run_id}
        variables = {**ours, **assignment.environment}
        for variable in self.job.environment:
            variables.pop(variable, None)
        if is_of_stage:  # also where the user says which devices the job has
            variables[DEVICES_VARIABLE] = HIDDEN
        last_minutes = folder.last_minutes(node, name).relative_to(folder.path)
        spec = ProcessSpec(
            name=name,
            node=node,
            working_dir=str(folder.work(node, name)),
            stdout=str(folder.stdout(node, name)),
            stderr=str(folder.stderr(node, name)),
            entry_script_log=str(folder.entry_script_log(node, name)),
            spool=self._spool(f"{node}-{name}") if self._has_spools else None,
            environment=variables,
            far=self.job.far,
            last_minutes=last_minutes if self._has_spools else None,
            is_of_stage=is_of_stage,
            profile=str(folder.profile(node, name)) if self.job.profiling_module else None,
        )
        agent = Supervisor(starter, self.job, spec)
        if self.permits is not None:
            self.permits.admit(agent)
        return agent


_living: weakref.WeakSet[AgentPool] = weakref.WeakSet()


def close_pools(job_id: str) -> None:
    """Kill all agents of a job that are children of this process, without asking Dask."""
    for pool in list(_living):
        if pool.job.job_id == job_id:
            pool.close()
