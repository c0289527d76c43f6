"""The agents that tasks of Dask run a script in: kept from task to task, ended when idle.

The agents of a call of `map_batches` on a worker share a zygote and a folder. Each task takes a
seat, which has at most one agent at a time, and leaves it to the next task.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from daskprs._agent.node.environment import usable_cores, visible_devices
from daskprs._agent.supervision.pool import AgentPool
from daskprs._cluster.task_host import HERE, end_with_worker, host_of_task
from daskprs._cluster.uploads import with_uploads
from daskprs._core.actions import SlotId, SlotResources
from daskprs._core.agent_allocation import PROCESS, served_processes
from daskprs._folders.job_folder import JobFolder
from daskprs._system.seal import SealKey
from daskprs.errors import AgentError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._cluster.task_host import TaskHost
    from daskprs._core.lease import Lease, LeaseReturned
    from daskprs._core.limits import Limits
    from daskprs._lazy.lazy_call import LazyCall

LINGER_S = 60.0
"""Seconds for which agents wait for another task."""

_lock = threading.Lock()


class TaskAgents:
    """The agents of one call on one host."""

    def __init__(self, call: LazyCall, host: TaskHost) -> None:
        self.host = host
        self.is_closed = False
        self.busy = 0
        """Number of seats that tasks have."""
        self.idle_since_s = 0.0
        """When the last task left its seat."""
        self.ended = threading.Condition(_lock)
        """Notified when the agents end."""
        self._call = call
        self._pool: AgentPool | None = None
        self._opening = threading.Lock()
        self.gpus_per_process = call.limits.gpus_per_process
        """Number of GPUs of each agent; 0 once the script is found to use none."""
        self.finds_gpu_use = call.limits.finds_gpu_use
        """Whether the first mini-batch is still to show if the script uses GPUs."""
        self._devices = visible_devices() or ()
        self._free = [Seat(self, number) for number in range(self._places())]
        self._seated = threading.Condition(_lock)
        self.key = SealKey(secrets.token_bytes(32))
        """The key of the rows that the agents return."""
        self.folder = TemporaryDirectory(
            prefix="daskprs-", dir=host.folder, ignore_cleanup_errors=True
        )

    def _places(self) -> int:
        """Return the number of seats: one for each thread, or as many as have devices."""
        if not self._devices or not self.gpus_per_process:
            return self.host.threads
        places = served_processes(len(self._devices), self.gpus_per_process)
        if places == 0:
            given = Option("gpus_per_process", self.gpus_per_process)
            raise OptionError(given, f": {self.host.name} has {len(self._devices)} of them.")
        return places

    def take(self) -> Seat:
        """Return a seat; wait for one that is free."""
        self.busy += 1
        self._seated.wait_for(lambda: self._free)
        return self._free.pop()

    def put_back(self, seat: Seat) -> None:
        """Keep a seat for the next task."""
        self.busy -= 1
        self.idle_since_s = time.monotonic()
        self._free.append(seat)
        self._seated.notify()

    def hide_gpus(self) -> None:
        """Add a seat for each further thread: the script uses no GPU."""
        with _lock:
            if not self.gpus_per_process:
                return
            taken = self._places()
            self.gpus_per_process = 0.0
            self._free += [Seat(self, number) for number in range(taken, self._places())]
            self._seated.notify_all()

    def pool(self) -> AgentPool:
        """Return the pool, which is opened with the first task."""
        with self._opening:
            if self.is_closed:
                msg = f"{self.host.name} ends: no more agents are started."
                raise AgentError(msg)
            if self._pool is None:
                folder = JobFolder(self.folder.name, self.key)
                folder.create()
                job = self._call.job_in(folder)
                if self.host.name != HERE:
                    job = with_uploads(job, self.host.folder)
                self._pool = AgentPool(job, spools=False)
                self._pool.prepare(self.resources(0).threads)
            return self._pool

    def kill(self, number: int) -> None:
        """End the agent of a seat at once, if there is one."""
        with self._opening:
            pool = self._pool
        if pool is not None:
            pool.kill(number)

    def resources(self, number: int) -> SlotResources:
        """Return the devices and the threads of a seat's agents: a share of the host's."""
        # Seats that share a device are far apart: the next ones have other devices.
        each = max(1, int(self.gpus_per_process))
        first = number * each % max(1, len(self._devices))
        devices = self._devices[first : first + each]
        return SlotResources(devices, max(1, usable_cores() // self.host.threads))

    def close(self, *, at_once: bool = False) -> None:
        """End the agents; unless that must be at once, they call `shutdown` first."""
        with self._opening:
            self.is_closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            if not at_once:
                pool.stop()
            pool.close()
        self.folder.cleanup()


class TaskEnded(Exception):  # noqa: N818 - it says what happened
    """The task was cancelled, or its host ends: its result is not wanted any more."""


class Seat:
    """A place for one agent at a time; only one task has it."""

    def __init__(self, agents: TaskAgents, number: int) -> None:
        self.number = number
        self.slot = SlotId(agents.host.name, number, node=number)
        self.resources = agents.resources(number)
        self.logger = agents.host.logger
        self.is_cancelled = False
        """Whether the task that has the seat was cancelled."""
        self.process = 0
        """Number of the process of the last agent, which may still be there."""
        self.has_run = False
        """Whether this agent has run mini-batches of an earlier partition."""
        self._agents = agents

    def limits_of(self, limits: Limits) -> Limits:
        """Return the limits of a partition that runs here, with what is known of GPUs by now."""
        agents = self._agents
        return replace(
            limits, gpus_per_process=agents.gpus_per_process, finds_gpu_use=agents.finds_gpu_use
        )

    def leave(self, *, is_sound: bool, has_found_gpu_use: bool) -> None:
        """Let the next partition have the agent; one that may be broken is renewed for it."""
        self._agents.finds_gpu_use &= not has_found_gpu_use
        self.has_run = is_sound
        self.process += not is_sound  # another name: the slot ends this agent in an orderly way

    def hide_gpus(self) -> None:
        """Give the host as many seats as it has threads: the script uses no GPU."""
        self._agents.hide_gpus()

    @property
    def folder(self) -> JobFolder:
        """The folder of the agents."""
        return JobFolder(self._agents.folder.name, self._agents.key)

    def check(self) -> None:
        """Raise `TaskEnded` when the task is cancelled or its host ends."""
        if self.is_cancelled or self._agents.is_closed:
            raise TaskEnded

    def prepare(self) -> None:
        """Start what agents are forked from; that takes as long as staging a partition.

        Raise `TaskEnded` when the task is cancelled or its host ends.
        """
        self.check()
        with suppress(AgentError):  # `run` meets the same error
            self._agents.pool()

    def run(self, lease: Lease) -> LeaseReturned:
        """Work on a lease, in the agent that is there or in a new one.

        Raise `TaskEnded` when the task is cancelled or its host ends.
        """
        self.check()
        returned = self._agents.pool().run(lease)
        if returned.process:
            self.process = int(returned.process.removeprefix(PROCESS))
        return returned

    def cancel(self) -> None:
        """End the work of the task: its thread sees the death of the agent."""
        self.is_cancelled = True
        self.kill()

    def kill(self) -> None:
        """End the agent at once; the next lease gets a new one."""
        self._agents.kill(self.number)


_agents: dict[tuple[str, str], TaskAgents] = {}
"""The agents of this process, by host and by token of the call."""


@contextmanager
def seat_of(call: LazyCall) -> Iterator[Seat]:
    """Yield a seat on the host of this thread's task; its agent outlives the task.

    An agent whose work is not done, after an error, is ended.
    """
    host = host_of_task()
    end_with_worker(end_agents_of)
    key = host.name, call.token
    with _lock:
        if key not in _agents:
            _agents[key] = agents = TaskAgents(call, host)
            with suppress(RuntimeError):  # no more threads: they end with the host
                threading.Thread(
                    target=_end_idle, args=(key, agents), name="daskprs-linger", daemon=True
                ).start()
        agents = _agents[key]
        seat = agents.take()
    try:
        yield seat
    except BaseException:  # its agent may still work on what is not wanted any more
        seat.kill()
        raise
    finally:
        seat.is_cancelled = False
        with _lock:
            agents.put_back(seat)


def _end_idle(key: tuple[str, str], agents: TaskAgents) -> None:
    """End agents that no task has used for a time (a thread of its own)."""
    left_s = linger_s = LINGER_S
    with _lock:
        while left_s > 0:
            agents.ended.wait(left_s)
            if _agents.get(key) is not agents:
                return
            idle_s = 0.0 if agents.busy else time.monotonic() - agents.idle_since_s
            left_s = linger_s - idle_s
        del _agents[key]
    agents.close()


def end_agents_of(host: str) -> None:
    """End the agents of a host at once; tasks that wait for them raise."""
    with _lock:
        ended = [_agents.pop(key) for key in [*_agents] if key[0] == host]
        for agents in ended:
            agents.ended.notify_all()
    for agents in ended:
        agents.close(at_once=True)


@atexit.register
def _end_all() -> None:
    for host in {host for host, _ in _agents}:
        end_agents_of(host)
