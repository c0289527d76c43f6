"""Listeners: one that raises is written down and dropped, and the job goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._core.events import MessageLogged, ProgressReported
from daskprs._report.listeners import Listeners
from tests.support.job_events import attempt, job_ended, stood

if TYPE_CHECKING:
    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder


class Hearing:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.closed = 0

    def tell(self, event: Event) -> None:
        """Remember an event."""
        self.heard.append(event)

    def close(self) -> None:
        """Count."""
        self.closed += 1


class Deaf(Hearing):
    """Cannot stand to be told how far the job is."""

    def tell(self, event: Event) -> None:
        """Raise."""
        super().tell(event)
        match event:
            case ProgressReported():
                msg = "enough"
                raise RuntimeError(msg)


def test_all_hear_every_event_in_order(folder: JobFolder) -> None:
    """From the driver's one loop."""
    one, other = Hearing(), Hearing()
    listeners = Listeners([one, other], folder)
    events = [stood(), attempt(), job_ended()]
    for event in events:
        listeners.tell(event)
    assert one.heard == other.heard == events


def test_one_that_raises_is_written_down_closed_and_told_nothing_more(folder: JobFolder) -> None:
    """The others go on, and hear of it."""
    deaf, other = Deaf(), Hearing()
    listeners = Listeners([deaf, other], folder)
    for event in (attempt(1), stood(), attempt(2)):
        listeners.tell(event)
    listeners.close()
    assert deaf.heard == [attempt(1), stood()]
    assert deaf.closed == 1
    match other.heard:
        case [_, _, MessageLogged("warning", message), _]:
            assert "Deaf has stopped, the job goes on: RuntimeError: enough" in message
        case heard:
            raise AssertionError(heard)
    log = folder.own_error("Deaf").read_text()
    assert "Traceback" in log
    assert "RuntimeError: enough" in log


def test_an_error_while_closing_keeps_nobody_from_closing(folder: JobFolder) -> None:
    """Each is closed once, however often they are told to."""

    class Stuck(Hearing):
        def close(self) -> None:
            super().close()
            msg = "stuck"
            raise OSError(msg)

    stuck, other = Stuck(), Hearing()
    listeners = Listeners([stuck, other], folder)
    listeners.close()
    listeners.close()
    assert (stuck.closed, other.closed) == (1, 1)
    assert "stuck" in folder.own_error("Stuck").read_text()


def test_all_that_raise_leave_a_job_without_listeners(folder: JobFolder) -> None:
    """Telling one of another's end does not go on for ever."""

    class Never(Hearing):
        def tell(self, event: Event) -> None:
            raise ValueError(event)

    listeners = Listeners([Never(), Never(), Never()], folder)
    listeners.tell(stood())
    listeners.tell(stood())
    assert folder.own_error("Never").read_text().count("Traceback") == 3
