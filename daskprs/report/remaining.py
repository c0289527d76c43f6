"""How long it will take, from how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.core.events import Standing


def total_of(standing: Standing) -> int | None:
    """Return how many mini-batches there will be, where that is known."""
    return standing.mini_batches.total if standing.plan_complete else standing.expected


def remaining_s(standing: Standing, elapsed_s: float) -> float | None:
    """Return the seconds left at the rate so far; None while nobody can say."""
    total = total_of(standing)
    settled = standing.mini_batches.succeeded + standing.mini_batches.failed
    fresh = settled - standing.recovered
    if total is None or fresh <= 0:
        return None
    return max(0, total - settled) * elapsed_s / fresh
