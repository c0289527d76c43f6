"""The slot of a job without stages: each mini-batch is in one place, also between two leases."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

from daskprs._agent.protocol.messages import Outcomes
from daskprs._agent.protocol.shared_page import NOTHING, Activity, Phase, SharedPage, new_page
from daskprs._agent.supervision.lease_run import LeaseRun
from daskprs._agent.supervision.slot import Slot
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentAssignment, Lease
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs._core.outcomes import Failure, Results, Status
from tests.support.odd_agent import OddAgent, outcome_by_chance, places_of


class StandIn(Slot):
    """A slot whose agents are stand-ins."""

    def __init__(self, draw: Random) -> None:
        super().__init__(Any)
        self._draw = draw

    def _started(self, assignment: AgentAssignment) -> Any:
        del assignment
        self._agent = OddAgent(self._draw)  # type: ignore[assignment]
        return self._agent


def lease_of(number: int, work: range, continues: int | None, **more: Any) -> Lease:
    """Return a lease; one that continues no other brings an agent along."""
    return Lease(
        number,
        ColumnBatch(Assigned(MiniBatch(one, None, ""), 1) for one in work),
        continues=continues,
        assignment=AgentAssignment("process000", {}, 1) if continues is None else None,
        return_after_s=0.0,
        **more,
    )


def test_each_mini_batch_is_in_exactly_one_place(monkeypatch: Any) -> None:
    """Whatever fails, dies, hangs or halts, in any order, and whoever looks between two leases."""
    monkeypatch.setattr(LeaseRun, "hold_back_s", 0.0)
    ended_between = 0
    for seed in range(200):
        draw = Random(seed)  # noqa: S311 - nothing is to be kept secret
        slot = StandIn(draw)
        running, next_ = set[int](), 0
        for number in range(1, 30):
            work = range(next_, next_ := next_ + draw.randint(0 if running else 1, 6))
            given = sorted([*running, *work])
            lease = lease_of(number, work, number - 1 if running else None)
            assert places_of(slot, lease, running) == given, seed
            for _ in range(draw.randint(0, 3)):
                if slot.is_unwatched:
                    slot.watch()
            ended_between += slot._ended_between is not None
        slot.stop()
    assert ended_between > 30


def test_an_agent_that_hangs_between_two_leases_is_ended_there() -> None:
    """The next lease has its timeout, and hands back the work that it has brought."""
    draw = Random(1)  # noqa: S311
    slot = StandIn(draw)
    first = slot.run(lease_of(1, range(3), None, return_when_ready=True))
    assert first.running == (0, 1, 2)
    agent: Any = slot._agent
    agent.receive, agent.drain = lambda _: [], list
    failure = Failure("TimeoutError", "run() took too long")
    agent.timeout = lambda _: failure
    slot.watch()
    assert slot.is_unwatched
    assert not agent.gone
    agent.overdue = lambda: Activity(Phase.RUNNING, 0, 1, agent.order, NOTHING, 0, 4)
    slot.watch()
    assert agent.gone
    assert not slot.is_unwatched
    second = slot.run(lease_of(2, range(3, 5), 1))
    (outcome,) = (one for made in second.results for one in made.outcomes)
    assert (outcome.status, outcome.failure) == (Status.RUN_TIMEOUT, failure)
    assert sorted([outcome.index, *second.untouched]) == [0, 1, 2, 3, 4]
    assert (second.lease_id, second.running) == (2, ())
    assert not slot.is_staffed


def test_what_ends_between_two_leases_is_handed_back_at_once() -> None:
    """The look between them has read the last message: the next one has none to wait for."""
    slot = StandIn(Random(1))  # noqa: S311
    first = replace(lease_of(1, range(3), None, return_when_ready=True), return_after_s=1.0)
    slot.run(first)
    agent: Any = slot._agent
    done = [outcome_by_chance(Random(1), index) for index in range(3)]  # noqa: S311
    told = [Outcomes(agent.order, Results(ColumnBatch(done)))]
    waited: list[float] = []

    def receive(within_s: float) -> list[Any]:
        waited.append(within_s)
        return [told.pop()] if told else []

    agent.receive = receive
    slot.watch()
    second = slot.run(lease_of(2, range(0), 1))
    assert waited == [0.0, 0.0]
    assert [one.index for made in second.results for one in made.outcomes] == [0, 1, 2]


def test_an_agent_that_ends_while_its_page_is_read_has_no_state() -> None:
    """Another thread closes the page."""
    slot = StandIn(Random(1))  # noqa: S311
    slot.run(lease_of(1, range(3), None, return_when_ready=True))
    agent: Any = slot._agent
    fd = new_page()
    page = SharedPage(fd)
    os.close(fd)

    def look() -> Activity:
        activity = page.look()
        page.close()
        return activity

    agent.page.look, agent.page.printed = look, page.printed
    state = slot.state()
    assert (state.place.process, state.phase, state.index) == ("", "starting", None)


def test_an_agent_that_shuts_down_is_left_alone() -> None:
    """It may have work, in a job that was interrupted, and take its time."""
    slot = StandIn(Random(1))  # noqa: S311
    slot.run(lease_of(1, range(3), None, return_when_ready=True))
    agent: Any = slot._agent
    agent.receive, agent.drain = lambda _: [], list
    agent.overdue = lambda: Activity(Phase.SHUTDOWN, 0, 1, agent.order, NOTHING, 0, 4)
    exited = agent.stop()

    def stop() -> Any:
        slot.watch()  # as another thread does meanwhile
        assert not agent.gone
        return exited

    agent.stop = stop
    assert slot.stop() == (exited,)
