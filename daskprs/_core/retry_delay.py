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


class RetryDelay:
    """Computes delays. The same seed gives the same ones, in whatever order they are asked for.

    The seed decides the share of its delay that each mini-batch waits; another job has another one.
    """

    def __init__(self, limits: Limits, seed: str) -> None:
        self._delay_s = limits.retry_delay_s
        self._seed = seed

    def seconds(self, index: int, tries: int) -> float:
        """Return the delay after a number of charged attempts at a mini-batch."""
        if not tries:
            return 0.0
        if self._delay_s is not None:
            return self._delay_s
        return self._growing_s(index, tries)

    def after_throttle_s(self, index: int, throttled: int, wait_s: float | None) -> float:
        """Return the delay after an endpoint has refused a number of attempts.

        `wait_s` is what it has asked for; None: it has not said it.
        """
        growing_s = self._growing_s(index, throttled)
        return growing_s if wait_s is None else wait_s + min(growing_s, LATER * wait_s)

    def _growing_s(self, index: int, count: int) -> float:
        whole_s: float = FIRST_S * 2.0 ** min(count - 1, DOUBLINGS)
        share = Random(f"{self._seed}:{index}:{count}").uniform(LEAST_SHARE, 1.0)  # noqa: S311
        return share * min(LONGEST_S, whole_s)
