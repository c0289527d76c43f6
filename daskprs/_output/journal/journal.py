"""The journal: what is committed, line by line, each with a checksum of its own.

A line is a CRC-32 in hex, a space, JSON, and a line feed. What follows the first line that is not
whole was being written when its writer died, and is cut off. The records of an epoch::

    ["job", version, fingerprint, overwrite]                          the first
    ["dropped", epoch, index]                                         a commit whose bytes are gone
    ["commits", identity, attempt, index, total, succeeded, empty, text, typed, header, spool,
     usage]
                                            each a column, or null where nothing stands in it; a
                                            header is a text at its first commit, then the number of
                                            that text in the epoch, from 0; `spool` is the name of
                                            the one that they are in; `usage` is what the script has
                                            counted
    ["usage", {name: amount}]               what all attempts of the epoch have used so far
    ["columns", names]                      of what `run` returns, before the commit that has told
                                            them: rows of nulls have them, too
    ["failed rows", identity, index, first, items, rows, returned]    before a commit without these:
                                            `FailedItems`, and the rest of `FailedRows`
    ["failed rows again"]                   just the failed items of commits run in this epoch
    ["replaces", epoch, number, index]      before the commit of a mini-batch that an earlier epoch
                                            has committed under this number, without some items
    ["renumbered", before, now]             the plan is another one, and what was settled has these
                                            numbers in it now; what is not among them is dropped
    ["labels"]                              the row labels of this epoch hold for these numbers
    ["unlabelled", rows]                    rows of the input frame whose labels a data set lacks,
                                            if they are the numbers from 0; else -1
    ["again"]                               what was given up gets fresh tries
    ["failed" | "given up", identity, index, attempt, item]           as `Attempt` and `Item` say
    ["complete", committed, given up]                                 the plan has come to its end
    ["publishing", target, size, checksum, header bytes]
    ["publishing parts", target, size, checksum, schema, parts]       a data set, its size in all,
                                            the checksum of its manifest (of the one file), and of
                                            each part the number of mini-batches, and the files:
                                            name, rows, size, checksum, and the rows of each
                                            mini-batch
    ["published", target]
    ["ended", result]                       the driver's result of the job

In the published file the rows of the mini-batches follow the header in input order: their offsets
are sums of the lengths of the commits that stood when it was published. The parts of a data set
have the mini-batches with rows in input order.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from daskprs._folders.job_lock import begun_epochs
from daskprs._output.spool import write_at
from daskprs._system.disk_space import no_room
from daskprs._system.regular_files import open_regular
from daskprs.errors import JournalError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.spool import Spools

VERSION = 4
PIECE_BYTES = 1 << 20
MOST_LINE_BYTES = 1 << 30
"""The longest lines name every mini-batch of a plan: a hundred million of them fit."""
EVERY_S = 1.0
SHARE_OF_TIME = 0.2
"""Largest share of the time that syncs take: on a slow disk they come less often."""
_BEGINNING = re.compile(rb"[0-9a-f]{8} ")
_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class Journal:
    """Appends records to the journal of one epoch."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._unwritten: list[bytes] = []
        self._end = 0

    def add(self, *record: Any) -> None:
        """Add a record; the next `write` writes it."""
        body = _dumps(record).encode()
        self._unwritten.append(b"%08x %b\n" % (zlib.crc32(body), body))

    def write(self) -> None:
        """Write the added records to the file: they survive the death of this process.

        After a failure (a full disk, Ctrl-C) nothing is lost: the next call writes the same again
        to the same place.
        """
        if self._unwritten:
            whole = b"".join(self._unwritten)
            write_at(self._fd, memoryview(whole), self._end)
            # In one statement: Ctrl-C between them would leave what `close` then cuts off.
            self._end, self._unwritten = self._end + len(whole), []

    def sync(self) -> None:
        """Sync the file, so that it survives a loss of power; may be called by another thread."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut off an unfinished write, and close the file."""
        try:
            os.ftruncate(self._fd, self._end)
        finally:
            os.close(self._fd)


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Report an error of the system as an `OutputError`, with the next step."""
    try:
        yield
    except OSError as error:
        raise OutputError(no_room(folder, error)) from error


class Syncer:
    """Syncs spools and then their journal, in a thread: the driver does not wait for the disk.

    Commits made between the two syncs are in the journal too early. After a loss of power their
    bytes may be missing: a resume sees that by the checksum, and runs their mini-batches again.
    """

    def __init__(self, folder: Path, spools: Spools, journal: Journal) -> None:
        self._folder = folder
        self._spools = spools
        self._journal = journal
        self._threads = ThreadPoolExecutor(1, "daskprs-sync")
        self._running: Future[float] | None = None
        self._due_s = 0.0

    def sync_if_due(self, now_s: float) -> None:
        """Begin a sync if the last one is long enough ago.

        Raise `OutputError` when the journal cannot be written, or the last sync has failed.
        """
        if now_s < self._due_s or not self._finished(now_s):
            return
        with reported(self._folder):
            self._journal.write()
        try:
            self._running = self._threads.submit(self._sync)
        except RuntimeError:  # no more threads: the driver waits for the disk
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = ThreadPoolExecutor(1, "daskprs-sync")
            self.sync()
            self._due_s = now_s + EVERY_S

    def sync(self) -> None:
        """Sync now, and return when the sync is done; raise `OutputError` if it failed."""
        with reported(self._folder):
            self._journal.write()
            if self._running is not None:
                self._running.result()
            self._sync()

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown()

    def _finished(self, now_s: float) -> bool:
        if self._running is None:
            return True
        if not self._running.done():
            return False
        running, self._running = self._running, None
        with reported(self._folder):
            took_s = running.result()
        self._due_s = now_s + max(EVERY_S, took_s / SHARE_OF_TIME)
        return False

    def _sync(self) -> float:
        begun = time.monotonic()
        self._spools.sync()
        self._journal.sync()
        return time.monotonic() - begun


class Mark(NamedTuple):
    """The position up to which a journal has been read."""

    bytes: int
    lines: int


BEGINNING = Mark(0, 0)


class BrokenLine(NamedTuple):
    """A part of a journal that holds no whole line, though it may have held several."""

    number: int
    """The number of the first line, from 1."""
    start: int
    end: int
    is_torn: bool = False
    """Whether it may be the beginning of a line that was being written when its writer died."""


def records(path: Path, since: Mark = BEGINNING) -> Iterator[tuple[Mark, list[Any] | BrokenLine]]:
    """Yield the records of a journal, and the lines that are not whole.

    Each comes with the mark behind it, from which a later call reads on.

    Raise `JobFolderError` when the journal is not a regular file, and `JournalError` when a whole
    line holds none of our records.
    """
    number = since.lines
    for start, line in _lines(path, since.bytes):
        number, stop = number + 1, start + len(line)
        body = whole_line(line)
        if body is None:
            is_torn = not line.endswith(b"\n") and whole_line(line[:-1] + b"\n") is None
            yield Mark(stop, number), BrokenLine(number, start, stop, is_torn)
            continue
        try:
            record: list[Any] = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise no_record(path, number) from error
        yield Mark(stop, number), record


def no_record(path: Path, number: int) -> JournalError:
    """Return the error for a whole line that holds none of our records."""
    msg = (
        f"{path}: line {number} holds no record that daskprs writes. Restore the journal, or use "
        "another job_dir."
    )
    return JournalError(msg)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the place and the JSON of each line, up to the first one that is not whole."""
    for at, line in _lines(path):
        body = whole_line(line)
        if body is None:
            return
        yield at, body


def _lines(path: Path, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the place of each line, and the line, whole or not."""
    with open_regular(path) as file:
        file.seek(at)
        while line := _line(file):
            yield at, line
            at += len(line)


def records_of(folder: JobFolder, *kinds: str) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield the epoch, the place and the record of each line of some kinds, in all journals."""
    beginnings = tuple(f'["{kind}"'.encode() for kind in kinds)
    for epoch in begun_epochs(folder):
        for place, body in lines(folder.journal(epoch)):
            if body.startswith(beginnings):
                yield epoch, place, json.loads(body)


def record_at(journal: IO[bytes], place: int) -> list[Any]:
    """Return the record at a place of a journal; an empty one if its line is not whole."""
    journal.seek(place)
    record: list[Any] = json.loads(whole_line(journal.readline()) or b"[]")
    return record


def _line(file: IO[bytes]) -> bytes:
    """Return the next line, or as much of it as shows that it is not whole.

    A file that a disk has filled with zeros may have no line feed for gigabytes.
    """
    line = piece = file.readline(PIECE_BYTES)
    if piece.endswith(b"\n") or not _BEGINNING.match(piece):
        return line
    pieces, left = [piece], MOST_LINE_BYTES
    while piece and b"\0" not in piece and not piece.endswith(b"\n") and left > 0:
        piece = file.readline(PIECE_BYTES)
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def whole_line(line: bytes) -> bytes | None:
    """Return the JSON of a line; None when it is not the line that was written."""
    checksum, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
        return None
    return body
