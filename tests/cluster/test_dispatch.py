"""The driver's loop, where Dask's own thread comes in between."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs.cluster.dispatch import Dispatcher
from daskprs.core.events import Place, SlotState, Stood

if TYPE_CHECKING:
    from collections.abc import Iterator

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
