"""The output file is put together while the job goes on: whatever comes when, it is in order."""

from __future__ import annotations

import errno
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._output.journal.commits import Commits, CommitTable
from daskprs._output.publish import ordered_text as append_row
from daskprs._output.publish.ordered_text import Headers, OrderedText
from daskprs._output.spool import Regions, SpoolFile
from daskprs.errors import JournalError
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes are worth writing, and two mini-batches."""
    monkeypatch.setattr(append_row, "WORTH_BYTES", 2)
    monkeypatch.setattr(append_row, "WORTH_ROWS", 2)
    monkeypatch.setattr(append_row, "COPY_BYTES", 3)


class Desk:
    """A spool, a table of commits, and the file that is made of them."""

    def __init__(self, folder: Path, header: str | None = None) -> None:
        self.part = folder / "part"
        self.path = folder / "spool"
        self.spool = SpoolFile(str(self.path))
        self.table = CommitTable()
        self.headers = Headers()
        self.headers.first = header
        self.text = OrderedText(
            self.part, lambda _: self.path, self.headers, with_header=header is not None
        )

    def commit(self, *rows: tuple[int, bytes]) -> None:
        """Commit the rows of some mini-batches together."""
        columns = []
        for _, body in rows:
            columns.append((self.spool.end, len(body), zlib.crc32(body)))
            self.spool.append(memoryview(body))
        self.spool.flush()
        regions = Regions(*map(list, zip(*columns, strict=True)))
        ones = [1] * len(rows)
        commits = Commits(None, ones, [index for index, _ in rows], ones, ones, text=regions)
        self.table.add(commits, 1)
        self.text.add(commits, 1)

    def commit_elsewhere(self, index: int, number: int) -> None:
        """Commit the first four bytes once more, as if they were in the spool of another agent."""
        region = Regions([0], [4], [zlib.crc32(self.path.read_bytes()[:4])])
        self.text.add(Commits(None, [1], [index], [1], [1], text=region), number)

    def close(self) -> None:
        """Let go."""
        self.text.close()
        self.spool.forget()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk without a header."""
    one = Desk(tmp_path)
    yield one
    one.close()


@given(
    bodies=st.lists(st.binary(max_size=9), max_size=12),
    data=st.data(),
    header=st.sampled_from([None, "a b\n"]),
)
def test_rows_are_in_input_order_whatever_came_first(
    tmp_path_factory: pytest.TempPathFactory,
    bodies: list[bytes],
    data: st.DataObject,
    header: str | None,
) -> None:
    """Some mini-batches are given up; the others come in any order, by ones and by threes."""
    desk = Desk(tmp_path_factory.mktemp("desk"), header)
    try:
        order = data.draw(st.permutations(range(len(bodies))))
        lost = data.draw(st.sets(st.sampled_from(order))) if bodies else set()
        while order:
            some, order = order[: (size := data.draw(st.integers(1, 3)))], order[size:]
            for index in lost.intersection(some):
                desk.text.skip(index)
            if done := [(index, bodies[index]) for index in some if index not in lost]:
                desk.commit(*done)
        written = desk.text.finish(desk.table)
        rows = b"".join(body for index, body in enumerate(bodies) if index not in lost)
        whole = (header or "").encode() + rows
        assert desk.part.read_bytes() == whole
        assert written == (len(whole), zlib.crc32(whole), len(header or ""))
    finally:
        desk.close()
    assert not desk.part.exists()


def test_what_has_no_gap_before_it_is_written_at_once(desk: Desk) -> None:
    """The rest has to wait for the one that is missing."""
    desk.commit((0, b"zero"), (2, b"two"), (3, b"three"))
    assert poll_for(lambda: desk.part.exists() and desk.part.read_bytes() == b"zero")
    desk.commit((1, b"one"))
    assert poll_for(lambda: desk.part.read_bytes() == b"zeroonetwothree")
    assert desk.text.finish(desk.table).size == len(b"zeroonetwothree")


def test_a_spool_that_was_changed_is_found_out_at_the_end(desk: Desk) -> None:
    """The thread gives up; who publishes is told which mini-batch it is."""
    desk.commit((1, b"one"), (2, b"two"))
    with desk.path.open("r+b") as file:
        file.write(b"O")
    desk.commit((0, b"zero"))
    with pytest.raises(JournalError, match="mini-batch 1 "):
        desk.text.finish(desk.table)


def test_a_spool_that_is_too_short_is_found_out(desk: Desk) -> None:
    """It does not wait for bytes that never come."""
    desk.commit((1, b"one"))
    desk.path.write_bytes(b"o")
    with pytest.raises(JournalError, match="mini-batch 1 "):
        desk.text.finish(desk.table)


@pytest.mark.parametrize("error", [MemoryError, OSError(errno.ENOSPC, "no room")])
def test_whatever_stops_the_thread_half_way_nothing_is_written_twice(
    desk: Desk, error: BaseException
) -> None:
    """What it has written goes, with the room that it took, and all of it is done at the end."""
    stopped = []

    def once(_: int) -> Path:
        if not stopped and desk.part.exists():
            stopped.append(desk.part.stat().st_size)
            raise error
        return desk.path

    desk.commit((0, b"zero"), (1, b"one"))
    assert poll_for(lambda: desk.part.exists() and desk.part.read_bytes() == b"zeroone")
    desk.text._sources.path_of = once
    desk.commit_elsewhere(2, 2)
    assert poll_for(lambda: stopped and not desk.part.exists())
    assert desk.text.finish(desk.table).size == len(b"zeroone")
    assert desk.part.read_bytes() == b"zeroone"


def test_closing_does_not_wait_for_what_nobody_wants_any_more(desk: Desk) -> None:
    """A job that was canceled does not first write the output that it will remove."""
    opened = []

    def source(number: int) -> Path:
        opened.append(number)
        assert poll_for(lambda: desk.text._unwanted)
        return desk.path

    desk.text._sources.path_of = source
    desk.commit((0, b"zero"))
    for index in range(1, 50):
        desk.commit_elsewhere(index, index + 1)
    assert poll_for(lambda: opened)
    desk.text.close()
    assert len(opened) < 50
    assert not desk.part.exists()


def test_a_first_mini_batch_that_takes_for_ever_costs_no_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When too much waits for it, the rest is left for the end."""
    monkeypatch.setattr(append_row, "MOST_WAITING", 3)
    for index in range(1, 10):
        desk.commit((index, b"%d" % index))
    desk.commit((0, b"0"))
    assert desk.text.finish(desk.table).size == 10
    assert desk.part.read_bytes() == b"0123456789"


def test_what_waits_is_counted_by_mini_batches_not_by_groups(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may be of ten thousand."""
    monkeypatch.setattr(append_row, "MOST_WAITING", 3)
    desk.commit(*((index, b"%d" % index) for index in range(1, 10)))
    assert poll_for(lambda: desk.text._late)
    desk.commit((0, b"0"))
    assert desk.text.finish(desk.table).size == 10
    assert desk.part.read_bytes() == b"0123456789"
