"""Sync appended data about once a second, so that it survives a loss of power."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from daskprs.errors import OutputError
from daskprs.system.disk_space import no_room

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from daskprs.output.journal.journal import Journal
    from daskprs.output.spool import Spools

EVERY_S = 1.0
SHARE_OF_TIME = 0.2
"""Largest share of the time that syncs take: on a slow disk they come less often."""


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

        Raises
        ------
        OutputError
            When the journal cannot be written, or the last sync has failed.

        """
        if now_s < self._due_s or not self._finished(now_s):
            return
        try:
            self._journal.write()
        except OSError as error:
            raise OutputError(no_room(self._folder, error)) from error
        try:
            self._running = self._threads.submit(self._sync)
        except RuntimeError:  # no more threads: the driver waits for the disk
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = ThreadPoolExecutor(1, "daskprs-sync")
            self.sync()
            self._due_s = now_s + EVERY_S

    def sync(self) -> None:
        """Sync now, and return when the sync is done.

        Raises
        ------
        OutputError
            When it failed.

        """
        try:
            self._journal.write()
            if self._running is not None:
                self._running.result()
            self._sync()
        except OSError as error:
            raise OutputError(no_room(self._folder, error)) from error

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown()

    def _finished(self, now_s: float) -> bool:
        if self._running is None:
            return True
        if not self._running.done():
            return False
        running, self._running = self._running, None
        try:
            took_s = running.result()
        except OSError as error:
            raise OutputError(no_room(self._folder, error)) from error
        self._due_s = now_s + max(EVERY_S, took_s / SHARE_OF_TIME)
        return False

    def _sync(self) -> float:
        begun = time.monotonic()
        self._spools.sync()
        self._journal.sync()
        return time.monotonic() - begun
