"""Limits on the requests of a caller, by a monotonic clock: token buckets."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from daskprs._serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PER_S = 1_000_000
BURST_S = 10
"""A caller who was quiet may send the requests of this many seconds at once."""


class CallerRate:
    """Admits `per_s` requests a second in the long run, and those of `BURST_S` seconds at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._most = max(1.0, per_s * BURST_S)
        self._left = self._most
        self._at_s = self._clock()
        self.is_refusing = False
        """Whether the last request was refused."""

    def is_admitted(self) -> bool:
        """Count a request if it is admitted, and say whether it is."""
        now_s = self._clock()
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        self.is_refusing = self._left < 1
        self._left -= not self.is_refusing
        return not self.is_refusing

    def admit(self, whose: str) -> None:
        """Count a request, or refuse it and say when to send the next one."""
        if not self.is_admitted():
            wait_s = math.ceil((1 - self._left) / self._per_s)
            message = f"{whose} may send {self._per_s:g} requests a second; wait {wait_s} s."
            headers = {"Retry-After": str(wait_s)}
            raise Refusal(429, "TooManyRequests", message, headers=headers)
