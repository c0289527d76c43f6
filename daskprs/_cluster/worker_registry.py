"""The workers of a cluster by their heartbeats, and the slots that they offer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distributed.comm import get_address_host

from daskprs._core.actions import ThreadsCounted
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daskprs._cluster.slot_allocator import SlotAllocator
    from daskprs._cluster.worker_events import Heartbeat
    from daskprs._core.actions import SlotId, SlotResources
    from daskprs._core.events import SlotState
    from daskprs._core.watchdog import Watchdog

    Ready = Callable[[Mapping[str, Heartbeat]], Mapping[str, Heartbeat]]


class WorkerRegistry:
    """Records the living workers and their heartbeats.

    Workers are known by their heartbeats, so a worker whose plugin is not up yet has no slots.
    """

    def __init__(self, nodes: SlotAllocator, watchdog: Watchdog) -> None:
        self._nodes = nodes
        self._watchdog = watchdog
        self._told: dict[str, Heartbeat] = {}
        self._gone: set[str] = set()
        """Lives that are over; their heartbeats may arrive after the news of their end."""
        self._retired: set[SlotId] = set()
        self._awaited: set[str] = set()
        """Workers that were there before the job, and cannot receive leases yet."""

    def hear(self, told: Heartbeat) -> bool:
        """Record a heartbeat; return whether its worker is new or was silent."""
        if told.life in self._gone:
            return False
        before = self._told.get(told.worker)
        self._told[told.worker] = told
        was_silent = told.worker in self._watchdog.silent
        self._watchdog.hear(told.worker)
        return was_silent or before is None or before.life != told.life

    def keep(self, lease_id: int) -> None:
        """Record that a lease does not wait: its worker has said so since its last heartbeat."""
        for worker, told in self._told.items():
            if lease_id in told.waiting:
                waiting = tuple(one for one in told.waiting if one != lease_id)
                self._told[worker] = told._replace(waiting=waiting)

    def wait_for(self, workers: Iterable[str]) -> None:
        """Reserve slots for workers that were there before the job."""
        self._awaited.update(workers)

    def wait_no_more(self, workers: Iterable[str] | None = None) -> None:
        """Reserve no more slots for these workers, or for all that have not come."""
        self._awaited.difference_update([*self._awaited] if workers is None else workers)

    def lose(self, worker: str) -> None:
        """Record that a worker has gone."""
        told = self._told.pop(worker, None)
        self._awaited.discard(worker)
        self._watchdog.forget(worker)
        if told is not None:
            self._gone.add(told.life)
            self._retired = {slot for slot in self._retired if slot.worker != worker}

    def lose_all(self) -> None:
        """Forget all workers; the living ones will send heartbeats again."""
        for worker in list(self._told):
            self._told.pop(worker)
            self._watchdog.forget(worker)
        self._retired.clear()
        self._awaited.clear()

    def watchdog(self, slots: Iterable[SlotId]) -> dict[SlotId, str]:
        """Retire slots whose supervisors have missed a deadline; return each with the reason."""
        states = {
            slot: state
            for slot in slots
            if (told := self._told.get(slot.worker))
            and (state := told.states.get(slot.number)) is not None
        }
        found = self._watchdog.found(states)
        self._retired.update(found)
        return found

    def tick(self, now_s: float) -> None:
        """Let the watchdog note which workers have become silent by now."""
        self._watchdog.tick(now_s)

    @property
    def silent(self) -> set[str]:
        """The workers without a heartbeat for too long."""
        return self._watchdog.silent

    def offered(self, ready: Ready) -> dict[SlotId, SlotResources]:
        """Return the current slots of the workers that are ready."""
        heard = {worker: told for worker, told in self._told.items() if worker not in self.silent}
        workers = ready(heard)
        self.wait_no_more(workers)
        awaited = {worker: get_address_host(worker) for worker in self._awaited}
        slots = self._nodes.slots(workers, awaited)
        return {slot: has for slot, has in slots.items() if slot not in self._retired}

    @property
    def is_complete(self) -> bool:
        """Whether all workers that were there before the job have come."""
        return not self._awaited

    @property
    def lacking(self) -> int:
        """The number of leases that wait for a resource which other tasks hold."""
        return sum(told.lacking for told in self._told.values())

    def obstacles(self) -> tuple[str, ...]:
        """Return how many workers offer no slots, and why, in clauses for people."""
        coming, silent = len(self._awaited), len(self.silent)
        found = [
            f"{counted(coming, 'worker')} not ready yet" if coming else "",
            f"{counted(silent, 'worker')} silent" if silent else "",
        ]
        return tuple(filter(None, found))

    def ends_at_s(self, worker: str) -> float | None:
        """Return the time on the driver's clock at which a worker closes by itself, if it does."""
        told = self._told.get(worker)
        left_s = None if told is None else told.ends_in_s
        return None if left_s is None else time.monotonic() + left_s

    def gpus(self, worker: str) -> float:
        """Return the units of the resource ``GPU`` that a worker declares."""
        told = self._told.get(worker)
        return 0.0 if told is None else told.gpus

    def threads(self) -> ThreadsCounted:
        """Return which workers have no idle thread, and which leases wait for one."""
        told = self._told.values()
        busy = frozenset(worker.worker for worker in told if not worker.idle)
        return ThreadsCounted(busy, frozenset(id_ for worker in told for id_ in worker.waiting))

    def has(self, worker: str) -> bool:
        """Say whether a worker is there."""
        return worker in self._told and worker not in self.silent

    def states(self) -> tuple[SlotState, ...]:
        """Return the states of all slots."""
        return tuple(state for told in self._told.values() for state in told.states.values())
