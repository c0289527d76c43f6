"""The spool of one agent: rows are put into the job folder by the process that makes them.

Outcomes tell of regions. What lies between them (what a killed agent had begun, attempts that
came too late) is never looked at.
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
"""Small pieces are joined until there are so many bytes of them."""


class UnwritableError(OSError):
    """Rows cannot be put where they belong: that is no fault of the script."""


class AgentSpool:
    """The files of an agent, one for each form of rows."""

    def __init__(self, spec: SpoolSpec) -> None:
        self.name = spec.name
        self.from_bytes = spec.from_bytes
        """Results from this size on are put there."""
        self.text = SpoolFile(spec.text, synced=spec.synced)
        self.typed = SpoolFile(spec.typed, synced=spec.synced)

    def flush(self) -> None:
        """Write what was appended: it survives the death of this process.

        Raises
        ------
        UnwritableError
            When there is no room for it, above all.

        """
        self.text.flush()
        self.typed.flush()

    def forget(self) -> None:
        """Let go of the files in a fork: what it appends would be taken for its parent's."""
        self.text.forget()
        self.typed.forget()


class SpoolFile:
    """Appends to a file that nobody else writes; it is made with the first byte.

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
        """How long the file is, with what is yet to be written."""
        return self._written + self._pending

    def append(self, piece: memoryview) -> None:
        """Append bytes.

        Raises
        ------
        UnwritableError
            When they, or those before them, cannot be written.

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
        """Take back what was appended since the file was so long; the disk has that room again."""
        with self._lock:
            kept = b"".join(self._pieces)[: max(0, end - self._written)]
            self._pieces, self._pending = [kept], len(kept)
            self._written = min(self._written, end)
            self._on_disk = min(self._on_disk, end)
            if self._fd is not None:
                os.ftruncate(self._fd, self._written)

    def flush(self) -> None:
        """Write what was appended, and where that is asked for see it onto the disk.

        Raises
        ------
        UnwritableError
            When it cannot be written. The next call tries again.

        """
        with self._lock:
            self._write_pending()
            if self._synced and self._on_disk != self._written:
                with self._telling() as fd:
                    os.fdatasync(fd)
                self._on_disk = self._written

    def forget(self) -> None:
        """Let go of the file: nothing can be appended any more."""
        self._lock = threading.Lock()  # in a fork nobody is left to release the other one
        self._forgotten = True
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write_pending(self) -> None:
        if self._pending:
            whole = b"".join(self._pieces)
            self._write(memoryview(whole))
            # In one statement: a signal's handler that raises would have the same counted twice.
            self._written, self._pieces, self._pending = self._written + len(whole), [], 0

    def _write(self, piece: memoryview) -> None:
        with self._telling() as fd:
            write_at(fd, piece, self._written)

    @contextmanager
    def _telling(self) -> Iterator[int]:
        """Yield the descriptor; what goes wrong with it is told as what it is."""
        try:
            if self._forgotten:
                msg = f"{self._path} is another process's"
                raise OSError(msg)
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            yield self._fd
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror or str(error), self._path) from error
