"""Size limit for the logs of scripts: head and tail are kept, with a note about the cut.

A script appends to its log by its own descriptors, so no other process may move the bytes while
the script lives. The middle of a growing log thus becomes a hole in the file. The file is
rewritten once its process and all descendants have ended.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from daskprs._system.atomic_file import whole_file

LIMIT_BYTES = 100 << 20
"""Maximum size of a log in bytes; a larger one keeps half of this at each end."""
CUT_NOTE = "\n… {} bytes were cut here …\n"
_NOTE = re.compile(CUT_NOTE.format(r"(\d+)").encode())
_NOTE_BYTES = 100
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
_BLOCK_BYTES = 4096
_PIECE_BYTES = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


def punch(path: str, limit: int = LIMIT_BYTES) -> None:
    """Punch a hole into the middle of a growing log, once the log is twice the limit.

    Where the file system has no holes, the log grows until its process ends.
    """
    with suppress(OSError):  # it has gone
        size = os.stat(path).st_size  # noqa: PTH116 - once a second for each agent
        if size >= 2 * limit:
            give_back(path, limit // 2, size - limit // 2)


def give_back(path: str, first: int, beyond: int) -> None:
    """Punch a hole for a range of a file, as far as the range covers whole blocks."""
    start = -(-first // _BLOCK_BYTES) * _BLOCK_BYTES
    stop = beyond // _BLOCK_BYTES * _BLOCK_BYTES
    if stop <= start:
        return
    fd = os.open(path, os.O_WRONLY)
    try:
        _libc.fallocate(
            fd,
            _KEEP_SIZE_PUNCH_HOLE,
            ctypes.c_longlong(start),
            ctypes.c_longlong(stop - start),
        )
    finally:
        os.close(fd)


def cut(path: str, limit: int = LIMIT_BYTES) -> None:
    """Reduce the log of a process that has ended to its head and its tail.

    Where the disk has too little room, the log stays as it is: the result of the process matters
    more.
    """
    log = Path(path)
    with suppress(OSError):
        size = log.stat().st_size
        if size > limit:
            _keep_both_ends(log, size, limit // 2)


def gap_in(log: Path, limit: int = LIMIT_BYTES) -> tuple[int, int]:
    """Return how many bytes were cut behind half of the limit, and the length of their note."""
    with log.open("rb") as file:
        file.seek(limit // 2)
        note = _NOTE.match(file.read(_NOTE_BYTES))
    return (int(note[1]), len(note[0])) if note else (0, 0)


def read_part(log: Path, first: int, beyond: int, limit: int = LIMIT_BYTES) -> bytes:
    """Return some bytes of a log, by their offsets before `cut` has reduced it.

    A note takes the place of bytes that were cut.
    """
    half = limit // 2
    lost, added = gap_in(log, limit)
    with log.open("rb") as file:

        def now(offset: int, in_the_gap: int) -> int:
            if offset <= half:
                return offset
            return in_the_gap if offset < half + lost else offset - lost + added

        first, beyond = now(first, half), now(beyond, half + added)
        file.seek(first)
        return file.read(beyond - first)


def _keep_both_ends(log: Path, size: int, half: int) -> None:
    with whole_file(log) as shorter, log.open("rb") as whole:
        for start in range(0, half, _PIECE_BYTES):
            shorter.write(whole.read(min(_PIECE_BYTES, half - start)))
        shorter.write(CUT_NOTE.format(size - 2 * half).encode())
        whole.seek(size - half)
        shutil.copyfileobj(whole, shorter)
