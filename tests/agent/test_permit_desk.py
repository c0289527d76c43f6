"""Where a worker reads what its agents say of their permits, and of agents that have ended."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from daskprs._agent.child.permits import Permits
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._agent.supervision.permit_desk import NOBODY, PermitDesk
from daskprs._core.rate_limit import RateLimit

LIMIT = RateLimit(in_flight=1)


class Agent:
    """An agent, and what its supervisor has of it."""

    def __init__(self, desk: PermitDesk, name: str) -> None:
        fd = new_page()
        self.permits = Permits(SharedPage(fd), LIMIT)
        self.supervisor: Any = SimpleNamespace(
            spec=SimpleNamespace(node=0, name=name), gone=False, page=SharedPage(fd)
        )
        os.close(fd)
        desk.admit(self.supervisor)

    def end(self) -> None:
        """End as a process does that its slot takes leave of."""
        self.supervisor.gone = True
        self.supervisor.at_close()
        self.supervisor.page.close()


def test_a_pause_outlives_the_process_that_was_refused_and_ended_before_the_next_look() -> None:
    desk = PermitDesk()
    first = Agent(desk, "first")
    assert desk.look()["0-first-1"].pause_s == 0
    first.permits.throttle(60.0)
    first.end()
    left = desk.look()
    assert [*left] == [NOBODY], "others on other workers hear of it, too"
    assert 50 < left[NOBODY].pause_s <= 60
    Agent(desk, "second")
    reports = desk.look()
    assert [*reports] == ["0-second-2"]
    assert 50 < reports["0-second-2"].pause_s <= 60


def test_a_pause_of_an_ended_process_is_over_when_its_time_is() -> None:
    desk = PermitDesk()
    first = Agent(desk, "first")
    first.permits.throttle(0.0)
    first.end()
    assert desk.look() == {}


def test_a_longer_pause_of_a_process_that_lives_stands() -> None:
    desk = PermitDesk()
    first, second = Agent(desk, "first"), Agent(desk, "second")
    first.permits.throttle(10.0)
    first.supervisor.gone = True  # and its page is still there
    second.permits.throttle(60.0)
    assert desk.look()["0-second-2"].pause_s > 50
