"""What keeps slots from work, in clauses for the person who looks at a job that stands still."""

from __future__ import annotations

from typing import Any

from daskprs._cluster.slot_allocator import SlotAllocator
from daskprs._cluster.worker_events import Heartbeat
from daskprs._cluster.worker_registry import WorkerRegistry
from daskprs._core.watchdog import Watchdog


def beat(worker: str = "tcp://1:1", **more: Any) -> Heartbeat:
    """Return the heartbeat of a worker with two threads."""
    return Heartbeat(worker, "life", "1", 2, 2, 0.0, (), {}, **more)


def test_workers_without_slots_are_counted() -> None:
    """Those that were there before the job, until they are ready."""
    registry = WorkerRegistry(SlotAllocator(None, None), Watchdog({}))
    registry.wait_for(["tcp://1:1", "tcp://2:2"])
    assert registry.obstacles() == ("2 workers not ready yet",)
    registry.hear(beat())
    registry.offered(lambda workers: workers)
    assert registry.obstacles() == ("1 worker not ready yet",)
    registry.wait_no_more()
    assert registry.obstacles() == ()


def test_leases_that_lack_a_resource_are_counted() -> None:
    """Over all workers."""
    registry = WorkerRegistry(SlotAllocator(None, None), Watchdog({}))
    registry.hear(beat(lacking=1))
    registry.hear(beat("tcp://2:2", lacking=2))
    assert registry.lacking == 3


def test_a_lease_that_its_worker_keeps_waits_no_more_until_the_next_heartbeat() -> None:
    """Else its worker would be asked for it again and again."""
    registry = WorkerRegistry(SlotAllocator(None, None), Watchdog({}))
    registry.hear(beat(waiting=(3, 4)))
    registry.keep(3)
    assert registry.threads().waiting == {4}
    registry.hear(beat(waiting=(3, 4)))
    assert registry.threads().waiting == {3, 4}
