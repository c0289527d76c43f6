"""The shared page: what is read is consistent, and a recall never loses or doubles a position."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.shared_page import NOTHING, Phase, SharedPage, new_page

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGUN_S = time.monotonic()


@contextmanager
def both_sides() -> Iterator[tuple[SharedPage, SharedPage]]:
    """Return two mappings of one page: the agent's and the supervisor's."""
    fd = new_page()
    agent, supervisor = SharedPage(fd), SharedPage(fd)
    os.close(fd)
    try:
        yield agent, supervisor
    finally:
        agent.close()
        supervisor.close()


def test_the_supervisor_sees_what_the_agent_enters() -> None:
    """Phase, position and items come across."""
    with both_sides() as (agent, supervisor):
        agent.begin_lease(3)
        agent.enter(Phase.RUNNING, 2, 17)
        seen = supervisor.look()
        assert (seen.phase, seen.position, seen.total, seen.lease_id) == (Phase.RUNNING, 2, 17, 3)
        assert seen.age_s() >= 0


def test_an_agent_that_starts_has_been_starting_since_its_page_was_made() -> None:
    """Not since the machine was: it would be taken for one that nobody has ended in time."""
    with both_sides() as (_, supervisor):
        seen = supervisor.look()
        assert seen.phase is Phase.STARTING
        assert 0 <= seen.age_s() < time.monotonic() - BEGUN_S


def test_a_recall_before_the_lease_is_picked_up_takes_all_of_it() -> None:
    """The agent hears of it at its first claim."""
    with both_sides() as (agent, supervisor):
        agent.begin_lease(1)
        assert supervisor.recall(2) == NOTHING
        agent.begin_lease(2)
        assert not agent.claim(0, keeps=0)


def test_a_recall_that_was_answered_stands_in_nobodys_way() -> None:
    """Neither in that of what the same lease is given later, nor of another one."""
    with both_sides() as (agent, supervisor):
        agent.begin_lease(1)
        assert agent.claim(0, keeps=0)
        assert supervisor.recall(1) == supervisor.claimed(1) == 0
        assert not agent.claim(1, keeps=0)
        assert agent.claim(1, keeps=1)
        assert supervisor.recall(1) == 1
        agent.begin_lease(2)
        assert supervisor.claimed(2) == NOTHING
        assert agent.claim(0, keeps=2)


def test_at_least_one_side_sees_the_other() -> None:
    """Whenever the agent does not see the recall, the supervisor counts its last claim."""
    with both_sides() as (agent, supervisor):
        for lease_id in range(1, 200):
            agent.begin_lease(lease_id)
            claimed: list[int] = []
            go = threading.Barrier(2)

            def work(
                claimed: list[int] = claimed,
                go: threading.Barrier = go,
                keeps: int = lease_id - 1,
            ) -> None:
                go.wait()
                for position in range(50):
                    if not agent.claim(position, keeps):
                        return
                    claimed.append(position)

            thread = threading.Thread(target=work)
            thread.start()
            go.wait()
            kept = supervisor.recall(lease_id)
            thread.join()
            assert max(claimed, default=NOTHING) <= kept


def test_reading_never_mixes_two_entries() -> None:
    """Position and items are entered equal, and are read equal."""
    with both_sides() as (agent, supervisor):
        stop = threading.Event()

        def work() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                agent.enter(Phase.RUNNING, number, number)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(2000):
                seen = supervisor.look()
                assert seen.position == seen.total or seen.phase is Phase.STARTING
        finally:
            stop.set()
            thread.join()


class Mortal:
    """Cells that end their writer after so many writes."""

    def __init__(self, cells: Any, writes: int) -> None:
        self._cells = cells
        self._writes = writes

    def __getitem__(self, at: int) -> int:
        return int(self._cells[at])

    def __setitem__(self, at: int, value: int) -> None:
        if self._writes == 0:
            raise SystemExit
        self._writes -= 1
        self._cells[at] = value


def test_what_is_read_is_whole_wherever_the_agent_stops() -> None:
    """A phase with the time of another would look as if it had lasted for hours."""
    for writes in range(20):
        with both_sides() as (agent, supervisor):
            real, agent._cells = agent._cells, Mortal(agent._cells, writes)
            with suppress(SystemExit):
                agent.enter(Phase.INIT, 1, 1)
                agent.enter(Phase.RUNNING, 2, 2)
            agent._cells = real
            seen = supervisor.look()
            assert (seen.phase, seen.position, seen.total) in {
                (Phase.STARTING, 0, 0),
                (Phase.INIT, 1, 1),
                (Phase.RUNNING, 2, 2),
            }
            assert seen.phase is Phase.STARTING or seen.age_s() < 60
