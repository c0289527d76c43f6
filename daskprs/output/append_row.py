"""The append_row file: regions of the spools put into input order, and published whole."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from daskprs.errors import OutputError
from daskprs.job_folder import sync_folder
from daskprs.output.spool import COPY_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.job_folder import JobFolder
    from daskprs.output.commits import CommitTable

CANNOT_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM}


def write_ordered(folder: JobFolder, commits: CommitTable, part: Path) -> int:
    """Write the rows of all commits in input order, header first, and return the size.

    Raises
    ------
    OutputError
        When there is no space, or two mini-batches have different headers. Nothing is left.

    """
    order = np.argsort(commits.column("index"), kind="stable")
    header = _header(commits, order).encode()
    lengths = commits.column("text_length")[order]
    size = len(header) + int(lengths.sum())
    _check_space(part.parent, size)
    try:
        _write(folder, commits, order, part, header)
    except OSError as error:
        part.unlink(missing_ok=True)
        msg = f"the output could not be written: {error}. The journal is kept: resume the job."
        raise OutputError(msg) from error
    return size


def publish(part: Path, target: Path) -> None:
    """Put a finished file under its final name, in one step."""
    part.replace(target)
    sync_folder(target.parent)


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(COPY_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _header(commits: CommitTable, order: np.ndarray) -> str:
    """Return the one header; a mini-batch whose frames have another one is an error."""
    numbers = commits.column("header")[order]
    filled = order[(numbers > 0) & (commits.column("text_length")[order] > 0)]
    if len(filled) == 0:
        filled = order[numbers > 0][:1]
    if len(filled) == 0:
        return ""
    column, index = commits.column("header"), commits.column("index")
    first = commits.header(int(column[filled[0]])) or ""
    other = filled[column[filled] != column[filled[0]]]
    if len(other):
        msg = (
            f"mini-batches {index[filled[0]]} and {index[other[0]]} returned frames with different "
            f"headers: {first.rstrip()!r} and "
            f"{(commits.header(int(column[other[0]])) or '').rstrip()!r}. Return the same columns "
            "from each run(), or leave append_row_dataframe_header off."
        )
        raise OutputError(msg)
    return first


def _check_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        msg = (
            f"the output needs {size >> 20} MiB in {folder}, and {free >> 20} MiB are free. Make "
            "room, and resume the job."
        )
        raise OutputError(msg)


def _write(
    folder: JobFolder, commits: CommitTable, order: np.ndarray, part: Path, header: bytes
) -> None:
    epochs = commits.column("text_epoch")[order]
    offsets = commits.column("text_offset")[order]
    lengths = commits.column("text_length")[order]
    with ExitStack() as stack, part.open("wb", buffering=0) as target:
        spools = {
            int(epoch): stack.enter_context(folder.spool(int(epoch)).open("rb", buffering=0))
            for epoch in np.unique(epochs[lengths > 0])
        }
        _write_all(target.fileno(), header)
        for epoch, offset, length in _runs(epochs, offsets, lengths):
            _copy(spools[epoch].fileno(), target.fileno(), offset, length)
        os.fsync(target.fileno())


def _runs(
    epochs: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
) -> list[tuple[int, int, int]]:
    """Join regions that lie one after the other in a spool: leases make long runs of them."""
    some = lengths > 0
    epochs, offsets, lengths = epochs[some], offsets[some], lengths[some]
    if len(epochs) == 0:
        return []
    follows = (epochs[1:] == epochs[:-1]) & (offsets[1:] == offsets[:-1] + lengths[:-1])
    starts = np.concatenate([[0], np.flatnonzero(~follows) + 1])
    sums = np.add.reduceat(lengths, starts)
    rows = zip(epochs[starts], offsets[starts], sums, strict=True)
    return [(int(epoch), int(offset), int(length)) for epoch, offset, length in rows]


def _copy(source: int, target: int, offset: int, length: int) -> None:
    while length:
        try:
            copied = os.copy_file_range(source, target, length, offset)
        except OSError as error:
            if error.errno not in CANNOT_COPY_RANGE:
                raise
            copied = _write_all(target, os.pread(source, min(length, COPY_BYTES), offset))
        if copied == 0:
            msg = "a spool is shorter than its journal says"
            raise OSError(errno.EIO, msg)
        offset += copied
        length -= copied


def _write_all(target: int, piece: bytes) -> int:
    view = memoryview(piece)
    while view:
        view = view[os.write(target, view) :]
    return len(piece)
