"""Stages: how many processes a slot has for them, and how many mini-batches keep these busy."""

from __future__ import annotations

import pytest

from daskprs._core.actions import SlotAdded, SlotId, SlotResources, Submit
from daskprs._core.ledger import Ledger
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.stages import RING, Stages


@pytest.mark.parametrize(
    ("given", "threads", "slots", "counts"),
    [
        (None, 16, 1, [15]),
        (None, 4, 2, [3, 3]),
        (None, 1, 2, [1, 1]),
        (15, 16, 1, [15]),
        (15, 4, 4, [4, 4, 4, 3]),
        (2, 4, 4, [1, 1, 1, 1]),
        (16, 1, 8, [2] * 8),
    ],
)
def test_the_cores_of_a_process_are_for_its_stages(
    given: int | None, threads: int, slots: int, counts: list[int]
) -> None:
    """Without one for the process itself; those of a node are divided among its processes.

    There may be more of these than cores.
    """
    assert Stages("decode", None, given).processes_beside(threads, slots) == counts


def test_a_slot_has_work_for_its_stages_from_the_first_lease_on() -> None:
    """One mini-batch alone would keep one process busy."""
    plan = (MiniBatch(index, None, str(index), 1) for index in range(1000))
    ledger = Ledger(plan, Limits(), expected=1000, stages=Stages("decode", None, 8))
    for number in range(2):
        resources = SlotResources((), 16, stage_processes=4)
        actions = ledger.handle(SlotAdded(SlotId("tcp://host0", number, 0), resources), 0.0)
        (lease,) = [one.lease for one in actions if isinstance(one, Submit)]
        assert len(lease.work) == 4 + RING
        assert lease.assignment is not None
        assert lease.assignment.stage_processes == 4
