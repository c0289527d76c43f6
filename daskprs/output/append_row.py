"""The append_row file: rows of the spools put into input order, checked while at it.

A thread writes what has no gap before it while the job goes on, so that little is left to do at
the end: the file is as large as all results together, and disks are slow.
"""

from __future__ import annotations

import os
import zlib
from contextlib import ExitStack
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs.errors import JournalError
from daskprs.output.commits import each, in_input_order
from daskprs.output.journal import write_at
from daskprs.output.room import check_room
from daskprs.output.spool import COPY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from daskprs.output.commits import Commits, CommitTable, Numbers
    from daskprs.output.headers import Headers

WORTH_BYTES = 1 << 20
"""Ready rows are written when there are so many bytes of them …"""
WORTH_ROWS = 10_000
"""… or those of so many mini-batches."""
MOST_WAITING = 100_000
"""Where more mini-batches than this wait for an earlier one, the rest is left for the end."""
SYNC_BYTES = 64 << 20
PUBLISHED = 0
"""The source of rows that are in the file published before; others are epochs."""


class Row(NamedTuple):
    """Where the rows of one mini-batch lie."""

    index: int  # type: ignore[assignment] # tuple.index is of no use here
    source: int
    offset: int
    length: int
    checksum: int


class Written(NamedTuple):
    """A file that is finished and synced."""

    size: int
    checksum: int
    header_bytes: int


class OrderedText:
    """Writes the rows of all commits in input order, the header first.

    Parameters
    ----------
    part
        The file to write. It is removed by `close` unless it was renamed.
    source
        Gives the spool of an epoch; for `PUBLISHED` the file that was published before.
    headers
        What the frames of all mini-batches agree on.
    with_header
        Whether frames come with one: nothing is written until it is known.

    """

    def __init__(
        self, part: Path, source: Callable[[int], Path], headers: Headers, *, with_header: bool
    ) -> None:
        self.part = part
        self._source = source
        self._headers = headers
        self._with_header = with_header
        self._inbox: SimpleQueue[list[Row] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._late = False
        """The thread has given up: all that is missing is left for the end."""
        self._unwanted = False
        """Nothing will come of the file: the thread need not write what waits."""
        self._files = ExitStack()
        self._open: dict[int, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        """What mini-batches below this index have made is in the file."""
        self._end = self._header_bytes = self._checksum = self._synced = 0
        self._target: int | None = None

    # ---- the driver's side ----

    def add(self, commits: Commits, epoch: int) -> None:
        """Take commits whose rows may be written as soon as all before them are."""
        if commits.text is not None:
            columns = (commits.index, *commits.text)
            rows = zip(*columns, strict=True)
            self._hand_over([Row(index, epoch, *region) for index, *region in rows])

    def skip(self, index: int) -> None:
        """Take note that nothing comes of a mini-batch."""
        self._hand_over([Row(index, PUBLISHED, 0, 0, 0)])

    def finish(self, commits: CommitTable) -> Written:
        """Write what is missing, and return what the file is.

        Raises
        ------
        OutputError
            When there is no space.
        JournalError
            When the bytes of a mini-batch are no longer those that were committed.

        """
        self._stop()
        left = np.flatnonzero(commits.column("index") >= self._next)
        check_room(self.part.parent, int(commits.column("text_length")[left].sum()))
        self._write(_rows(commits, in_input_order(commits, left)))
        os.fsync(self._opened())
        return Written(self._end, self._checksum, self._header_bytes)

    def close(self) -> None:
        """Let go of everything, and remove the file if it is still there."""
        self._unwanted = True
        self._stop()
        self._files.close()
        self.part.unlink(missing_ok=True)

    def _hand_over(self, rows: list[Row]) -> None:
        if self._late:
            return
        if self._thread is None:
            self._thread = Thread(target=self._serve, name="daskprs-output", daemon=True)
            self._thread.start()
        self._inbox.put(rows)

    def _stop(self) -> None:
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    # ---- the thread's side ----

    def _serve(self) -> None:
        """Write what is ready; after an error (a full disk) leave all of it for the end."""
        try:
            self._keep_up()
        except Exception:  # noqa: BLE001 - whatever it was, half of something may be written
            self._late = True
            self._files.pop_all().close()
            self._open.clear()
            self.part.unlink(missing_ok=True)  # results need the room more
            self._begin()

    def _keep_up(self) -> None:
        waiting: dict[int, Row] = {}
        ready: list[Row] = []
        ready_bytes = 0
        while (rows := self._inbox.get()) is not None and not self._unwanted:
            waiting.update((row.index, row) for row in rows)
            for index in count(self._next + len(ready)):
                row = waiting.pop(index, None)
                if row is None:
                    break
                ready.append(row)
                ready_bytes += row.length
            if len(waiting) > MOST_WAITING:
                self._late = True
                return
            if ready_bytes < WORTH_BYTES and len(ready) < WORTH_ROWS:
                continue
            if not self._with_header or self._headers.first is not None:
                self._write(ready)
                self._next += len(ready)
                ready, ready_bytes = [], 0

    def _write(self, rows: Iterable[Row]) -> None:
        target = self._opened()
        for run in _runs(rows):
            self._copy(target, run)
            if self._end - self._synced > SYNC_BYTES:
                os.fdatasync(target)
                self._synced = self._end

    def _opened(self) -> int:
        """Return the descriptor of the file, which has its header by then."""
        if self._target is None:
            self._target = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            self._files.callback(os.close, self._target)
            header = (self._headers.first or "").encode()
            write_at(self._target, memoryview(header), 0)
            self._end = self._header_bytes = len(header)
            self._checksum = zlib.crc32(header)
        return self._target

    def _copy(self, target: int, run: list[Row]) -> None:
        """Copy rows that lie one after the other."""
        source, offset = self._descriptor(run[0].source), run[0].offset
        left = sum(row.length for row in run)
        check = _Check(run)
        while left:
            piece = os.pread(source, min(left, COPY_BYTES), offset)
            check.take(piece)
            write_at(target, memoryview(piece), self._end)
            self._checksum = zlib.crc32(piece, self._checksum)
            self._end += len(piece)
            left, offset = left - len(piece), offset + len(piece)

    def _descriptor(self, source: int) -> int:
        if source not in self._open:
            self._open[source] = os.open(self._source(source), os.O_RDONLY)
            self._files.callback(os.close, self._open[source])
        return self._open[source]


class _Check:
    """Compares what is copied with what each mini-batch has made."""

    def __init__(self, run: list[Row]) -> None:
        self._rows = iter(run)
        self._row = run[0]
        self._left = 0
        self._checksum = 0

    def take(self, piece: bytes) -> None:
        """Take the next bytes; none where there ought to be some means a spool that was cut."""
        view = memoryview(piece)
        while view:
            if self._left == 0:
                self._row = next(self._rows)
                self._left, self._checksum = self._row.length, 0
            mine, view = view[: self._left], view[self._left :]
            self._checksum = zlib.crc32(mine, self._checksum)
            self._left -= len(mine)
            if self._left == 0 and self._checksum != self._row.checksum:
                raise _damaged(self._row)
        if not piece:
            raise _damaged(self._row)


def _rows(commits: CommitTable, order: Numbers) -> Iterator[Row]:
    """Yield where the rows of commits lie, in this order."""
    in_file = commits.column("in_file")[order].astype(bool)
    source = np.where(in_file, PUBLISHED, commits.column("epoch")[order])
    region = [commits.column(f"text_{part}")[order] for part in ("offset", "length", "checksum")]
    return map(Row._make, each(commits.column("index")[order], source, *region))


def _runs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Join rows that lie one after the other in a file: leases make long runs of them."""
    run: list[Row] = []
    for row in rows:
        if row.length == 0:
            continue
        last = run[-1] if run else None
        if last is not None and (
            last.source != row.source
            or last.offset + last.length != row.offset
            or len(run) >= WORTH_ROWS
        ):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _damaged(row: Row) -> JournalError:
    msg = (
        f"the spool is damaged: the rows of mini-batch {row.index} are not those that were "
        "committed. Nothing is published. Resume the job: what is damaged is done again."
    )
    return JournalError(msg)
