"""Locks on files, which the kernel releases when their holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._system.regular_files import opened
from daskprs.errors import JobFolderError, JobFolderLocked

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDER_BYTES = 4096
LOOKED_AT, LOOKED_AT_S = 5, 0.01


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, with a description of the holder in it."""
    fd = _lock(path, what)
    try:
        with suppress(OSError):  # on a full disk the lock is held without a description
            os.ftruncate(fd, 0)
            holder = {"host": socket.gethostname(), "pid": os.getpid(), "boot": boot_id()}
            os.pwrite(fd, json.dumps(holder).encode(), 0)
        yield
    finally:
        os.close(fd)


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold a lock file for a moment; wait for another thread or process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = opened(path, os.O_RDWR | os.O_CREAT)
    try:
        with locked(fd):
            yield
    finally:
        os.close(fd)


@contextmanager
def locked(fd: int) -> Iterator[None]:
    """Hold the lock of an open file; wait for another thread or process that holds it."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def shared(path: Path) -> int:
    """Return a descriptor that holds a shared lock, of a file that its last holder may remove."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if is_still_there(fd, path):
            return fd
        os.close(fd)  # its last holder has removed it just now


def is_last(fd: int) -> bool:
    """Say whether no other descriptor holds a shared lock; then this one holds it alone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def claimed(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, and remove the file afterwards."""
    with held(path, what):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(path: Path, what: str) -> int:
    while True:
        try:
            fd = opened(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            msg = f"{what} cannot be locked: {error}. Use a folder that you can write to."
            raise JobFolderError(msg) from error
        try:
            lock_now(fd)
            if is_still_there(fd, path):
                return fd
        except BlockingIOError as error:
            holder = _described(fd)
            os.close(fd)
            raise in_use(what, holder) from error
        except OSError as error:
            os.close(fd)
            msg = f"{what} cannot be locked: {error}. Use a folder on another file system."
            raise JobFolderError(msg) from error
        os.close(fd)


def in_use(what: str, holder: str) -> JobFolderLocked:
    """Return the error about a lock that another driver holds."""
    msg = f"another driver is at work on {what}: {holder}. Wait for it, end it, or use another"
    return JobFolderLocked(f"{msg} folder.")


def lock_now(fd: int) -> None:
    """Take the lock of an open file, or raise `BlockingIOError`.

    It is tried several times: a process that only checks the lock holds it for microseconds.
    """
    for _ in range(LOOKED_AT):
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(LOOKED_AT_S)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_still_there(fd: int, path: Path) -> bool:
    """Return whether an open file is still the file at its path.

    The holder of a claim removes its file. A process that opened this file just before would lock
    a file that no other process can find.
    """
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@cache
def boot_id() -> str:
    """Return the kernel's boot id; empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def holder_of(path: Path) -> str | None:
    """Return the process that holds a lock file, in words; None when the lock is free."""
    fd = opened(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _described(fd)
    finally:
        os.close(fd)
    return None


def _described(fd: int) -> str:
    """Return the holder that an open lock file describes, in words."""
    try:
        holder = json.loads(os.pread(fd, HOLDER_BYTES, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "a process that has not said its name"
