"""The spool of one agent: the process that makes rows writes them into the job folder.

Outcomes name regions of the spool. Bytes between these regions (from a killed agent, or from
attempts that came too late) are never read.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs.output.spool.regions import write_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.output.spec import SpoolSpec

WRITE_BYTES = 1 << 18
"""Bytes to which small pieces are joined before they are written."""


class UnwritableError(OSError):
    """Rows cannot be written to the spool; the script is not at fault."""


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

        Raises
        ------
        UnwritableError
            When they cannot be written, above all on a full disk.

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
        """Append bytes.

        Raises
        ------
        UnwritableError
            When these bytes, or earlier ones, cannot be written.

        """
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
            self._on_disk = min(self._on_disk, end)
            if self._fd is not None:
                os.ftruncate(self._fd, self._written)

    def flush(self) -> None:
        """Write the appended bytes, and sync them if the spool is synced.

        Raises
        ------
        UnwritableError
            When they cannot be written. The next call tries again.

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
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            yield self._fd
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror or str(error), self._path) from error
