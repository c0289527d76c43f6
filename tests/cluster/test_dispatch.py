"""The driver's loop, where Dask's own thread comes in between."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from distributed import Client, LocalCluster

from daskprs.cluster import lease
from daskprs.cluster.connect import IN_PROCESS, workers_of
from daskprs.cluster.dispatch import Dispatcher
from daskprs.core.actions import SlotId, SlotLost
from daskprs.core.events import Place, SlotState, Stood

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

AT_WORK = SlotState(Place(0, "process000"), "running", 1.0, 7)


class Meanwhile(tuple[SlotState, ...]):
    """What one worker tells of its slots; while it is looked at, another worker tells of its."""

    __slots__ = ()
    then: Any

    def __iter__(self) -> Iterator[SlotState]:
        """Let Dask's loop come in between."""
        type(self).then()
        return super().__iter__()


def test_a_worker_may_join_while_progress_is_told() -> None:
    """What slots are doing is put in by another thread, at any time: it disturbs nobody."""
    told: list[Stood] = []
    ledger: Any = SimpleNamespace(standing=lambda: None)
    listeners: Any = SimpleNamespace(tell=told.append)
    nothing: Any = None
    driver = Dispatcher(nothing, ledger, nothing, listeners, nothing, nothing, nothing)

    def tell(worker: str, states: tuple[SlotState, ...]) -> None:
        driver._slots_told((0.0, (worker, pickle.dumps(states))))

    Meanwhile.then = lambda: tell("tcp://second", (AT_WORK,))
    tell("tcp://first", Meanwhile([AT_WORK]))
    driver._tell_standing()
    driver._tell_standing()
    assert [len(stood.slots) for stood in told] == [1, 2]


def test_a_worker_that_goes_before_its_result_is_fetched_is_lost_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody waits for Dask, which would wait for that very worker to do it again."""
    monkeypatch.setattr(lease, "FETCH_S", 0.2)
    heard: list[Any] = []
    ledger: Any = SimpleNamespace(handle=lambda event, _: heard.append(event) or [])
    nothing: Any = None
    options = {**IN_PROCESS, "n_workers": 2, "threads_per_worker": 1}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        worker = cluster.workers[0]
        slot = SlotId(worker.address, 0, 0)
        future = client.submit(bytes, 10, workers=[slot.worker], pure=False)
        assert future.result() == bytes(10)
        cluster.sync(worker.close)
        assert slot.worker not in (workers_of(client) or ())
        driver = Dispatcher(client, ledger, nothing, nothing, nothing, nothing, nothing)
        driver._futures[1] = (slot, SimpleNamespace(status="finished", **fetching(future)))
        driver._lease_ended(1, driver._futures[1][1])
    assert heard == [SlotLost(slot)]


def fetching(future: Any) -> dict[str, Any]:
    """Return what a future can do that was told to be finished while its worker was there."""
    return {"result": future.result, "cancel": future.cancel, "release": future.release}
