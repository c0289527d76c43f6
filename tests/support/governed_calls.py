"""Calls to an endpoint under a governor, on a virtual clock."""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from daskprs._core.governor import Governor, Grant, Report
from tests.support.api_server import OK, TOO_MANY

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.rate_limit import RateLimit
    from tests.support.api_server import ApiModel

SYNC_S, POLL_S = 0.1, 0.02
"""Seconds between reports of a worker, and between looks of a process that waits."""


class GovernedProcess:
    """A process with calls, as the governor sees it: it takes only what it was granted."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.granted = self.tokens_granted = self.most = 0
        self.taken = self.tokens_taken = self.ended = self.throttled = 0
        self.queue: deque[int] = deque()
        """The tokens of the calls that wait."""
        self.paused_until_s = 0.0

    def report(self, now_s: float) -> Report:
        """Return what it has, and what it wants."""
        return Report(
            self.granted,
            self.tokens_granted,
            self.most,
            self.taken,
            self.tokens_taken,
            self.ended,
            self.throttled,
            len(self.queue),
            sum(self.queue),
            self.queue[0] if self.queue else 0,
            max(0.0, self.paused_until_s - now_s),
        )

    def apply(self, grant: Grant, now_s: float) -> None:
        """Take a grant; what it has taken meanwhile cannot be taken back."""
        self.granted = max(self.taken, grant.granted)
        self.tokens_granted = max(self.tokens_taken, grant.tokens_granted)
        self.most = grant.most_in_flight
        self.paused_until_s = max(self.paused_until_s, now_s + grant.pause_s)

    def take(self, now_s: float) -> int | None:
        """Take a permit for the first call; return its tokens, or None."""
        if not self.queue or now_s < self.paused_until_s:
            return None
        tokens = self.queue[0]
        is_free = self.taken - self.ended < self.most
        enough = self.taken < self.granted and self.tokens_taken + tokens <= self.tokens_granted
        if not (is_free and enough):
            return None
        self.taken += 1
        self.tokens_taken += tokens
        return self.queue.popleft()

    def end(self, tokens: int) -> None:
        """End a call, and begin the next one."""
        self.ended += 1
        self.queue.append(tokens)

    def throttle(self, until_s: float) -> None:
        """Note that an answer has said "too many requests"."""
        self.throttled += 1
        self.paused_until_s = max(self.paused_until_s, until_s)


class GovernedJob:
    """Processes that call an endpoint as fast as they may, with latencies of all kinds.

    Parameters
    ----------
    limit, model
        What the governor keeps to, and what the endpoint does.
    workers, calls, tokens
        Number of processes, of calls in each, and of tokens in a call.
    seed
        Decides the latencies.

    """

    def __init__(
        self,
        limit: RateLimit,
        model: ApiModel,
        *,
        workers: int = 4,
        calls: int = 64,
        tokens: int = 0,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.answers: list[tuple[float, int]] = []
        """When each request came, and the status of its answer."""
        self._governor = Governor(limit)
        self._random = Random(seed)  # noqa: S311
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._tokens = tokens
        for number in range(workers):
            process = GovernedProcess(str(number))
            process.queue.extend([tokens] * calls)
            self._at(self._random.uniform(0, SYNC_S), partial(self._sync, process))
            self._at(self._random.uniform(0, POLL_S), partial(self._poll, process))

    def play(self, until_s: float) -> GovernedJob:
        """Let time pass."""
        while self._events[0][0] < until_s:
            when_s, _, what = heappop(self._events)
            what(when_s)
        return self

    def between(self, begin_s: float, end_s: float, status: int | None = None) -> int:
        """Return the number of answers in a time, with a status or with any."""
        return sum(begin_s <= at < end_s and status in (None, one) for at, one in self.answers)

    def _at(self, when_s: float, what: Callable[[float], None]) -> None:
        heappush(self._events, (when_s, next(self._numbers), what))

    def _sync(self, process: GovernedProcess, now_s: float) -> None:
        grant = self._governor.handle({process.key: process.report(now_s)}, now_s)[process.key]
        self._at(now_s + self._random.uniform(0, 0.01), partial(process.apply, grant))
        again_s = SYNC_S * self._random.uniform(0.8, 1.2)
        self._at(now_s + again_s, partial(self._sync, process))

    def _poll(self, process: GovernedProcess, now_s: float) -> None:
        while (taken := process.take(now_s)) is not None:
            there_s = now_s + self._random.uniform(0.005, 0.05)
            self._at(there_s, partial(self._ask, process, taken))
        self._at(now_s + POLL_S, partial(self._poll, process))

    def _ask(self, process: GovernedProcess, tokens: int, now_s: float) -> None:
        verdict = self.model.verdict(tokens, now_s)
        self.answers.append((now_s, verdict.status))
        took_s = self._random.uniform(0.1, 3.0) if verdict.status == OK else 0.01
        if verdict.status == TOO_MANY:
            after_s = took_s + (verdict.retry_after_s or 1.0)
            self._at(now_s + took_s, lambda then_s: process.throttle(then_s + after_s))
        self._at(now_s + took_s, lambda _: process.end(self._tokens))
