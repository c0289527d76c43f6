"""Stages: how many processes a slot has for them, and how many mini-batches keep these busy."""

from __future__ import annotations

import pytest

from daskprs._core.actions import SlotAdded, SlotId, SlotResources, Submit
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.stages import RING, Stages


@pytest.mark.parametrize(
    ("given", "threads", "count"),
    [(None, 16, 15), (None, 4, 3), (None, 1, 1), (15, 16, 15), (15, 4, 3), (2, 4, 1), (40, 4, 10)],
)
def test_the_cores_of_a_process_are_for_its_stages(
    given: int | None, threads: int, count: int
) -> None:
    """Without one for the process itself; those of a node are divided among its processes."""
    assert Stages("decode", None, given).processes_beside(threads, cores=16) == count


@pytest.mark.parametrize(("given", "slots", "size"), [(None, 1, 16), (8, 1, 8), (8, 4, 2)])
def test_a_slot_has_work_for_its_stages_from_the_first_lease_on(
    given: int | None, slots: int, size: int
) -> None:
    """One mini-batch alone would keep one process busy."""
    plan = (MiniBatch(index, None, str(index), 1) for index in range(1000))
    ledger = Ledger(plan, Limits(), expected=1000, stages=Stages("decode", None, given))
    leases = []
    for number in range(slots):
        slot = SlotAdded(SlotId("tcp://host0", number, 0), SlotResources((), 16))
        leases += [one for one in ledger.handle(slot, 0.0) if isinstance(one, Submit)]
    assert len(leases[-1].lease.work) == size + RING
