"""Permits in an agent, out of those that its page has: in order, for coroutines and for threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import daskprs
from daskprs._agent.child.permits import CallPermits, Permits
from daskprs._agent.foreign.entry_script import CallTools, MiniBatchContext
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._core.governor import ENDLESS
from daskprs._core.rate_limit import RateLimit
from daskprs.errors import OptionError
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT = RateLimit(requests_per_minute=600, tokens_per_minute=1000)


class Waits:
    """An attempt that notes whether it waits."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def pause(self) -> None:
        """Note it."""
        self.said.append("waits")

    def go_on(self) -> None:
        """Note it."""
        self.said.append("goes on")


class Desk:
    """An agent's permits, a call, and the supervisor's side of the page."""

    def __init__(self, page: SharedPage, supervisor: SharedPage, limit: RateLimit | None) -> None:
        self.page = supervisor
        self.permits = Permits(page, limit)
        self.attempt = Waits()
        self.call = CallPermits(self.permits, self.attempt)
        self.context = MiniBatchContext(0, _tools=CallTools(permits=self.call))

    def grant(self, count: int, tokens: int = ENDLESS, most: int = ENDLESS) -> None:
        """Grant so many permits in all."""
        self.page.grant(count, tokens, most, 0)


@contextmanager
def desk(limit: RateLimit | None = LIMIT) -> Iterator[Desk]:
    """Yield the permits of an agent."""
    fd = new_page()
    agent, supervisor = SharedPage(fd), SharedPage(fd)
    os.close(fd)
    try:
        yield Desk(agent, supervisor, limit)
    finally:
        agent.close()
        supervisor.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait in a coroutine."""
    for _ in range(3000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_coroutines_get_what_was_granted_in_the_order_in_which_they_asked() -> None:
    with desk() as it:
        it.grant(2)
        got: list[int] = []

        async def ask(number: int) -> None:
            await it.context.permit(tokens=3)
            got.append(number)

        async def main() -> None:
            tasks = [asyncio.create_task(ask(number)) for number in range(4)]
            await until(lambda: len(got) == 2)
            sums = it.page.permits()
            assert (sums.taken, sums.waiting, sums.tokens_wanted) == (2, 2, 6)
            assert sums.tokens_wanted_first == 3
            it.grant(4)
            await asyncio.gather(*tasks)

        asyncio.run(main())
        assert got == [0, 1, 2, 3]
        assert it.attempt.said == ["waits", "goes on"], "one stretch for all"


def test_a_plain_function_waits_in_its_thread() -> None:
    with desk() as it:
        threads = [threading.Thread(target=it.context.permit) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert poll_for(lambda: it.page.permits().waiting == 3)
        it.grant(3)
        for thread in threads:
            thread.join()
        assert it.page.permits().taken == 3


def test_a_permit_is_given_back_by_the_next_one_a_block_and_the_end_of_the_call() -> None:
    with desk() as it:
        it.grant(10, most=1)
        it.context.permit()
        assert it.page.permits().ended == 0
        it.context.permit()
        assert it.page.permits().ended == 1
        with it.context.permit():
            assert it.page.permits().ended == 2
        assert it.page.permits().ended == 3
        it.context.permit()
        it.call.end()
        it.call.end()
        assert it.page.permits()[:3] == (4, 0, 4)


def test_requests_at_the_same_time_of_one_call_have_a_permit_each() -> None:
    """As many are under way as may be, and each gives its own back when its task ends."""
    with desk(RateLimit(in_flight=2)) as it:
        it.grant(ENDLESS, most=2)
        most = now = 0

        async def ask() -> None:
            nonlocal most, now
            async with it.context.permit():
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.01)
                now -= 1

        async def main() -> None:
            await asyncio.gather(*(ask() for _ in range(8)))

        asyncio.run(main())
        assert most == 2
        assert it.page.permits().ended == 8


def test_tokens_are_corrected_to_what_the_answer_says() -> None:
    with desk() as it:
        it.grant(10, tokens=100)
        it.context.permit(tokens=60)
        it.context.used(tokens=20)
        assert it.page.permits().tokens_taken == 20
        with it.context.permit(tokens=50):
            pass
        it.context.used(tokens=90)
        assert it.page.permits().tokens_taken == 110


def test_what_is_taken_back_is_not_taken_any_more() -> None:
    """What was taken before stays."""
    with desk() as it:
        it.grant(5)
        it.context.permit()
        it.grant(0)
        assert it.page.granted()[0] == 1
        waiter = it.permits.ask(0, lambda: None)
        assert not waiter.is_served
        assert it.page.permits().taken == 1
        assert it.permits.leave(waiter)


def test_a_canceled_wait_leaves_the_queue() -> None:
    with desk() as it:

        async def main() -> None:
            task = asyncio.ensure_future(_awaited(it.context.permit()))
            await until(lambda: it.page.permits().waiting == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert it.page.permits()[:5] == (0, 0, 0, 0, 0)
        assert it.attempt.said == ["waits", "goes on"]


async def _awaited(permit: Any) -> None:
    await permit


def test_a_pause_holds_permits_and_is_told_to_all() -> None:
    with desk() as it:
        it.grant(5)
        it.permits.throttle(0.2)
        sums = it.page.permits()
        assert sums.throttled == 1
        assert sums.paused_ns > time.monotonic_ns()
        it.context.permit()
        assert time.monotonic_ns() >= sums.paused_ns


def test_a_pause_of_another_process_holds_them_too() -> None:
    with desk() as it:
        until_ns = time.monotonic_ns() + 200_000_000
        it.page.grant(5, ENDLESS, ENDLESS, until_ns)
        it.context.permit()
        assert time.monotonic_ns() >= until_ns


def test_refusals_of_requests_that_were_under_way_together_make_one_pause() -> None:
    with desk(None) as it:
        it.permits.throttle(None)
        first = it.permits._backoff_s
        it.permits.throttle(None)
        assert it.permits._backoff_s == first == 1.0


def test_more_tokens_than_a_minute_allows_are_refused_at_once() -> None:
    with desk() as it, pytest.raises(OptionError, match="1000 tokens in a whole minute"):
        it.context.permit(tokens=1001)


def test_tokens_are_whole_numbers_and_others_change_nothing() -> None:
    """Those of NumPy are some: scripts add up columns. A limit or none makes no difference."""
    for limit in (LIMIT, None):
        with desk(limit) as it:
            it.grant(9)
            for odd in (-1, 1.5, None, "7", 1 << 63):
                with pytest.raises(OptionError, match="a whole number from 0"):
                    it.context.permit(tokens=odd)  # type: ignore[arg-type] # as scripts do
                with pytest.raises(OptionError, match="a whole number from 0"):
                    it.context.used(tokens=odd)  # type: ignore[arg-type] # likewise
            it.context.permit(tokens=np.int64(40))  # type: ignore[arg-type] # likewise
            it.context.used(tokens=np.int32(30))  # type: ignore[arg-type] # likewise
            assert it.page.permits().tokens_taken == (0 if limit is None else 30)


def test_without_a_limit_a_permit_is_there_at_once() -> None:
    """The same script works with the option and without it, under any interpreter."""

    async def main(context: MiniBatchContext) -> None:
        await context.permit(tokens=10**9)
        async with context.permit():
            context.used(tokens=3)

    for context in (MiniBatchContext(0),):
        context.permit()
        with context.permit():
            context.used(tokens=5)
        asyncio.run(main(context))
    with desk(None) as it:
        it.context.permit(tokens=10**9)
        asyncio.run(main(it.context))
        assert it.page.permits()[:3] == (0, 0, 0)


FORGETS = """
async def run(rows, context):
    context.permit()
    await context.permit()
    return rows
"""


def test_a_permit_that_is_not_awaited_is_told_once(tmp_path: Path) -> None:
    """With its line, however many calls there are."""
    (tmp_path / "forgets.py").write_text(FORGETS)
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(3)}),
        tmp_path / "forgets.py",
        mini_batch_size="1 row",
        start_method="inline",
        rate_limit=LIMIT,
        job_dir=tmp_path / "job",
        progress=False,
    )
    (line,) = (
        one
        for one in (result.logs_dir / "sys" / "master_role.txt").read_text().splitlines()
        if "not awaited" in one
    )
    assert "|WARNING|" in line
    assert f'File "{tmp_path}/forgets.py", line 3, in run: context.permit(). In a' in line
    assert line.endswith("write await context.permit().")
