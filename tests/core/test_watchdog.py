"""Workers that are not heard of, and slots that should have been ended."""

from __future__ import annotations

from daskprs._core.actions import SlotId
from daskprs._core.events import Place, SlotState
from daskprs._core.watchdog import GRACE_S, SILENT_S, Watchdog

SLOT = SlotId("tcp://host", 0, 0)


def passed(watchdog: Watchdog, seconds: int, *heard: str) -> set[str]:
    """Let time pass in which these are heard; return who is silent."""
    watchdog.tick(passed.now_s)  # type: ignore[attr-defined]
    for _ in range(seconds):
        passed.now_s += 1.0  # type: ignore[attr-defined]
        for worker in heard:
            watchdog.hear(worker)
        watchdog.tick(passed.now_s)  # type: ignore[attr-defined]
    return watchdog.silent


passed.now_s = 0.0  # type: ignore[attr-defined]


def test_a_worker_that_says_nothing_while_others_do_is_silent_until_it_speaks() -> None:
    """Half a minute, as for one that the network has lost."""
    watchdog = Watchdog({})
    watchdog.hear("a")
    watchdog.hear("b")
    assert passed(watchdog, int(SILENT_S), "b") == set()
    assert passed(watchdog, 1, "b") == {"a"}
    watchdog.hear("a")
    assert passed(watchdog, 1, "b") == set()


def test_when_nobody_is_heard_nobody_is_lost() -> None:
    """Then it is the scheduler that hangs, or the network of the driver."""
    watchdog = Watchdog({})
    watchdog.hear("a")
    watchdog.hear("b")
    assert passed(watchdog, 10 * int(SILENT_S)) == set()


def test_after_a_pause_of_the_scheduler_nobody_is_silent_who_is_heard_a_bit_later() -> None:
    """What workers have sent meanwhile comes from one after the other."""
    watchdog = Watchdog({})
    watchdog.hear("a")
    watchdog.hear("b")
    assert passed(watchdog, 10 * int(SILENT_S)) == set()
    assert passed(watchdog, 1, "a") == set()
    assert passed(watchdog, int(SILENT_S), "a") == {"b"}, "one that has died in the pause"


def test_while_the_driver_stands_still_nobody_becomes_silent() -> None:
    """A laptop that was closed for a night."""
    watchdog = Watchdog({})
    watchdog.hear("a")
    watchdog.hear("b")
    watchdog.tick(0.0)
    watchdog.tick(30_000.0)
    watchdog.hear("b")
    watchdog.tick(30_001.0)
    assert watchdog.silent == set()


def test_who_has_gone_is_not_waited_for() -> None:
    """Its silence is no news."""
    watchdog = Watchdog({})
    watchdog.hear("a")
    watchdog.forget("a")
    assert passed(watchdog, 2 * int(SILENT_S), "b") == set()


def state(phase: str, since_s: float) -> dict[SlotId, SlotState]:
    """Return the state of a slot."""
    return {SLOT: SlotState(Place(0, "process000"), phase, since_s, 1)}


def test_a_slot_that_its_worker_should_have_ended_is_found() -> None:
    """With some time for the kill; phases without a deadline may last for ever."""
    watchdog = Watchdog({"running": 60.0})
    for second in range(int(GRACE_S) + 1):
        watchdog.tick(float(second))
        assert watchdog.found(state("running", 61.0 + second)) == {}
    watchdog.tick(GRACE_S + 1)
    assert watchdog.found(state("idle", 1e9)) == {}
    assert watchdog.found(state("running", 61.0)) == {}, "another mini-batch, seen just now"
    for second in range(int(GRACE_S) + 1):
        watchdog.tick(GRACE_S + 2 + second)
        found = watchdog.found(state("running", 62.0 + second))
    assert "process000" in found[SLOT]


def test_a_pause_of_the_driver_retires_no_slot() -> None:
    """A lease that has come back is not watched by its worker until the driver goes on with it."""
    watchdog = Watchdog({"running": 60.0})
    watchdog.tick(0.0)
    watchdog.tick(30_000.0)
    assert watchdog.found(state("running", 30_000.0)) == {}
