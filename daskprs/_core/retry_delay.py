"""The delay of a retry that follows a charged failure of the same mini-batch."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs._core.limits import Limits

FIRST_S = 1.0
"""Seconds of the first delay that grows; each further one is twice as long …"""
LONGEST_S = 60.0
"""… up to this."""
DOUBLINGS = 6
"""Number of doublings that reach the longest delay."""
LEAST_SHARE = 0.5
"""Smallest share of a delay that grows which a mini-batch waits. Mini-batches that have failed
together, since a service had too many requests, do not come back together."""

LATER = 0.25
"""By which share of the time that an endpoint has asked for a mini-batch comes back later."""


def retry_delay_s(limits: Limits, seed: str, index: int, tries: int) -> float:
    """Return the seconds that a mini-batch waits after a number of charged attempts.

    The seed decides the share of a growing delay that each mini-batch waits: the same one gives the
    same delays, and another job has another one.
    """
    if not tries:
        return 0.0
    fixed_s = limits.retry_delay_s
    return _growing_s(seed, index, tries) if fixed_s is None else fixed_s


def throttle_delay_s(seed: str, index: int, throttled: int, wait_s: float | None) -> float:
    """Return the seconds that a mini-batch waits after an endpoint has refused some attempts.

    `wait_s` is what it has asked for; None: it has not said it.
    """
    growing_s = _growing_s(seed, index, throttled)
    return growing_s if wait_s is None else wait_s + min(growing_s, LATER * wait_s)


def _growing_s(seed: str, index: int, count: int) -> float:
    whole_s: float = FIRST_S * 2.0 ** min(count - 1, DOUBLINGS)
    share = Random(f"{seed}:{index}:{count}").uniform(LEAST_SHARE, 1.0)  # noqa: S311
    return share * min(LONGEST_S, whole_s)
