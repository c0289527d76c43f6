"""Whether a script uses GPUs: asked once, and decided by the first mini-batch."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.actions import HideGpus, Remark, SlotAdded, SlotId, SlotResources
from daskprs._core.lease import AgentStarted, GpuUse
from daskprs._core.outcomes import Outcome, Status

NONE, LOADED, OPEN = (
    GpuUse("", is_open=False),
    GpuUse("torch", is_open=False),
    GpuUse("", is_open=True),
)
SLOT = SlotId("tcp://host0", 0, 0)


def begun(desk: Any, count: int = 9, devices: tuple[str, ...] = ("0",), **limits: Any) -> Any:
    """Return a desk with one slot on a node with these devices."""
    it = desk(count, slots=0, **({"finds_gpu_use": True} | limits))
    it.tell(SlotAdded(SLOT, SlotResources(devices, 1)))
    return it


def go_on(it: Any, use: GpuUse | None) -> None:
    """Let the lease of the slot succeed, and tell what its process has to do with GPUs."""
    lease = it.leases[SLOT]
    if lease.assignment is not None:
        it.seen = lease.assignment.environment.get("CUDA_VISIBLE_DEVICES")
    started = AgentStarted(it.processes[SLOT], 1)
    outcomes = [
        Outcome(one.mini_batch.index, one.attempt, Status.RUN_DONE, 1, 1, 0.0, 1.0, 1.0, 1.0)
        for one in lease.work
    ]
    it.give(SLOT, *outcomes, process=started.process, agent_events=(started,), gpu_use=use)


def hidden(it: Any) -> int:
    """Return how often GPUs were hidden (empty named tuples are all equal)."""
    return sum(isinstance(one, HideGpus) for one in it.said)


def remarks(it: Any) -> list[str]:
    """Return what people see."""
    return [one.message for one in it.said if isinstance(one, Remark) and one.level != "debug"]


def test_gpus_are_hidden_once_the_first_mini_batch_needs_none(desk: Any) -> None:
    """New agents see none; a library that is loaded later is a warning, once."""
    it = begun(desk)
    assert it.leases[SLOT].finds_gpu_use
    go_on(it, NONE)
    assert hidden(it) == 1
    assert "as many processes as its Dask workers have threads" in remarks(it)[0]
    other = SlotId("tcp://host0", 1, 0)
    it.tell(SlotAdded(other, SlotResources(("0",), 1)))
    assert it.leases[other].assignment.environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert it.leases[other].gpus == 0
    go_on(it, LOADED)
    go_on(it, LOADED)
    assert hidden(it) == 1
    assert ["GPUs are hidden from all processes" in remark for remark in remarks(it)[1:]] == [True]


@pytest.mark.parametrize(("use", "count"), [(LOADED, 1), (OPEN, 0)])
def test_gpus_stay_for_a_script_that_uses_or_may_use_them(
    desk: Any, use: GpuUse, count: int
) -> None:
    """One that has loaded a library without a GPU is told so."""
    it = begun(desk)
    go_on(it, use)
    assert hidden(it) == 0
    assert len(remarks(it)) == count
    assert not it.leases[SLOT].finds_gpu_use


@pytest.mark.parametrize(
    ("devices", "limits"), [((), {}), (("0",), {"finds_gpu_use": False}), (("0",), {"count": 1})]
)
def test_nothing_is_decided_where_it_does_not_matter(
    desk: Any, devices: tuple[str, ...], limits: dict[str, Any]
) -> None:
    """Without a GPU, where the user has decided, and where no mini-batch is left."""
    it = begun(desk, devices=devices, **limits)
    go_on(it, NONE if it.leases[SLOT].finds_gpu_use else None)
    assert hidden(it) == 0
    assert remarks(it) == []


@pytest.mark.parametrize(("use", "did"), [(LOADED, "loaded torch"), (OPEN, "opened a GPU")])
def test_the_last_lease_may_warn_of_a_gpu_that_is_used_late(
    desk: Any, use: GpuUse, did: str
) -> None:
    """Whoever adds rows tomorrow needs the warning, though no work is left today."""
    it = begun(desk, count=2)
    go_on(it, NONE)
    go_on(it, use)
    assert f"has {did}, but GPUs are hidden" in remarks(it)[-1]


def test_a_resume_keeps_the_decision(desk: Any) -> None:
    """No process sees a GPU, and nothing is decided again."""
    it = begun(desk, gpus_per_process=0)
    go_on(it, NONE)
    assert it.seen == "-1"
    assert hidden(it) == 0
    go_on(it, LOADED)
    assert len(remarks(it)) == 1
