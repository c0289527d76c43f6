"""The append_row file: copy the rows of the spools in input order, and check them meanwhile.

While the job runs, a thread writes the rows that have no gap before them. So little is left for
the end: the file is as large as all results together, and disks are slow.
"""

from __future__ import annotations

import os
import zlib
from itertools import accumulate, pairwise
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._output.header_lines import (
    OTHER_COLUMNS,
    SERIES_LINE,
    are_alike,
    different_columns,
)
from daskprs._output.journal.commits import in_input_order
from daskprs._output.spool import COPY_BYTES, OpenFiles, RegionCheck, damaged, write_at
from daskprs._system.disk_space import check_room
from daskprs.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._output.journal.commits import Commits, CommitTable, Numbers

WORTH_BYTES = 1 << 20
"""Bytes of ready rows from which they are written …"""
WORTH_ROWS = 10_000
"""… or the number of mini-batches that they come from."""
MOST_WAITING = 100_000
"""Most mini-batches that wait for an earlier one; beyond that, the rest is left for the end."""
SYNC_BYTES = 64 << 20
PUBLISHED = 0
"""The source of rows in the previously published file; other sources are spool numbers."""


class Chunk(NamedTuple):
    """Results of mini-batches whose rows lie one after the other in a file."""

    indexes: Sequence[int]
    source: int
    offset: int
    lengths: Sequence[int]
    checksums: Sequence[int]


class FinishedFile(NamedTuple):
    """A file that is finished and synced."""

    size: int
    checksum: int
    header_bytes: int

    def record(self, target: Path) -> tuple[Any, ...]:
        """Return the journal record of publishing it."""
        return "publishing", str(target), *self


class Headers:
    """The header line of a job: that of the first mini-batch with frames; the others must agree.

    It is known, and compared, where no header is written, too: lines of other columns would be
    wrong rows. `warn` is called for the first ones, in place of an error; None: they are an error.
    """

    def __init__(self, warn: Callable[[str], None] | None = None, separator: str = " ") -> None:
        self.first: str | None = None
        """The header; None before the first one."""
        self._index = 0
        self._separator = separator
        self._warn = warn
        self._has_warned = False

    def take_over(self, commits: CommitTable) -> None:
        """Take the header from the commits of earlier epochs."""
        numbers = commits.column("header")
        for number in np.unique(numbers[numbers > 0]).tolist():  # in order of their first commits
            if self.first is None or self.first == SERIES_LINE:
                self.first = commits.header(number)
                row = int(np.argmax(numbers == number))
                self._index = int(commits.column("index")[row])

    def checked(self, outcomes: ColumnBatch[Outcome]) -> list[str | None] | None:
        """Return the headers of mini-batches that have rows; None without any header.

        Raise `OutputError` when headers differ; the error names both.
        """
        if not any(outcomes.column("header")):
            return None
        return [self._checked(outcome) for outcome in outcomes]

    def _checked(self, outcome: Outcome) -> str | None:
        if outcome.header is None or outcome.text is None or outcome.text.length == 0:
            return None
        headers = [outcome.header] if self._warn is None else outcome.header.split(OTHER_COLUMNS)
        header = headers[0]
        is_series = self.first == SERIES_LINE and are_alike(self.first, header, self._separator)
        if self.first is None or is_series:  # a frame has columns for all
            self.first, self._index = header, outcome.index
        for one in headers:
            if not are_alike(self.first, one, self._separator):
                self._tell(self.first, one, outcome.index)
        return header

    def _tell(self, first: str, other: str, index: int) -> None:
        who = f"mini-batches {self._index} and {index}"
        if index == self._index:
            who = f"mini-batch {index}"
        if self._warn is None:
            raise OutputError(different_columns(who, first, other))
        if not self._has_warned:
            then = "Their lines are in one file, and further such mini-batches are not named. "
            self._warn(different_columns(who, first, other, then))
            self._has_warned = True


class OrderedText:
    """Writes the rows of all commits in input order, the header first.

    Parameters
    ----------
    part
        The file to write; `close` removes it unless it was renamed.
    source
        Gives the spool for a number; for `PUBLISHED`, the previously published file.
    headers
        The header on which the frames of all mini-batches agree.
    with_header
        Whether frames have a header: nothing is written until it is known.

    """

    def __init__(
        self, part: Path, source: Callable[[int], Path], headers: Headers, *, with_header: bool
    ) -> None:
        self.complaint = ""
        """Always empty: a file of text leaves nothing in a store of objects."""
        self.part = part
        self._sources = OpenFiles(source)
        self._buffer = bytearray()
        self._headers = headers
        self._with_header = with_header
        self._inbox: SimpleQueue[list[Chunk] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._late = False
        """Whether the thread has given up: all missing rows are left for the end."""
        self._unwanted = False
        """Whether the file is not wanted any more: the thread need not write waiting rows."""
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        """Index of the next mini-batch: the rows of all earlier ones are in the file."""
        self._end = self._header_bytes = self._checksum = self._synced = 0
        self._target: int | None = None

    # ---- the driver's side ----

    def add(self, commits: Commits, source: int) -> None:
        """Add commits, whose rows may be written once all earlier rows are."""
        if commits.text is None:
            return
        offsets, lengths, checksums = map(list, commits.text)
        indexes = list(commits.index)
        together = list(accumulate(lengths, initial=offsets[0]))[:-1] == offsets
        if together and indexes == list(range(indexes[0], indexes[0] + len(indexes))):
            self._hand_over([Chunk(indexes, source, offsets[0], lengths, checksums)])
        else:
            rows = zip(indexes, offsets, lengths, checksums, strict=True)
            self._hand_over([Chunk([i], source, offset, [n], [c]) for i, offset, n, c in rows])

    def skip(self, index: int) -> None:
        """Note that a mini-batch has no rows."""
        self._hand_over([Chunk([index], PUBLISHED, 0, [0], [0])])

    def finish(self, commits: CommitTable) -> FinishedFile:
        """Write the missing rows, and return the finished file.

        Raise `OutputError` when the disk has no space, and `JournalError` when the bytes of a
        mini-batch differ from the committed ones.
        """
        self._stop()
        left = np.flatnonzero(commits.column("index") >= self._next)
        check_room(self.part.parent, int(commits.column("text_length")[left].sum()))
        self._write(_chunks(commits, in_input_order(commits, left)))
        os.fsync(self._opened())
        self._sources.close()
        return FinishedFile(self._end, self._checksum, self._header_bytes)

    def put(self, target: Path) -> None:
        """Give the finished file its name."""
        self.part.replace(target)

    def close(self) -> None:
        """Close all files, and remove the unfinished file if it is still there."""
        self._unwanted = True
        self._stop()
        self._let_go()
        self.part.unlink(missing_ok=True)

    def _let_go(self) -> None:
        self._sources.close()
        if self._target is not None:
            target, self._target = self._target, None
            os.close(target)

    def _hand_over(self, chunks: list[Chunk]) -> None:
        if self._late:
            return
        if self._thread is None:
            thread = Thread(target=self._serve, name="daskprs-output", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads: all of the file is written at the end
                self._late = True
                return
            self._thread = thread
        self._inbox.put(chunks)

    def _stop(self) -> None:
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    # ---- the thread's side ----

    def _serve(self) -> None:
        """Write ready rows; after an error (a full disk) leave all rows for the end."""
        try:
            self._keep_up()
        except Exception:  # noqa: BLE001 - whatever it was, half of something may be written
            self._late = True
            self._let_go()
            self.part.unlink(missing_ok=True)  # results need the room more
            self._begin()

    def _keep_up(self) -> None:
        waiting: dict[int, Chunk] = {}
        ready: list[Chunk] = []
        waiting_rows = ready_rows = ready_bytes = 0
        while (chunks := self._inbox.get()) is not None and not self._unwanted:
            waiting.update((chunk.indexes[0], chunk) for chunk in chunks)
            waiting_rows += sum(len(chunk.indexes) for chunk in chunks)
            while (chunk := waiting.pop(self._next + ready_rows, None)) is not None:
                ready.append(chunk)
                ready_rows += len(chunk.indexes)
                waiting_rows -= len(chunk.indexes)
                ready_bytes += sum(chunk.lengths)
            if waiting_rows > MOST_WAITING:
                self._late = True
                return
            if ready_bytes < WORTH_BYTES and ready_rows < WORTH_ROWS:
                continue
            if not self._with_header or self._headers.first is not None:
                self._write(ready)
                self._next += ready_rows
                ready, ready_rows, ready_bytes = [], 0, 0

    def _write(self, chunks: Iterable[Chunk]) -> None:
        target = self._opened()
        for chunk in chunks:
            self._copy(target, chunk)
            # Now and then, so that the sync at the end does not wait for the whole file.
            if self._end - self._synced > SYNC_BYTES:
                os.fdatasync(target)
                self._synced = self._end

    def _opened(self) -> int:
        """Return the descriptor of the file, with its header written."""
        if self._target is None:
            self._target = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            header = ((self._with_header and self._headers.first) or "").encode()
            write_at(self._target, memoryview(header), 0)
            self._end = self._header_bytes = len(header)
            self._checksum = zlib.crc32(header)
        return self._target

    def _copy(self, target: int, chunk: Chunk) -> None:
        left, offset = sum(chunk.lengths), chunk.offset
        check = RegionCheck(zip(chunk.indexes, chunk.lengths, chunk.checksums, strict=True))
        while left:
            piece = self._read(chunk.source, offset, left)
            for index in check.take(piece) if piece else check.rest():  # no bytes: it was cut
                raise damaged(index)
            write_at(target, piece, self._end)
            self._checksum = zlib.crc32(piece, self._checksum)
            self._end += len(piece)
            left, offset = left - len(piece), offset + len(piece)

    def _read(self, source: int, offset: int, most: int) -> memoryview:
        """Read on, into reused memory: fresh memory costs as much as the copy.

        Rows that an agent on another host wrote may lie beyond the file's end as known here.
        """
        most = min(most, COPY_BYTES)
        if len(self._buffer) < most:
            self._buffer = bytearray(most)
        room = memoryview(self._buffer)[:most]
        count = os.preadv(self._sources.get(source).fileno(), [room], offset)
        if not count:  # a network file system updates the length of a file that is opened anew
            self._sources.close(source)
            count = os.preadv(self._sources.get(source).fileno(), [room], offset)
        return room[:count]


def _chunks(commits: CommitTable, order: Numbers) -> Iterator[Chunk]:
    """Join commits, in this order, whose rows lie one after the other."""
    order = order[commits.column("text_length")[order] > 0]
    index = commits.column("index")[order]
    in_file = commits.column("in_file")[order].astype(bool)
    source = np.where(in_file, PUBLISHED, commits.column("spool")[order])
    offset, length, checksum = (
        commits.column(f"text_{part}")[order] for part in ("offset", "length", "checksum")
    )
    apart = (source[1:] != source[:-1]) | (offset[1:] != offset[:-1] + length[:-1])
    ends = np.flatnonzero(np.append(apart, True)) + 1
    for start, stop in pairwise([0, *ends.tolist()] if len(order) else []):
        for first in range(start, stop, WORTH_ROWS):
            part = slice(first, min(stop, first + WORTH_ROWS))
            yield Chunk(
                index[part].tolist(),
                int(source[first]),
                int(offset[first]),
                length[part].tolist(),
                checksum[part].tolist(),
            )
