"""Several calls at a time: what the page shows of them, and who pays for the end of their agent."""

from __future__ import annotations

import asyncio
import io
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._agent.child import coroutines
from daskprs._agent.child.attempt_run import CallTimeout
from daskprs._agent.child.call_lines import CallPrints
from daskprs._agent.child.coroutines import Coroutines
from daskprs._agent.protocol import shared_page
from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.protocol.shared_page import Phase
from daskprs._agent.supervision.calls_run import CallsRun
from daskprs._agent.supervision.lease_run import blame_death, blame_timeout
from daskprs._core.calls import OF_CALLS_S
from daskprs._core.columnar import ColumnBatch
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Results, Status
from tests.agent.test_shared_page import both_sides
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WHY = Failure("PROCESS_DIED", "process000 exits with returncode -9 (SIGKILL)")


def outcomes(*indexes: int, attempt: int = 1) -> Outcomes:
    """Return the message of an agent that has done these."""
    done = (Outcome(one, attempt, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0) for one in indexes)
    return Outcomes(7, Results(ColumnBatch(done)))


def work(first: int, count: int) -> ColumnBatch[Assigned]:
    """Return mini-batches, of which the first has this index."""
    return ColumnBatch(
        Assigned(MiniBatch(first + n, None, f"{n}", items=1), 1) for n in range(count)
    )


@pytest.fixture
def run() -> CallsRun:
    """Return the record of an order with mini-batches 100 to 109, three calls at a time."""
    return CallsRun(7, work(100, 10), 1.0, 3)


def test_outcomes_come_in_any_order_and_once(run: CallsRun) -> None:
    """What an agent was not given, or has reported before, is none of its own."""
    assert run.expects(outcomes(105, 100))
    run.receive(outcomes(105, 100))
    assert not run.expects(outcomes(105))
    assert not run.expects(outcomes(101, 101))
    assert not run.expects(outcomes(101, attempt=2))
    assert not run.expects(outcomes(110))
    run.extend(work(110, 1))
    assert run.expects(outcomes(110))
    assert {*run.left} == {*range(100, 111)} - {105, 100}
    run.receive(outcomes(*run.left))
    assert run.finished


def test_what_is_not_begun_is_given_back_behind_calls_that_take_long(run: CallsRun) -> None:
    """The position behind which it lies is the last that a thread has claimed."""
    run.receive(outcomes(101))
    assert run.keep(4) == (105, 106, 107, 108, 109)
    assert {*run.left} == {100, 102, 103, 104}
    run.extend(work(200, 1))
    assert run.indexes(5, 6) == (200,)


def test_what_the_driver_wants_back_is_given_back_at_once(run: CallsRun) -> None:
    """Nothing need take long for that, and it is asked for once."""
    assert not run.stuck
    run.is_wanted = True
    assert run.stuck
    assert run.due_in_s() == 0.0
    assert run.keep(2) == tuple(range(103, 110))
    assert not run.stuck
    assert not run.is_wanted


def test_results_are_handed_back_soon_where_the_agent_may_have_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else they wait for others, and with the agent's own wait no longer than a second."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    run = CallsRun(7, work(100, 10), 1.0, 3)
    run.receive(outcomes(100))
    assert run.due_in_s() == pytest.approx(1.0 - OF_CALLS_S)
    run.receive(outcomes(*range(101, 108)))
    assert (run.due_in_s() or 0.0) <= 0.1
    run.receive(outcomes(108, 109))
    assert run.due_in_s() == 0.0


@pytest.mark.parametrize(("done", "due_s"), [(200, 0.0), (9, 1.0 - OF_CALLS_S - 0.1)])
def test_quick_calls_get_more_work_before_they_have_none(
    done: int, due_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits may be done before more can be there."""
    clock_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    run = CallsRun(7, work(100, 300), 1.0, 3)
    run.receive(outcomes(100))
    clock_s[0] += 0.1
    run.receive(outcomes(*range(101, 100 + done)))
    assert run.due_in_s() == pytest.approx(due_s)


@pytest.fixture
def page() -> Iterator[tuple[Any, Any]]:
    """Return both sides of a page of an agent with three calls, which is at work on order 7."""
    both: Any = both_sides()
    with both as (agent, supervisor):
        supervisor.calls = 3
        agent.calls_of = [agent.call(number) for number in range(3)]
        agent.enter(Phase.IDLE)
        agent.begin_lease(7)
        yield agent, supervisor


def test_the_most_urgent_call_is_seen_first(page: tuple[Any, Any], run: CallsRun) -> None:
    """One that was told to end, then the one that has run for longest; one that loads is last."""
    agent, supervisor = page
    first, second, third = agent.calls_of
    assert supervisor.look().position == shared_page.NOTHING
    first.enter(Phase.LOADING, 4, 1)
    second.enter(Phase.RUNNING, 5, 1)
    third.enter(Phase.RUNNING, 6, 1)
    seen = supervisor.look()
    assert (seen.position, {*seen.beside}) == (5, {4, 6})
    third.enter(Phase.CANCELING, 6, 1)
    assert supervisor.look().position == 6
    excused_ns = time.monotonic_ns()
    first.excuse()
    agent.beat(blocking=4)
    assert supervisor.look().position == 4
    assert supervisor.look().since_ns >= excused_ns
    blame = blame_timeout(run, supervisor.look(), WHY)
    (outcome,) = blame.outcomes
    assert (outcome.index, outcome.status) == (104, Status.LOAD_TIMEOUT)
    assert 105 in blame.untouched


def test_all_calls_that_are_late_at_a_kill_are_blamed(page: tuple[Any, Any], run: CallsRun) -> None:
    """But for those that wait for one which keeps the loop, and what is done meanwhile."""
    agent, supervisor = page
    agent.beat()
    for number, call in enumerate(agent.calls_of):
        call.enter(Phase.RUNNING, number, 1)
    seen = supervisor.look()
    beside = supervisor.beside(seen)
    assert [one.position for one in beside] == [1, 2]
    run.receive(outcomes(102))
    blame = blame_timeout(run, seen, WHY, late=beside)
    assert [one.index for one in blame.outcomes] == [100, 101]
    assert {one.status for one in blame.outcomes} == {Status.RUN_TIMEOUT}
    assert not {100, 101} & {*blame.untouched}
    assert not supervisor.beside(seen._replace(is_mute=True))
    agent.beat(blocking=0)
    assert not supervisor.beside(supervisor.look())


def test_a_call_that_waits_for_others_of_its_process_is_not_late(page: tuple[Any, Any]) -> None:
    """The one that has the turn may be."""
    agent, supervisor = page
    first, second, _ = agent.calls_of
    first.enter(Phase.RUNNING, 1, 1)
    first.wait(waits=True)
    asked_ns = time.monotonic_ns()
    assert supervisor.look().since_ns >= asked_ns
    second.enter(Phase.RETURNING, 2, 1)
    assert (supervisor.look().position, supervisor.look().beside) == (2, (1,))
    first.wait(waits=False)
    assert supervisor.look().phase is Phase.RUNNING
    assert supervisor.look().since_ns < asked_ns


def test_a_death_suspects_all_calls_under_way(page: tuple[Any, Any], run: CallsRun) -> None:
    """Also one after which none of the agent's threads could run; what is done is done."""
    agent, supervisor = page
    first, second, _ = agent.calls_of
    first.enter(Phase.RUNNING, 0, 1)
    second.enter(Phase.RUNNING, 3, 1)
    run.receive(outcomes(102))
    death = blame_death(run, supervisor.look(), WHY).death
    assert death is not None
    assert {one.index for one in death.suspects} == {100, 103}
    second.rest()
    first.enter(Phase.CANCELING, 0, 1)
    death = blame_death(run, supervisor.look(), WHY).death
    assert death is not None
    assert [one.index for one in death.suspects] == [100]
    first.enter(Phase.RETURNING, 2, 1)  # it has sent what it made
    assert blame_death(run, supervisor.look(), WHY).death is None
    first.enter(Phase.RUNNING, 0, 1)
    second.enter(Phase.RUNNING, 3, 1)
    mute = supervisor.look()._replace(is_mute=True)
    blame = blame_timeout(run, mute, WHY)
    assert blame.death is not None
    assert {one.status for one in blame.death.suspects} == {Status.RUN_TIMEOUT}
    assert {*blame.untouched} == {*run.left} - {100, 103}


def call(
    loop: Coroutines,
    awaitable: Any,
    position: int,
    timeout_s: float,
    canceling: Callable[[], None],
) -> Any:
    """Make a call in the loop, for a thread that waits for it."""

    async def attempt() -> Any:
        loop.is_of(position)
        return await loop.call(awaitable, position, timeout_s, canceling)

    return loop.result(attempt())


class Clock:
    """A clock that stands still, but for who blocks a loop.

    On a real one, a machine that stops for a second would be somebody who blocks the loop, too.
    """

    def __init__(self, loop: Coroutines) -> None:
        self.now_s = 0.0
        self.blocking: list[int] = []
        self.places = ""
        self._loop = loop
        self._is_seen = threading.Event()

    def monotonic(self) -> float:
        """Return the seconds."""
        return self.now_s

    def block(self) -> None:
        """Block the loop for a thousand seconds, until the main thread has seen it."""
        assert poll_for(lambda: not self._loop._has_turned)  # a turn was asked for before
        self._is_seen.clear()
        self.now_s += 1000
        assert self._is_seen.wait(60)

    def look_while(self, *work: Callable[[], None]) -> None:
        """Look after the loop until all is done, as the main thread of an agent does."""
        threads = [threading.Thread(target=one, daemon=True) for one in work]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.places += self._loop.look()
            if self._loop.blocking != shared_page.NOTHING:
                self.blocking.append(self._loop.blocking)
                self._is_seen.set()
            time.sleep(0.01)


@pytest.fixture
def loop() -> Iterator[Coroutines]:
    """Yield the loop of an agent, and end it."""
    made = Coroutines()
    yield made
    made.close()


@pytest.fixture
def clock(loop: Coroutines, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the loop."""
    made = Clock(loop)
    monkeypatch.setattr(coroutines, "time", made)
    return made


def test_the_time_for_which_another_coroutine_blocks_the_loop_does_not_count(
    loop: Coroutines, clock: Clock
) -> None:
    """The innocent one ends by itself."""
    canceled: list[str] = []
    begun, over = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        await over.wait()
        await asyncio.sleep(0.2)  # meanwhile its time is looked at

    async def blocks() -> None:
        await begun.wait()
        clock.block()
        over.set()

    def innocent() -> None:
        call(loop, waits(), 1, 0.1, lambda: canceled.append("innocent"))

    clock.look_while(innocent, lambda: call(loop, blocks(), 2, 2000, lambda: None))
    assert not canceled
    assert {*clock.blocking} == {2}
    assert "in block: assert self._is_seen.wait(60)" in clock.places


def test_a_call_that_takes_too_long_is_told_and_canceled(loop: Coroutines) -> None:
    """Its error names `run`."""
    canceled: list[str] = []
    with pytest.raises(CallTimeout, match=r"run\(\) exceeded 0.05 s") as caught:
        call(loop, asyncio.sleep(1000), 3, 0.05, lambda: canceled.append("late"))
    (told,) = traceback.format_exception_only(caught.value)
    assert told.startswith("TimeoutError: run()")
    assert canceled == ["late"]


def test_a_task_of_a_call_that_blocks_the_loop_is_known_and_a_callback_is_somebody(
    loop: Coroutines, clock: Clock
) -> None:
    """What blocks it counts for the call itself."""
    over = asyncio.Event()

    def blocks() -> None:
        clock.block()
        over.set()

    async def sleeps() -> None:
        clock.block()

    async def gathers() -> None:
        asyncio.get_running_loop().call_soon(blocks)
        await over.wait()
        await asyncio.gather(sleeps(), asyncio.sleep(0))
        await asyncio.sleep(1000)

    def caller() -> None:
        with pytest.raises(CallTimeout):
            call(loop, gathers(), 5, 0.1, lambda: None)

    clock.look_while(caller)
    assert list(dict.fromkeys(clock.blocking)) == [shared_page.SOMEBODY, 5]


def test_a_line_without_an_end_is_written_before_it_gets_long() -> None:
    """To put a progress bar together again at each of its steps takes longer and longer."""
    stream, call = io.StringIO(), CallPrints(7)
    for _ in range(100):
        call.write(stream, "\r" + 99 * "=")
    assert stream.getvalue().startswith("[7] \r===")
    assert len(stream.getvalue()) > 8192
    call.end()
    assert len(stream.getvalue()) == 100 * 100 + 2 * len("[7] \n")


def test_the_loop_goes_on_whatever_a_coroutine_raises(loop: Coroutines) -> None:
    """A call that ends its interpreter, or stops the loop, costs no other call."""

    async def ends() -> None:
        raise SystemExit(3)

    async def stops() -> int:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return 7

    with pytest.raises(SystemExit):
        loop.result(ends())
    assert loop.result(stops()) == 7
