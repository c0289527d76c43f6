"""The workers of a cluster, as a job hears of them, and what they offer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed.comm import get_address_host

from daskprs.core.actions import ThreadsCounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daskprs.cluster.slot_allocator import SlotAllocator
    from daskprs.cluster.worker_events import Heartbeat
    from daskprs.core.actions import SlotId, SlotResources
    from daskprs.core.events import SlotState
    from daskprs.core.watchdog import Watchdog

    Ready = Callable[[Mapping[str, Heartbeat]], Mapping[str, Heartbeat]]


class WorkerRegistry:
    """Knows the workers that live, and is told when they go.

    Workers are heard of by what they tell themselves: one whose plugin is not up yet has no slots.
    """

    def __init__(self, nodes: SlotAllocator, watchdog: Watchdog) -> None:
        self._nodes = nodes
        self._watchdog = watchdog
        self._told: dict[str, Heartbeat] = {}
        self._gone: set[str] = set()
        """Lives that are over; what one of them has said may arrive after the news of its end."""
        self._retired: set[SlotId] = set()
        self._awaited: set[str] = set()
        """Workers that were there before the job, and cannot be given leases yet."""

    def hear(self, told: Heartbeat) -> bool:
        """Take what a worker tells; say whether it is a new one, or one that was silent."""
        if told.life in self._gone:
            return False
        before = self._told.get(told.worker)
        self._told[told.worker] = told
        was_silent = told.worker in self._watchdog.silent
        self._watchdog.hear(told.worker)
        return was_silent or before is None or before.life != told.life

    def wait_for(self, workers: Iterable[str]) -> None:
        """Take note of the workers that were there before the job."""
        self._awaited.update(workers)

    def wait_no_more(self, workers: Iterable[str] | None = None) -> None:
        """Leave no slots to these workers, or to all, that have not come."""
        self._awaited.difference_update([*self._awaited] if workers is None else workers)

    def lose(self, worker: str) -> None:
        """Take note that a worker has gone."""
        told = self._told.pop(worker, None)
        self._awaited.discard(worker)
        self._watchdog.forget(worker)
        if told is not None:
            self._gone.add(told.life)
            self._retired = {slot for slot in self._retired if slot.worker != worker}

    def lose_all(self) -> None:
        """Take note that nothing is known any more of any worker: who lives will tell again."""
        for worker in list(self._told):
            self._told.pop(worker)
            self._watchdog.forget(worker)
        self._retired.clear()
        self._awaited.clear()

    def watchdog(self, slots: dict[SlotId, None]) -> dict[SlotId, str]:
        """Retire the slots that should have come back and did not; return them, and why."""
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
        """Let time pass for those that are not heard."""
        self._watchdog.tick(now_s)

    @property
    def silent(self) -> set[str]:
        """The workers that have not been heard for too long."""
        return self._watchdog.silent

    def offered(self, ready: Ready) -> dict[SlotId, SlotResources]:
        """Return the slots there are now, of those workers that are ready."""
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

    def gpus(self, worker: str) -> float:
        """Return how many of the resource ``GPU`` a worker declares."""
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
        """Return what all slots are doing."""
        return tuple(state for told in self._told.values() for state in told.states.values())
