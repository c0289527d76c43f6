"""An agent receives messages also while `run` works; its two threads never listen at a time."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from multiprocessing import Pipe
from threading import Semaphore
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._agent.child import inbox
from daskprs._agent.child.inbox import Inbox, Loader
from daskprs._agent.child.outbox import MemoryReserve, Outbox
from daskprs._agent.protocol.messages import ExtendLease, RunLease, Stop, TruncateLease
from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._core.columnar import ColumnBatch
from daskprs._core.mini_batch import Assigned, MiniBatch
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator


class Names:
    """A reader that remembers what it has loaded."""

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return a list of one name."""
        self.loaded.append(mini_batch.index)
        return [f"{mini_batch.index}"]

    def close(self) -> None:
        """Do nothing."""


class Bulky(Names):
    """A reader of files whose disk has room for one mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def has_room(self, mini_batch: MiniBatch) -> bool:
        """Say no."""
        self.asked.append(mini_batch.index)
        return False

    def expect(self, at_once: int) -> None:
        """Do nothing."""

    def check(self, mini_batch: MiniBatch) -> None:
        """Do nothing."""


class Desk:
    """An agent's inbox with its supervisor's ends of socket and page."""

    def __init__(self) -> None:
        page_fd = new_page()
        self.page, self.seen = SharedPage(page_fd), SharedPage(page_fd)
        os.close(page_fd)
        self.ours, self.theirs = Pipe()
        self.reader = Names()
        reserve = MemoryReserve(self.page)
        self.ends: list[BaseException] = []
        """Errors for which an agent would end."""
        ends: Any = SimpleNamespace(end=self.ends.append)
        self.loader = Loader(self.page, ends)
        self.loader.reader = self.reader
        self.loader.start()
        self.inbox = Inbox(self.theirs, self.page, self.loader, Outbox(self.theirs, reserve))

    def give(self, *indexes: int, more: bool = False) -> None:
        """Send work."""
        work = ColumnBatch(Assigned(MiniBatch(index, None, "", items=1), 1) for index in indexes)
        order = RunLease(1, work, prefetch=True, most_in_a_row=2)
        self.ours.send(ExtendLease(1, work) if more else order)

    def begin(self) -> int:
        """Begin the next mini-batch up to where `run` works, and return its index."""
        assigned = self.inbox.claim()
        assert assigned is not None
        loaded = self.loader.take(self.inbox.position, assigned)
        assert loaded.data == [str(assigned.mini_batch.index)]
        self.inbox.look_ahead()
        return assigned.mini_batch.index

    def end(self) -> None:
        """End it."""
        self.inbox.listen_again()
        self.inbox.next()

    def close(self) -> None:
        """Let go."""
        with suppress(Exception):  # the supervisor may have gone
            self.inbox.listen_again()
        self.loader.listen(0, sys.exit)  # its thread ends by an error alone
        assert poll_for(lambda: [*map(type, self.ends)] == [SystemExit])
        self.inbox.close()
        for end in (self.ours, self.theirs, self.page, self.seen):
            end.close()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Yield an agent to which loading ahead always pays."""
    monkeypatch.setattr(inbox, "WORTH_A_THREAD_S", -1.0)
    one = Desk()
    yield one
    one.close()


def test_what_comes_while_run_works_is_loaded_ahead(desk: Desk) -> None:
    """The supervisor sees it as begun."""
    desk.give(5)
    desk.inbox.receive()
    assert desk.begin() == 5
    desk.give(6, 7, more=True)
    assert poll_for(lambda: desk.reader.loaded == [5, 6])
    assert desk.seen.claimed(1) == 1
    desk.end()
    assert desk.begin() == 6
    assert poll_for(lambda: desk.reader.loaded == [5, 6, 7])


def test_a_halt_drops_what_is_loaded_ahead_and_what_still_comes(desk: Desk) -> None:
    """The next order begins anew, with data of its own."""
    desk.give(5, 6, 7)
    desk.inbox.receive()
    assert desk.begin() == 5
    assert poll_for(lambda: desk.reader.loaded == [5, 6])
    desk.inbox.listen_again()
    desk.inbox.halt()
    desk.loader.drop()
    desk.give(8, more=True)
    desk.give(9)
    desk.inbox.receive()
    assert desk.inbox.claim() is None
    desk.inbox.receive()
    assert desk.begin() == 9


def test_a_halt_waits_for_no_load_but_the_next_one_does(desk: Desk) -> None:
    """The agent may be asked to end meanwhile; a reader is used by one thread at a time."""
    loads, release, load = Semaphore(0), Semaphore(0), desk.reader.load

    def slow(mini_batch: MiniBatch) -> Any:
        if mini_batch.index == 6:
            loads.release()
            release.acquire()
        return load(mini_batch)

    desk.reader.load = slow  # type: ignore[method-assign]
    desk.give(5, 6)
    desk.inbox.receive()
    assert desk.begin() == 5
    loads.acquire()
    desk.inbox.listen_again()
    desk.inbox.halt()
    desk.loader.drop()
    desk.give(9)
    desk.inbox.receive()
    assert desk.reader.loaded == [5]
    release.release()
    assert desk.begin() == 9
    assert desk.reader.loaded == [5, 6, 9]


def test_nothing_that_comes_while_run_works_is_lost(desk: Desk) -> None:
    """Whether it was received before `run` was over, or not."""
    desk.give(0)
    desk.inbox.receive()
    for index in range(200):
        assert desk.begin() == index
        desk.give(index + 1, more=True)
        desk.end()
    assert desk.reader.loaded[:200] == [*range(200)]


def test_what_was_taken_back_is_not_begun_and_what_comes_instead_is(desk: Desk) -> None:
    """The answer to a recall is received while `run` works."""
    desk.give(5)
    desk.inbox.receive()
    desk.begin()
    kept = desk.seen.recall(1)
    assert kept == 0
    desk.give(6, more=True)  # was on its way when it was taken back
    desk.ours.send(TruncateLease(1, kept))
    desk.give(7, more=True)
    assert poll_for(lambda: len(desk.reader.loaded) == 2)
    desk.end()
    assert desk.begin() == 7
    assert desk.reader.loaded == [5, 7]


def test_the_order_to_stop_is_received_while_run_works(desk: Desk) -> None:
    """So is the end of the supervisor, of which the main thread has to know as well."""
    desk.give(5)
    desk.inbox.receive()
    desk.begin()
    desk.ours.send(Stop())
    assert poll_for(lambda: desk.inbox.stopped)
    desk.ours.close()
    desk.inbox.listen_again()
    with pytest.raises(EOFError):
        desk.inbox.next()


def test_a_connection_that_a_script_closes_is_closed_for_the_supervisor(desk: Desk) -> None:
    """Though a thread waits on it: there is nobody who could answer any more."""
    desk.give(5)
    desk.inbox.receive()
    desk.begin()
    assert not desk.ours.poll(0.2)  # it waits by now, most likely
    desk.theirs.close()
    assert desk.ours.poll(30)
    with pytest.raises(EOFError):
        desk.ours.recv()


def test_a_load_ahead_that_lacks_room_is_repeated_when_the_mini_batch_before_it_is_done(
    desk: Desk,
) -> None:
    """It says nothing of the mini-batch; alone, the same error counts."""
    errors = {6: MemoryError(), 7: OSError(errno.ENOSPC, "full"), 8: ValueError()}
    load = desk.reader.load

    def lacking(mini_batch: MiniBatch) -> Any:
        load(mini_batch)
        if mini_batch.index in errors:
            raise errors.pop(mini_batch.index)
        return [f"{mini_batch.index}"]

    desk.reader.load = lacking  # type: ignore[method-assign]
    desk.give(5, 6, 7, 8)
    desk.inbox.receive()
    for index in (5, 6, 7):
        assert desk.begin() == index
        assert poll_for(lambda: desk.reader.loaded[-1] == desk.inbox.position + 6)
        desk.end()
    assigned = desk.inbox.claim()
    assert assigned is not None
    loaded = desk.loader.take(desk.inbox.position, assigned)
    assert isinstance(loaded.error, ValueError)
    assert desk.reader.loaded == [5, 6, 6, 7, 7, 8]


@pytest.mark.parametrize("more", [False, True])
def test_nothing_is_loaded_ahead_of_which_the_disk_has_no_room(desk: Desk, *, more: bool) -> None:
    """Whether it was known before `run` or comes meanwhile; it is loaded in its turn."""
    desk.loader.reader = reader = Bulky()
    desk.give(5) if more else desk.give(5, 6)
    desk.inbox.receive()
    assert desk.begin() == 5
    if more:
        desk.give(6, more=True)
    assert poll_for(lambda: reader.asked == [6])
    desk.end()
    assert reader.loaded == [5]
    assert desk.begin() == 6
