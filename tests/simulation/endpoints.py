"""An endpoint that the script calls: what it refuses, and what it and the script count."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.child.permits import LONGEST_S, Permits
from daskprs._agent.protocol.shared_page import PermitSums, Phase
from daskprs._core.governor import BURST_S, SHARE
from tests.simulation.items import GOOD, REFUSED
from tests.simulation.promises import demand
from tests.simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from daskprs._core.rate_limit import RateLimit
    from tests.simulation.agents import Agent
    from tests.simulation.calls import Call

LOOK_EVERY_S = 0.25
"""Seconds between the looks of a call that waits, and of a worker: a fifth as many as in
production, to save time."""
HEARD_S = 1.0
"""Seconds in which all processes hear of a pause, beside those of messages."""
TOLD_S = 10.0
"""Seconds in which the driver of a job has heard of an answer."""
SILENT_S = LONGEST_S + 30.0
"""Seconds in which a job sends some request, whatever it was asked to wait."""
HOLD_S = 60.0
"""Seconds for which a process begins nothing after a quota is spent."""
FIRST_PAID = 10
"""Half of the requests, or tokens, that somebody pays for before the first resume."""
TOKENS = "tokens"
"""What the script counts, beside calls."""


def tokens_of(index: int) -> int:
    """Return the tokens of the request of a mini-batch."""
    return 1 + index % 5


@dataclass(frozen=True)
class Endpoint:
    """What a seed decides of an endpoint."""

    limit: RateLimit | None = None
    """The limits that the job has to keep."""
    refuses: float = 0.0
    """Share of the requests that it refuses at random."""
    after_s: float | None = None
    """Seconds after which it wants the next one, where it says so."""
    bursts: tuple[tuple[float, float], ...] = ()
    """Times in which it refuses all requests, from and until."""
    quota: int | None = None
    """Requests until the quota is spent; somebody pays for more before a resume."""
    usage_limit: float | None = None
    """The limit of tokens; before a resume it is raised."""


class Refusal(NamedTuple):
    """An answer that says "too many requests"."""

    after_s: float | None
    is_final: bool = False
    """Whether the quota is spent."""


class Server:
    """The endpoint at work: it checks how the limits are kept, and counts what it has answered.

    Parameters
    ----------
    endpoint
        What the seed has decided.
    rng
        Decides which requests it refuses.
    is_quiet
        Says whether nothing has befallen the cluster: else permits that had been used may have gone
        back with the process that had them.
    latency_s
        The most seconds that a message takes.

    """

    def __init__(
        self, endpoint: Endpoint, rng: random.Random, is_quiet: Callable[[], bool], latency_s: float
    ) -> None:
        self._endpoint = endpoint
        self._rng = rng
        self._is_quiet = is_quiet
        self._heard_s = HEARD_S + 6 * latency_s
        self._left = endpoint.quota
        self._paid = FIRST_PAID
        self.usage_limit = endpoint.usage_limit
        self.tokens = 0
        """Those of all requests that it has answered."""
        self.refused = 0
        self._refused_s = -inf
        """When it has last refused a request."""
        self._succeeded_s: list[float] = []
        """When calls have succeeded."""
        self._under_way: list[Agent] = []
        """The agent of each request."""
        self._pauses: list[tuple[float, float, Agent]] = []
        """From when until when it wants no request, and who knows that at once."""
        limit = endpoint.limit
        self._requests = _Level(None if limit is None else limit.requests_per_minute)
        self._tokens = _Level(None if limit is None else limit.tokens_per_minute)

    def begin(self, agent: Agent, tokens: int) -> None:
        """Take a request."""
        now_s, limit, is_quiet = now().now_s, self._endpoint.limit, self._is_quiet()
        for from_s, until_s, told in self._pauses:
            is_known = told is agent or (
                is_quiet and limit is not None and now_s > from_s + self._heard_s
            )
            is_paused = from_s < now_s < until_s and is_known
            demand(not is_paused, f"a request begins in a pause from {from_s} to {until_s} s")
        self._under_way = [one for one in self._under_way if one.lives]
        self._under_way.append(agent)
        requests, used = self._requests.after(1), self._tokens.after(tokens)
        if not is_quiet or limit is None:
            return
        most = limit.in_flight
        count = len(self._under_way)
        demand(most is None or count <= most, f"{count} requests are in flight, and not {most}")
        demand(requests >= 0, f"a request begins where {requests:.2f} are left of the rate")
        # At a lower rate, a request that is larger than a second's worth begins with less.
        is_right = used >= 0 or self.refused > 0
        demand(is_right, f"a request begins where {used:.2f} tokens are left of the rate")

    def end(self, agent: Agent) -> None:
        """Note that a request has ended, with or without an answer."""
        if agent in self._under_way:
            self._under_way.remove(agent)

    def answer(self, agent: Agent, tokens: int, *, is_refused: bool) -> Refusal | None:
        """Answer a request; return a refusal, or None."""
        self.end(agent)
        now_s, endpoint = now().now_s, self._endpoint
        is_burst = any(from_s <= now_s < until_s for from_s, until_s in endpoint.bursts)
        if self._left == 0:
            refusal = Refusal(None, is_final=True)
        elif is_refused or is_burst or self._rng.random() < endpoint.refuses:
            refusal = Refusal(endpoint.after_s)
        else:
            self.tokens += tokens
            self._left = None if self._left is None else self._left - 1
            return None
        self.refused += 1
        self._refused_s = now_s
        if refusal.after_s is not None:
            self._pauses.append((now_s, now_s + refusal.after_s - 1e-6, agent))
        return refusal

    def succeed(self) -> None:
        """Note a call that has succeeded."""
        self._succeeded_s.append(now().now_s)

    def check_refusals(self, timeout_s: float) -> None:
        """Check that a job may end since all its requests were refused for so long.

        A process that was refused a few times in a row sends one request in a minute. So one that
        refuses some of them by chance may refuse all for that long.
        """
        if not self._is_quiet():
            return
        now_s = now().now_s
        heard = [at_s for at_s in self._succeeded_s if -timeout_s < at_s - now_s < -TOLD_S]
        demand(not heard, f"not all requests were refused: calls have succeeded at {heard} s")
        silent_s = now_s - self._refused_s
        demand(silent_s < SILENT_S, f"a job that was refused sends nothing for {silent_s:.0f} s")

    def pay(self) -> None:
        """Raise the quota, and the limit of tokens, before a resume."""
        # Each time more: a resume makes the tries of what has failed anew.
        self._paid *= 2
        self._left = None if self._left is None else self._paid
        if self.usage_limit is not None:
            self.usage_limit = max(self.usage_limit, self.tokens) + self._paid


class _Level:
    """What a limit leaves: it accrues, up to a second's worth or one."""

    def __init__(self, per_minute: float | None) -> None:
        self._per_s = 0.0 if per_minute is None else per_minute / 60
        self._is_endless = per_minute is None
        self._most = max(1.0, self._per_s * BURST_S)
        self._level = self._most
        self._at_s = 0.0

    def after(self, amount: int) -> float:
        """Take an amount; return what is left, or is left over of one that is larger than all."""
        if self._is_endless:
            return 0.0
        passed_s, self._at_s = now().now_s - self._at_s, now().now_s
        self._level = min(self._most, self._level + passed_s * self._per_s)
        lent = max(0.0, amount - SHARE * self._most)
        self._level -= amount
        return self._level + lent + 1e-6


class Requests:
    """The requests of an agent, with permits as in production.

    Parameters
    ----------
    agent
        Whose they are.
    server
        The endpoint.
    limit
        The limits of the job.
    rng
        Decides how long pauses are of which the endpoint does not say it.

    """

    def __init__(
        self, agent: Agent, server: Server, limit: RateLimit | None, rng: random.Random
    ) -> None:
        self._agent = agent
        self._server = server
        self.page = _PermitsPage()
        self._permits = Permits(self.page, limit)  # type: ignore[arg-type]
        self._permits._random = rng
        self.counted: list[tuple[float, int]] = []
        """The tokens that the script has counted, and when."""

    @property
    def tokens(self) -> int:
        """The sum of these."""
        return sum(tokens for _, tokens in self.counted)

    def begun(self, call: Agent | Call, position: int, index: int) -> Iterator[float]:
        """Wait until a call may begin, and then for the permit of its request."""
        permits, tokens = self._permits, tokens_of(index)
        call.enter(Phase.WAITING, position, 1)
        if permits._paused_s() > 0:
            self._agent.flush()
        while (left_s := permits._paused_s()) > 0:
            yield min(LOOK_EVERY_S, left_s)
        if permits.take(tokens):
            self._server.begin(self._agent, tokens)
        else:
            yield from self._awaited(tokens)
        call.enter(Phase.RUNNING, position, 1)

    def _awaited(self, tokens: int) -> Iterator[float]:
        """Wait for a permit; the request begins as soon as it is there, as in production."""
        waiter: Any = None
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            if waiter is not None and waiter.is_served and not is_begun:
                is_begun = True
                self._server.begin(self._agent, tokens)

        waiter = self._permits.ask(tokens, begin)
        begin()
        while not waiter.is_served:
            yield LOOK_EVERY_S
            self._agent.flush()
            self._permits.pump()

    def canceled(self) -> None:
        """Note that a request has ended without an answer."""
        self._server.end(self._agent)
        self._end()

    def ended(self, index: int, what: str) -> Refusal | None:
        """Return what the endpoint has answered, None if it has not refused; count its tokens."""
        tokens = tokens_of(index)
        refusal = self._server.answer(self._agent, tokens, is_refused=what == REFUSED)
        if refusal is None:
            self.counted.append((now().now_s, tokens))
        else:
            self._permits.throttle(HOLD_S if refusal.is_final else refusal.after_s)
        self._end()
        if refusal is None and what == GOOD:
            self._permits.succeed()
            self._server.succeed()
        return refusal

    def _end(self) -> None:
        if self._permits.limit is not None:
            self._permits.end()


class _PermitsPage:
    """What agent and supervisor say of permits, as the shared page has it."""

    def __init__(self) -> None:
        self._granted = (0, 0, 0, 0)
        self._sums = PermitSums()

    def tell_permits(self, sums: PermitSums) -> None:
        """Say what the agent has done with its permits."""
        self._sums = sums

    def granted(self) -> tuple[int, int, int, int]:
        """Return what was granted."""
        return self._granted

    def grant(self, granted: int, tokens: int, most: int, paused_ns: int) -> tuple[int, int]:
        """Grant permits: what was taken cannot be taken back."""
        has = max(granted, self._sums.taken), max(tokens, self._sums.tokens_taken)
        self._granted = (*has, most, paused_ns)
        return has

    def permits(self) -> PermitSums:
        """Return what the agent has done with its permits."""
        return self._sums
