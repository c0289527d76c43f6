"""How far a job is, in one line of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.report.remaining import remaining_s, total_of
from daskprs.report.why_waiting import why_waiting
from daskprs.report.words import duration

if TYPE_CHECKING:
    from daskprs.core.events import Stood


def fraction_done(stood: Stood) -> float | None:
    """Return the share of mini-batches that are settled; None while nobody knows how many."""
    total = total_of(stood.standing)
    if not total:
        return None
    return min(1.0, _settled(stood) / total)


def progress_text(stood: Stood) -> str:
    """Return done and total, rate, failures, remaining time, and why nothing moves."""
    standing, settled = stood.standing, _settled(stood)
    total = total_of(standing)
    parts = [f"{settled:,}/{total:,}" if total is not None else f"{settled:,} so far"]
    parts[0] += " mini-batches"
    fresh = settled - standing.recovered
    if fresh > 0 and stood.elapsed_s > 0:
        parts.append(_rate(fresh / stood.elapsed_s))
    if standing.recovered:
        parts.append(f"{standing.recovered:,} of an earlier run")
    if standing.mini_batches.failed:
        parts.append(f"{standing.mini_batches.failed:,} failed")
    if standing.waiting:
        parts.append(f"{standing.waiting:,} to be tried again")
    parts.append(duration(stood.elapsed_s))
    left = remaining_s(standing, stood.elapsed_s)
    if left is not None and left > 0:
        parts.append(f"{duration(left)} left")
    waiting = why_waiting(stood)
    if waiting:
        parts.append(waiting)
    return ", ".join(parts)


def _settled(stood: Stood) -> int:
    counts = stood.standing.mini_batches
    return counts.succeeded + counts.failed


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"  # noqa: PLR2004 - a digit more for few
