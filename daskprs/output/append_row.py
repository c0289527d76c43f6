"""The append_row file: regions of the spools put into input order, checked while at it."""

from __future__ import annotations

import errno
import os
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs.errors import JournalError
from daskprs.output.commits import each, in_input_order
from daskprs.output.journal import write_at
from daskprs.output.room import check_room
from daskprs.output.spool import COPY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from daskprs.output.commits import CommitTable, Numbers

CANNOT_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}


class Written(NamedTuple):
    """A file that is finished and synced."""

    size: int
    checksum: int
    header_bytes: int


class OrderedText:
    """The rows of all commits in input order, the header first.

    Parameters
    ----------
    commits
        Everything that is to be in the file.
    sources
        The spool of each epoch; 0 is the file that was published before.

    """

    def __init__(self, commits: CommitTable, sources: Mapping[int, Path]) -> None:
        order = in_input_order(commits, np.arange(len(commits)))
        self._header = _header(commits, order).encode()
        filled = order[commits.column("text_length")[order] > 0]
        self._index = commits.column("index")[filled]
        self._offset = commits.column("text_offset")[filled]
        self._length = commits.column("text_length")[filled]
        self._checksum = commits.column("text_checksum")[filled]
        in_file = commits.column("in_file")[filled].astype(bool)
        self._source = np.where(in_file, 0, commits.column("epoch")[filled])
        self._paths = sources

    def write(self, part: Path) -> Written:
        """Write the file, and return what it is.

        Raises
        ------
        OutputError
            When there is no space.
        JournalError
            When the bytes of a mini-batch are no longer those that were committed.

        """
        size = len(self._header) + int(self._length.sum())
        check_room(part.parent, size)
        self._write(part)
        return Written(size, self._checked(part), len(self._header))

    def _write(self, part: Path) -> None:
        with ExitStack() as stack, part.open("wb", buffering=0) as target:
            sources = {
                number: stack.enter_context(self._paths[number].open("rb", buffering=0)).fileno()
                for number in np.unique(self._source).tolist()
            }
            write_at(target.fileno(), memoryview(self._header), 0)
            end = target.seek(0, os.SEEK_END)
            for source, offset, length in self._runs():
                _copy(sources[source], target.fileno(), offset, length, end)
                end += length
            os.fsync(target.fileno())

    def _runs(self) -> Iterator[tuple[int, ...]]:
        """Join regions that lie one after the other in a spool: leases make long runs of them."""
        source, offset, length = self._source, self._offset, self._length
        if len(source) == 0:
            return iter(())
        follows = (source[1:] == source[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        starts = np.concatenate([[0], np.flatnonzero(~follows) + 1])
        return each(source[starts], offset[starts], np.add.reduceat(length, starts))

    def _checked(self, part: Path) -> int:
        """Read the file back, compare each mini-batch's rows, and return the whole checksum."""
        with part.open("rb") as file:
            whole = zlib.crc32(file.read(len(self._header)))
            for index, length, checksum in each(self._index, self._length, self._checksum):
                left, own = length, 0
                while left:
                    piece = file.read(min(left, COPY_BYTES))
                    if not piece:
                        break
                    own, whole = zlib.crc32(piece, own), zlib.crc32(piece, whole)
                    left -= len(piece)
                if left or own != checksum:
                    msg = (
                        f"the spool is damaged: the rows of mini-batch {index} are not those that "
                        "were committed. Nothing is published. Resume the job: what is damaged is "
                        "done again."
                    )
                    raise JournalError(msg)
        return whole


def _header(commits: CommitTable, order: Numbers) -> str:
    """Return the header of the first mini-batch that has one."""
    numbers = commits.column("header")[order]
    named = numbers[numbers > 0]
    return commits.header(int(named[0])) if len(named) else ""


def _copy(source: int, target: int, offset: int, length: int, end: int) -> None:
    """Copy a range to `end` of the target, inside the kernel where it can do that."""
    while length:
        copied = _copy_range(source, target, length, offset, end)
        if copied == 0:
            piece = os.pread(source, min(length, COPY_BYTES), offset)
            if not piece:
                msg = "a spool is shorter than its journal says"
                raise OSError(errno.EIO, msg)
            write_at(target, memoryview(piece), end)
            copied = len(piece)
        offset, end, length = offset + copied, end + copied, length - copied


def _copy_range(source: int, target: int, length: int, offset: int, end: int) -> int:
    try:
        return os.copy_file_range(source, target, length, offset, end)
    except OSError as error:
        if error.errno in CANNOT_COPY_RANGE:
            return 0
        raise
