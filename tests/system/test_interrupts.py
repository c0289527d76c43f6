"""Ctrl-C waits where it would part a step from the knowledge of it, and comes too late after."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from daskprs._system.interrupts import (
    INTERRUPTING,
    LateInterrupts,
    held_back,
    sigterm_handled,
    sigterm_heard_by,
)

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give every test Python's own handler, and see that handlers are as they were."""
    before = {number: signal.getsignal(number) for number in INTERRUPTING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    now = {number: signal.getsignal(number) for number in INTERRUPTING}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert now == {**before, signal.SIGINT: signal.default_int_handler}


def press(number: int = signal.SIGINT) -> None:
    """Send a signal to this process."""
    os.kill(os.getpid(), number)


def test_what_comes_within_the_step_interrupts_at_its_end() -> None:
    """However often it comes."""
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():  # noqa: PT012 - both are of the claim
        press()
        press()
        done.append("the step")
    assert done == ["the step"]


def test_an_error_of_the_step_hides_no_interrupt() -> None:
    """The error is the context of it."""
    with pytest.raises(KeyboardInterrupt) as caught, held_back():  # noqa: PT012 - the same
        press()
        raise OSError
    assert isinstance(caught.value.__context__, OSError)


def test_a_late_interrupt_is_taken_and_a_second_one_counts() -> None:
    """Before it is too late, each counts."""
    is_late = False
    late = LateInterrupts(too_late=lambda: is_late)
    with late.ignored_once():
        with pytest.raises(KeyboardInterrupt):
            press()
        assert not late.taken
        is_late = True
        press()
        assert late.taken
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_handler_that_does_not_interrupt_does_what_it_does() -> None:
    """It is that of the caller's program: it hears every signal, within a step at the end of it."""
    heard: list[int] = []

    def hear(number: int, frame: types.FrameType | None) -> None:
        del frame
        heard.append(number)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        late = LateInterrupts(too_late=lambda: True)
        with late.ignored_once():
            press(signal.SIGTERM)
            press(signal.SIGTERM)
            with held_back():
                press(signal.SIGTERM)
                assert len(heard) == 2
        assert heard == [signal.SIGTERM] * 3
        assert not late.taken
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Nohup means what it says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_another_thread_nothing_is_touched() -> None:
    """Only the main thread is interrupted, and only it may set handlers."""
    seen = []

    def work() -> None:
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_fork_ends_by_sigterm_though_a_job_hears_it_here() -> None:
    """It does nothing of the job, and has to end when somebody asks it to."""
    with sigterm_handled(), sigterm_heard_by(lambda: True):
        press(signal.SIGTERM)  # heard, so that nothing happens
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
