"""Spools: files in the job folder that rows are appended to, each by one process.

An agent that sees the job folder writes its own spool, and its outcomes name regions of the spool.
The driver has a spool for rows that it received. The journal says which regions count. Bytes
between these regions (from a killed agent, or from attempts that came too late) are never read.
"""

from __future__ import annotations

import io
import os
import threading
import zlib
from collections import OrderedDict
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, TYPE_CHECKING, NamedTuple

from daskprs._core.outcomes import Extent
from daskprs._system.atomic_file import sync_file, sync_folder
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.outcomes import Outcome, Results
    from daskprs._output.spec import OutputSpec, SpoolSpec

WRITE_BYTES = 1 << 18
"""Bytes to which small pieces are joined before they are written."""
COPY_BYTES = 1 << 20
"""Files are read and checked in pieces of this size: small enough for the processor's cache."""
MOST_OPEN = 64
"""Most files open at once: a process may open a thousand, and each agent of a job makes one."""
MODE = 0o644
"""The mode of files where the job folder is shared: only their owner writes them, since typed rows
may hold pickles."""
DRIVER = "driver"
"""The name of the driver's spool; those of agents begin with a number."""


class UnwritableError(OSError):
    """Rows cannot be written to the spool; the script is not at fault."""


# ---- in the agent ----


class AgentSpool:
    """The files of an agent, one for each form of rows."""

    def __init__(self, spec: SpoolSpec) -> None:
        self.name = spec.name
        self.from_bytes = spec.from_bytes
        """Size in bytes from which results go to the spool."""
        self.text = SpoolFile(spec.text, synced=spec.synced)
        self.typed = SpoolFile(spec.typed, synced=spec.synced)

    def flush(self) -> None:
        """Write the appended bytes, so that they survive the death of this process.

        Raise `UnwritableError` when they cannot be written, above all on a full disk.
        """
        self.text.flush()
        self.typed.flush()

    def forget(self) -> None:
        """Close the files in a fork, whose bytes would be taken for those of its parent."""
        self.text.forget()
        self.typed.forget()


class SpoolFile:
    """Appends to a file that only this process writes; the first byte creates the file.

    One thread appends. Another one may call `flush` meanwhile.
    """

    def __init__(self, path: str, *, synced: bool = False) -> None:
        self._path = path
        self._synced = synced
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._forgotten = False
        self._written = self._on_disk = 0
        self._pieces: list[bytes] = []
        self._pending = 0

    @property
    def end(self) -> int:
        """Length of the file in bytes, with the bytes yet to be written."""
        return self._written + self._pending

    def append(self, piece: memoryview) -> None:
        """Append bytes; raise `UnwritableError` if these or earlier ones cannot be written."""
        with self._lock:
            if self._pending + len(piece) <= WRITE_BYTES:
                self._pieces.append(bytes(piece))
                self._pending += len(piece)
            else:
                self._write_pending()
                self._write(piece)
                self._written += len(piece)

    def cut(self, end: int) -> None:
        """Cut the file to the length `end`, and free the disk space behind it."""
        with self._lock:
            kept = b"".join(self._pieces)[: max(0, end - self._written)]
            self._pieces, self._pending = [kept], len(kept)
            self._written = min(self._written, end)
            # The bytes that take the place of cut ones are not synced: they were reported as if
            # they were.
            self._on_disk = min(self._on_disk, end)
            if self._fd is not None:
                os.ftruncate(self._fd, self._written)

    def flush(self) -> None:
        """Write the appended bytes, and sync them if the spool is synced.

        Raise `UnwritableError` when they cannot be written. The next call tries again.
        """
        with self._lock:
            self._write_pending()
            if self._synced and self._on_disk != self._written:
                with self._telling() as fd:
                    os.fdatasync(fd)
                self._on_disk = self._written

    def forget(self) -> None:
        """Close the file: nothing can be appended any more."""
        self._lock = threading.Lock()  # in a fork, the thread that held the old lock is gone
        self._forgotten = True
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write_pending(self) -> None:
        if self._pending:
            whole = b"".join(self._pieces)
            self._write(memoryview(whole))
            # In one statement: a signal handler that raises would count the bytes twice.
            self._written, self._pieces, self._pending = self._written + len(whole), [], 0

    def _write(self, piece: memoryview) -> None:
        with self._telling() as fd:
            write_at(fd, piece, self._written)

    @contextmanager
    def _telling(self) -> Iterator[int]:
        """Yield the descriptor; report any failure as an `UnwritableError`."""
        try:
            if self._forgotten:
                msg = f"{self._path} is another process's"
                raise OSError(msg)
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
            yield self._fd
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror or str(error), self._path) from error


class Sink(io.RawIOBase):
    """The bytes of one attempt and their checksum: in a spool, or held until they are sent."""

    def __init__(self, file: SpoolFile | None = None, from_bytes: int = 0) -> None:
        self._file = file
        """The spool file that takes the bytes; None: all of them are held here."""
        self._from_bytes = from_bytes
        """Fewest bytes that go to the spool; fewer are held here."""
        self._offset: int | None = None
        self._pieces: list[bytes] = []
        self.length = 0
        """Number of bytes that were written."""
        self._checksum = 0

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, piece: ReadableBuffer) -> int:
        """Append bytes."""
        view = memoryview(piece).cast("B")
        self.length += len(view)
        self._checksum = zlib.crc32(view, self._checksum)
        if self._offset is None and self.length >= self._from_bytes:
            self.put_aside()
        if self._file is None or self._offset is None:
            self._pieces.append(bytes(view))
        else:
            self._file.append(view)
        return len(view)

    @property
    def is_aside(self) -> bool:
        """Whether the bytes are in the spool."""
        return self._offset is not None

    def put_aside(self) -> None:
        """Move held bytes into the spool, and write later ones there."""
        if self._file is not None and self._offset is None:
            self._offset = self._file.end
            for piece in self._pieces:
                self._file.append(memoryview(piece))
            self._pieces.clear()

    def finish(self) -> tuple[Extent, bytes]:
        """Return the extent of the written bytes, and the bytes unless they are in a spool."""
        return Extent(self.length, self._checksum, self._offset), b"".join(self._pieces)

    def discard(self) -> None:
        """Discard the written bytes after a failure, and take no more from a buffered writer."""
        if self._file is not None and self._offset is not None:
            self._file.cut(self._offset)
        self.close()


# ---- in the driver ----


class Spools:
    """The files of all writers, in a folder for each form that is kept."""

    def __init__(self, text: Path, typed: Path, spec: OutputSpec) -> None:
        self.text = SpoolFolder(text) if spec.text else None
        self.typed = SpoolFolder(typed) if spec.typed else None
        self._folders = [one for one in (self.text, self.typed) if one is not None]

    def keep(self, made: Results) -> tuple[Regions | None, Regions | None]:
        """Write rows that came with outcomes; return the regions of all rows, text and typed.

        A failure (a full disk) leaves the driver's spool as it was.
        """
        text, typed = (regions_of(made.outcomes, form) for form in ("text", "typed"))
        lines, values = (b"", b"") if made.spool else split(made.payload, text, typed)
        return (
            None if self.text is None else self.text.keep(text, made.spool, lines),
            None if self.typed is None else self.typed.keep(typed, made.spool, values),
        )

    def sync(self) -> None:
        """Sync kept rows, so that they survive a loss of power; may be called by another thread."""
        for folder in self._folders:
            folder.sync()

    def close(self) -> None:
        """Close the driver's files."""
        for folder in self._folders:
            folder.close()


class SpoolFolder:
    """The files of one form."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self._own = SpoolFile(str(path / DRIVER))
        """The driver's file; its bytes are checked when they are published."""
        self._lock = threading.Lock()
        self._unsynced: set[str] = set()
        self._named: set[str] = set()
        """Files whose names are on the disk."""

    def keep(self, regions: Regions, spool: str, payload: bytes) -> Regions:
        """Return the regions; write those without a spool to the driver's, one after the other."""
        if payload:
            with self._writing() as own:
                offsets = list(accumulate(regions.length, initial=own.end))[:-1]
                own.append(memoryview(payload))
            regions = regions._replace(offset=offsets)
        if any(regions.length):
            with self._lock:
                self._unsynced.add(spool or DRIVER)
        return regions

    def sync(self) -> None:
        """Sync kept rows, of all writers, so that they survive a loss of power."""
        with self._lock:
            unsynced, self._unsynced = self._unsynced, set()
        try:
            for name in sorted(unsynced):  # so that the same job makes the same operations
                sync_file(self.path / name)
            if not unsynced <= self._named:
                sync_folder(self.path)
                self._named |= unsynced
        except (OSError, JobFolderError):  # a file of another kind may stand there by now
            with self._lock:
                self._unsynced |= unsynced
            raise

    def close(self) -> None:
        """Close the driver's file."""
        self._own.forget()

    @contextmanager
    def _writing(self) -> Iterator[SpoolFile]:
        """Yield the driver's file; its new bytes are written in the end, or all of them cut off."""
        end = self._own.end
        try:
            yield self._own
            self._own.flush()
        except BaseException:
            self._own.cut(end)
            raise

    @contextmanager
    def written(self) -> Iterator[tuple[Sink, list[Region]]]:
        """Yield a sink to the driver's file, and a list that has its region in the end."""
        made = list[Region]()
        with self._writing() as own, Sink(own) as sink:
            yield sink, made
            extent, _ = sink.finish()
            made.append(Region(extent.offset or 0, extent.length, extent.checksum))
        if extent.length:
            with self._lock:
                self._unsynced.add(DRIVER)


# ---- regions ----


class Region(NamedTuple):
    """Bytes in the spool of their commit."""

    offset: int
    length: int
    checksum: int


class Regions(NamedTuple):
    """Regions as columns."""

    offset: Sequence[int]
    length: Sequence[int]
    checksum: Sequence[int]


def regions_of(outcomes: ColumnBatch[Outcome], form: str) -> Regions:
    """Return the regions of a form, ``text`` or ``typed``, one per outcome.

    An outcome without rows has length 0. Rows that came with the outcome have offset 0.
    """
    columns = (outcomes.column(f"{form}.{part}") for part in Region._fields)
    return Regions(*([value or 0 for value in column] for column in columns))


def split(payload: bytes, text: Regions, typed: Regions) -> tuple[bytes, bytes]:
    """Return the bytes of either form; in `payload`, text and typed bytes alternate."""
    if not any(typed.length):
        return payload, b""
    if not any(text.length):
        return b"", payload
    parts: tuple[list[memoryview], list[memoryview]] = ([], [])
    view, at = memoryview(payload), 0
    for lengths in zip(text.length, typed.length, strict=True):
        for part, length in zip(parts, lengths, strict=True):
            part.append(view[at : at + length])
            at += length
    return b"".join(parts[0]), b"".join(parts[1])


class OpenFiles:
    """Files that are read by turns, the latest of them open."""

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self.path_of = path_of
        """Gives the path of a file by its number."""
        self._open: OrderedDict[int, IO[bytes]] = OrderedDict()

    def get(self, number: int) -> IO[bytes]:
        """Return a file, opened now if it is not open."""
        file = self._open.get(number)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[number] = open_regular(self.path_of(number))
        self._open.move_to_end(number)
        return file

    def close(self, *numbers: int) -> None:
        """Close files; without numbers all of them."""
        for number in numbers or tuple(self._open):
            if number in self._open:
                self._open.pop(number).close()


def damaged(index: int) -> JournalError:
    """Return the error for rows that are not those that were written."""
    msg = (
        f"the spool is damaged: the rows of mini-batch {index} are not those that were committed. "
        "Nothing is published. Resume the job: what is damaged is done again."
    )
    return JournalError(msg)


def holds(file: IO[bytes], region: Region) -> bool:
    """Say whether the bytes of a region are there and are those that were committed."""
    file.seek(region.offset)
    return checksum_of(file, region.length) == (region.length, region.checksum)


def checksum_of(file: IO[bytes], length: int | None = None) -> tuple[int, int]:
    """Read up to `length` bytes or to the end; return the number of bytes and their CRC-32."""
    checksum = there = 0
    while length is None or there < length:
        most = COPY_BYTES if length is None else min(COPY_BYTES, length - there)
        piece = file.read(most)
        if not piece:
            break
        checksum = zlib.crc32(piece, checksum)
        there += len(piece)
    return there, checksum


class RegionCheck:
    """Compares bytes with the checksums of the regions that they are, one after the other.

    Each region has a number, by which it is named, a length and a checksum.
    """

    def __init__(self, regions: Iterable[tuple[int, int, int]]) -> None:
        self._rest = iter(regions)
        self._number = self._left = self._wanted = self._checksum = 0

    def take(self, piece: memoryview) -> Iterator[int]:
        """Take the next bytes; yield the regions that end in them and are not as written."""
        while piece:
            while not self._left:
                following = next(self._rest, None)
                if following is None:
                    return
                (self._number, self._left, self._wanted), self._checksum = following, 0
            mine, piece = piece[: self._left], piece[self._left :]
            self._checksum = zlib.crc32(mine, self._checksum)
            self._left -= len(mine)
            if not self._left and self._checksum != self._wanted:
                yield self._number

    def rest(self) -> Iterator[int]:
        """Yield the regions whose last bytes have not come."""
        if self._left:
            yield self._number
        yield from (number for number, length, _ in self._rest if length)


def write_at(fd: int, piece: memoryview, offset: int) -> None:
    """Write all of a piece at an offset of a file."""
    while piece:
        written = os.pwrite(fd, piece, offset)
        piece, offset = piece[written:], offset + written
