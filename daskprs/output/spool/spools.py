"""The spools of one epoch: files that rows are appended to, each by one process.

Agents that see the job folder write their own spool, and report the regions of their rows. The
driver has one for rows that it received. The journal says which regions count; the rest is never
read.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from daskprs.output.spool.regions import extents_of, split, write_at
from daskprs.system.atomic_file import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.core.lease import Results
    from daskprs.output.spec import OutputSpec
    from daskprs.output.spool.regions import Extents, Regions

DRIVER = "driver"
"""The name of the driver's spool; those of agents begin with a number."""


class Spools:
    """The files of all writers, in a folder for each form that is kept."""

    def __init__(self, text: Path, typed: Path, spec: OutputSpec) -> None:
        self._text = SpoolFolder(text) if spec.text else None
        self._typed = SpoolFolder(typed) if spec.typed else None
        self._folders = [one for one in (self._text, self._typed) if one is not None]

    def keep(self, made: Results) -> tuple[Regions | None, Regions | None]:
        """Write rows that came with outcomes; return the regions of all rows, text and typed.

        A failure (a full disk) leaves the driver's spool as it was: bytes already written lie
        beyond its end, and are overwritten or cut off.
        """
        text, typed = (extents_of(made.outcomes, form) for form in ("text", "typed"))
        lines, values = (b"", b"") if made.spool else split(made.payload, text, typed)
        return (
            None if self._text is None else self._text.keep(text, made.spool, lines),
            None if self._typed is None else self._typed.keep(typed, made.spool, values),
        )

    def sync(self) -> None:
        """Sync kept rows, so that they survive a loss of power; may be called by another thread."""
        for folder in self._folders:
            folder.sync()

    def close(self) -> None:
        """Cut off unfinished writes, and close the driver's files."""
        for folder in self._folders:
            folder.close()


class SpoolFolder:
    """The files of one form."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self._path = path
        self._fd: int | None = None
        self._end = 0
        self._lock = threading.Lock()
        self._unsynced: set[str] = set()
        self._named: set[str] = set()
        """Files whose names are on the disk."""

    def keep(self, extents: Extents, spool: str, payload: bytes) -> Regions:
        """Return the regions of the extents; write those without a spool to the driver's."""
        if spool:
            regions = extents.regions()
        else:
            regions = extents.regions_from(self._end)
            self._append(payload)
        if any(extents.length):
            with self._lock:
                self._unsynced.add(spool or DRIVER)
        return regions

    def sync(self) -> None:
        """Sync kept rows, of all writers, so that they survive a loss of power."""
        with self._lock:
            unsynced, self._unsynced = self._unsynced, set()
        try:
            for name in unsynced:
                _sync_data(self._path / name)
            if not unsynced <= self._named:
                sync_folder(self._path)
                self._named |= unsynced
        except OSError:
            with self._lock:
                self._unsynced |= unsynced
            raise

    def close(self) -> None:
        """Cut off an unfinished write, and close the driver's file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.ftruncate(fd, self._end)
            finally:
                os.close(fd)

    def _append(self, payload: bytes) -> None:
        if not payload:
            return
        if self._fd is None:
            self._fd = os.open(self._path / DRIVER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        write_at(self._fd, memoryview(payload), self._end)  # checked when it is published
        self._end += len(payload)


def _sync_data(path: Path) -> None:
    """Sync a file, including bytes that another process has written."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
