"""Limits of what is used: agents give back what they have not begun once the limits are near."""

from __future__ import annotations

from typing import Any

from daskprs._core.actions import Interrupt, Remark, Withdraw

LIMIT = (("tokens", 100.0),)


def recalls(it: Any) -> list[int]:
    """Return the leases that were asked for the rest of them."""
    return [one.lease_id for one in it.said if isinstance(one, Withdraw) and one.rest]


def filled(desk: Any, **limits: Any) -> tuple[Any, Any]:
    """Return a desk whose slot has several mini-batches after two cheap ones, and the slot."""
    it = desk(100, usage_limits=LIMIT, **limits)
    (slot,) = it.leases
    for _ in range(3):
        it.do(slot, seconds_each=0.01, usage=(("tokens", 1.0),))
    assert len(it.indexes(slot)) > 2
    return it, slot


def test_what_is_not_begun_is_recalled_once_the_limit_is_near(desk: Any) -> None:
    """As soon as the rest has room for no more than what runs, and once for each lease."""
    it, slot = filled(desk)
    it.ledger.spending.take(0, "process000", (("tokens", 50.0),))
    it.tick(1.0)
    assert not recalls(it)
    it.ledger.spending.take(0, "process000", (("tokens", 100.0),))
    it.tick(1.0)
    it.tick(1.0)
    assert recalls(it) == [it.leases[slot].id]


def test_what_comes_back_is_not_begun_again_and_nobody_is_charged(desk: Any) -> None:
    """The job ends with what was under way."""
    it, slot = filled(desk)
    it.ledger.spending.take(0, "process000", (("tokens", 100.0),))
    it.tick(1.0)
    first, *rest = it.indexes(slot)
    it.give(slot, running=(first,), untouched=tuple(rest), recalled=True)
    assert it.indexes(slot) == []
    assert not any(isinstance(one, Interrupt) for one in it.said)
    lease = it.leases.pop(slot)
    assert lease.continues is not None
    it.lose(slot)
    assert [one for one in it.said if isinstance(one, Interrupt)]
    assert not any(one.charged for one in it.failures)


def test_the_limit_holds_before_any_attempt_has_ended(desk: Any) -> None:
    """Nothing is known of the mean then, but of what has been counted."""
    it = desk(100, usage_limits=LIMIT, calls=4)
    (slot,) = it.leases
    assert len(it.indexes(slot)) <= 4
    it.ledger.spending.take(0, "process000", (("tokens", 100.0),))
    other = it.add(1)
    assert other not in it.leases


def warned(it: Any) -> list[str]:
    """Return the warnings so far."""
    return [one.message for one in it.said if isinstance(one, Remark) and one.level == "warning"]


def test_a_limit_of_what_is_not_counted_is_named_once(desk: Any) -> None:
    """When a few mini-batches have counted something else."""
    it = desk(100, usage_limits=(("tokns", 100.0),))
    (slot,) = it.leases
    for expected in (0, 0, 1, 1):
        it.do(slot, usage=(("tokens", 1.0),))
        assert len(warned(it)) == expected
    assert "'tokns', which the script has not counted" in warned(it)[0]
    assert "It counts 'tokens'." in warned(it)[0]


def test_what_is_counted_later_than_others_is_no_fault(desk: Any) -> None:
    """Not within a mini-batch, and not in the first few; mini-batches may count nothing."""
    it = desk(100, usage_limits=LIMIT)
    (slot,) = it.leases
    for usage in ((), (("calls", 1.0),), (("calls", 1.0),), (("calls", 1.0), ("tokens", 0.0)), ()):
        it.do(slot, usage=usage)
    assert not warned(it)


def test_a_limit_of_a_script_that_counts_nothing_is_named_at_the_end(desk: Any) -> None:
    """Its first mini-batches might have cost nothing."""
    it = desk(4, usage_limits=LIMIT)
    (slot,) = it.leases
    for _ in range(4):
        assert not warned(it)
        it.do(slot)
    assert warned(it)[0].endswith("It counts nothing by context.count.")
