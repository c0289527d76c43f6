"""Attempts that run out of memory are made again in halves, and the size that fits is kept."""

from __future__ import annotations

from collections import Counter
from math import ceil, log2
from typing import Any

import pytest

from daskprs._core.actions import KeepSize, Remark
from daskprs._core.lease import AgentExited, Death
from daskprs._core.memory_sizes import is_of_memory
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status

SHORT = Failure("MemoryError", "process000 ran out of memory")


def work(
    it: Any,
    fits: dict[int, int],
    default: int = 1000,
    *,
    dies: bool = True,
    by: Counter[Any] | None = None,
) -> list[int]:
    """Let all leases come back; return the sizes that did not fit, in order, and count them."""
    failed = []
    while it.leases:
        slot = next(iter(it.leases))
        outcomes, death, left = [], None, [*it.leases[slot].work]
        before, most = len(failed), it.leases[slot].most_in_a_row
        while left and death is None and len(failed) - before < most:
            mini_batch, attempt, pieces, _ = left.pop(0)
            items = mini_batch.items or 0
            size = min(items, (pieces and pieces.at_most) or items)
            one = Outcome(
                mini_batch.index, attempt, Status.RUN_DONE, items, items, 0.0, 0.1, 0.1, 0.1
            )
            if size > fits.get(mini_batch.index, default):
                failed.append(size)
                if by is not None:
                    by[slot] += 1
                status = Status.PROCESS_DIED if dies else Status.RUN_EXCEPTION
                one = one._replace(status=status, failure=SHORT, succeeded=0)
            if one.status is Status.PROCESS_DIED:
                death = Death((one,))
            else:
                outcomes.append(one)
        process = it.processes[slot]
        events = (AgentExited(process, -9, "died", expected=False),) if death else ()
        untouched = tuple(one.mini_batch.index for one in left)
        halted = bool(left) and death is None
        rest = {"untouched": untouched, "agent_events": events, "halted": halted}
        it.give(slot, *outcomes, death=death, **rest)
    return failed


def begun(desk: Any, count: int = 12, items: int = 64, **limits: Any) -> Any:
    """Return a desk with mini-batches of some items."""
    plan = iter(MiniBatch(index, None, f"id-{index}", items) for index in range(count))
    return desk(plan, **({"independent_rows": True, "run_max_try": 1} | limits))


def kept(it: Any) -> list[int]:
    """Return the sizes that were kept."""
    return [one.at_most for one in it.said if isinstance(one, KeepSize)]


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("fits", [1, 5, 8, 40])
def test_the_size_is_found_once(desk: Any, fits: int, *, dies: bool) -> None:
    """By halves; the second mini-batch that needs it goes there at once, the third begins there."""
    it = begun(desk)
    failed = work(it, {}, fits, dies=dies)
    assert it.finished
    assert sorted(it.committed) == [*range(12)]
    assert it.given_up == []
    halvings = ceil(log2(64 / fits))
    # Another one may have begun in the lease of the first, and one runs again in a new process.
    assert halvings + 1 <= len(failed) <= halvings + 1 + 2 * (not dies)
    (size,) = kept(it)
    assert fits / 2 < size <= fits
    assert it.ledger.standing().renewals == 0


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("fits", [20, 100, 500])
def test_a_process_dies_as_often_as_it_halves(desk: Any, fits: int, slots: int) -> None:
    """And once more: two mini-batches have to need the size. The next job loses no process."""
    deaths: Counter[Any] = Counter()
    it = begun(desk, 100, 1000, slots=slots)
    work(it, {}, fits, by=deaths)
    assert sorted(it.committed) == [*range(100)]
    halvings = ceil(log2(1000 / fits))
    assert max(deaths.values()) <= halvings + 1
    (size,) = kept(it)
    it = begun(desk, 100, 1000, slots=slots, at_most=size)
    assert work(it, {}, fits) == []
    assert sorted(it.committed) == [*range(100)]


def test_one_mini_batch_alone_sets_no_size(desk: Any) -> None:
    """It may have the longest documents."""
    it = begun(desk)
    failed = work(it, {3: 4})
    assert failed == [64, 32, 16, 8]
    assert kept(it) == []


def test_a_later_job_begins_with_the_size(desk: Any) -> None:
    """And goes below it where two more mini-batches need that."""
    it = begun(desk, at_most=16)
    assert work(it, {}, 16) == []
    it = begun(desk, at_most=16)
    assert work(it, {}, 8) == [16, 16]
    assert kept(it) == [8]


def test_a_mini_batch_that_fits_is_whole(desk: Any) -> None:
    """Only whole ones pass through stage processes."""
    sizes = {0: 16, 1: 17, 2: None}
    plan = iter(MiniBatch(index, None, str(index), items) for index, items in sizes.items())
    it = desk(plan, slots=3, independent_rows=True, at_most=16)
    given = [one for lease in it.leases.values() for one in lease.work]
    sizes = {one.mini_batch.index: one.pieces and one.pieces.at_most for one in given}
    assert sizes == {0: None, 1: 16, 2: 16}


def test_a_single_row_that_does_not_fit_fails(desk: Any) -> None:
    """It sets no size."""
    it = begun(desk)
    work(it, {3: 0})
    assert it.given_up == [3]
    assert kept(it) == []


def test_rows_that_may_depend_on_each_other_are_not_cut(desk: Any) -> None:
    """The advice names the option, once."""
    it = begun(desk, independent_rows=False)
    work(it, {3: 4, 5: 4})
    assert it.given_up == [3, 5]
    told = [one.message for one in it.said if isinstance(one, Remark)]
    assert sum("independent_rows=True lets daskprs" in one for one in told) == 1


@pytest.mark.parametrize(
    ("kind", "message", "is_one"),
    [
        ("MemoryError", "", True),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("RuntimeError", "CUDA error: out of memory", True),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes", True),
        ("_ArrayMemoryError", "Unable to allocate 8.00 PiB for an array", True),
        ("ArrowMemoryError", "malloc of size 1125899906842624 failed", True),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to", True),
        ("RuntimeException", "Failed to allocate memory for requested buffer of size 7", True),
        ("OSError", "[Errno 12] Cannot allocate memory", True),
        ("ClientError", "429 RESOURCE_EXHAUSTED. You exceeded your current quota", False),
        ("ResourceExhausted", "429 Resource has been exhausted (e.g. check quota).", False),
        ("ResourceExhaustedError", "OOM when allocating tensor", True),
        ("ValueError", "memory", False),
        ("NoMemoryErrorAtAll", "", False),
    ],
)
def test_errors_of_memory_are_known(kind: str, message: str, *, is_one: bool) -> None:
    """Those of Python and its libraries; a quota of a service is none."""
    assert is_of_memory(Failure(kind, message)) == is_one


def test_what_cannot_be_loaded_for_want_of_memory_is_not_cut(desk: Any, an_outcome: Any) -> None:
    """It is loaded as a whole, whatever `run` gets: it would be loaded once for each size."""
    it = desk(1, independent_rows=True, run_max_try=1)
    slot = next(iter(it.leases))
    it.give(slot, an_outcome(0, status=Status.LOAD_EXCEPTION, failure=SHORT, total=64, succeeded=0))
    assert it.given_up == [0]
