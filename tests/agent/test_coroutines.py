"""The loop of an agent, without one."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, suppress

from daskprs._agent.child.coroutines import Coroutines


def test_a_call_that_waits_with_little_time_left_is_seldom_looked_at() -> None:
    """What it has left stays the same, and a thousand looks a second would fill the loop."""
    looks = 0
    since_s: float | None = None

    def waited_s() -> float:
        nonlocal looks
        looks += 1
        return 0.0 if since_s is None else time.monotonic() - since_s

    async def run() -> None:
        nonlocal since_s
        await asyncio.sleep(0.199)
        since_s = time.monotonic()
        await asyncio.sleep(0.5)

    # On a slow machine it is late before it waits.
    with closing(Coroutines()) as coroutines, suppress(TimeoutError):
        coroutines.result(coroutines.call(run(), 0, 0.2, lambda: None, waited_s))
    assert looks < 50


def test_each_of_the_calls_that_are_ready_together_begins_its_request_at_once() -> None:
    """If each waited for the others, all requests would begin, and be answered, together."""
    steps = []

    async def request(number: int) -> None:
        steps.append(f"begins {number}")
        await asyncio.sleep(0)

    async def attempt(number: int) -> None:
        steps.append(f"goes on {number}")
        await coroutines.call(request(number), number, 60, lambda: None)

    async def both() -> None:
        await asyncio.gather(attempt(0), attempt(1))

    with closing(Coroutines()) as coroutines:
        coroutines.result(both())
    assert steps == ["goes on 0", "begins 0", "goes on 1", "begins 1"]
