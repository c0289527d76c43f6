"""A log without end keeps its head and its tail."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from daskprs._system.log_cap import cut, punch, read_part

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 1 << 16


def test_a_long_log_keeps_both_ends_and_says_what_is_gone(tmp_path: Path) -> None:
    """Half of the limit at each end."""
    log = tmp_path / "log"
    body = bytes(range(1, 251)) * 1000
    log.write_bytes(body)
    cut(str(log), LIMIT)
    kept = log.read_bytes()
    half = LIMIT // 2
    said = f"\n… {len(body) - LIMIT} bytes were cut here …\n".encode()
    assert kept == body[:half] + said + body[-half:]


def test_parts_of_a_log_are_found_after_it_was_cut(tmp_path: Path) -> None:
    """By their offsets before that; a note stands for what is gone."""
    log = tmp_path / "log"
    body = bytes(range(1, 251)) * 1000
    log.write_bytes(body)
    half, size = LIMIT // 2, len(body)
    kept = [(0, 10), (half - 5, half), (size - half, size - half + 5), (size - 7, size)]
    assert [read_part(log, *part, LIMIT) for part in kept] == [body[a:b] for a, b in kept]
    cut(str(log), LIMIT)
    note = f"\n… {size - LIMIT} bytes were cut here …\n".encode()
    assert [read_part(log, *part, LIMIT) for part in kept] == [body[a:b] for a, b in kept]
    assert read_part(log, half + 10, half + 20, LIMIT) == note
    assert read_part(log, half - 3, size - half + 3, LIMIT) == (
        body[half - 3 : half] + note + body[size - half : size - half + 3]
    )


def test_a_short_log_stays_as_it_is(tmp_path: Path) -> None:
    """So does one that is not there."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * LIMIT)
    cut(str(log), LIMIT)
    assert log.read_bytes() == b"x" * LIMIT
    cut(str(tmp_path / "none"), LIMIT)
    punch(str(tmp_path / "none"), LIMIT)


def test_a_log_that_cannot_be_put_together_anew_stays_as_it_is(tmp_path: Path) -> None:
    """A full disk, say: it must not hide what the process came to."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 2 * LIMIT)
    part = tmp_path / f".log.{os.getpid()}-{threading.get_native_id()}.part"
    part.mkdir()  # in the place of the new one
    cut(str(log), LIMIT)
    assert log.stat().st_size == 2 * LIMIT
    part.rmdir()


def test_a_growing_log_gives_its_middle_back_while_it_is_appended_to(tmp_path: Path) -> None:
    """The writer notices nothing; both ends stay."""
    log = tmp_path / "log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, b"x" * (8 * LIMIT))
        used = log.stat().st_blocks
        punch(str(log), LIMIT)
        os.write(fd, b"the end")
    finally:
        os.close(fd)
    body = log.read_bytes()
    assert len(body) == 8 * LIMIT + 7
    assert body[: LIMIT // 2] == b"x" * (LIMIT // 2)
    assert body.endswith(b"x" * 100 + b"the end")
    assert log.stat().st_blocks <= used
    if b"\0" in body:  # a file system that can: most of it went back to the disk
        assert log.stat().st_blocks < used // 2
