"""The control of a job that runs in a thread of its own: its progress, and a request to cancel."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs._core.events import JobEnded, ProgressReported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._core.events import Event, Progress


class JobControl:
    """A listener that keeps the progress of a job, and cancels the job on request.

    Python interrupts no other thread than the main one. So the driver's loop asks for a request at
    each turn. The preparation of the input has no such loop, so the request raises a
    `KeyboardInterrupt` in it, as Ctrl-C does in the main thread.
    """

    def __init__(self) -> None:
        self.standing: Progress | None = None
        """The last progress; None before the first."""
        self._lock = threading.Lock()
        self._is_canceled = False
        self._preparing: int | None = None
        """The thread that prepares the input."""

    def tell(self, event: Event) -> None:
        """Keep the progress."""
        if isinstance(event, (ProgressReported, JobEnded)):
            self.standing = event.standing

    def close(self) -> None:
        """Do nothing."""

    def cancel(self) -> None:
        """Request the end of the job; any thread may do so, and more than once."""
        if self._is_canceled:
            return  # the interrupt may have hit its thread while that held the lock
        with self._lock:
            if not self._is_canceled and self._preparing is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._preparing), ctypes.py_object(KeyboardInterrupt)
                )
            self._is_canceled = True

    def check(self) -> None:
        """Raise a `KeyboardInterrupt` if the end of the job was requested."""
        if self._is_canceled:
            raise KeyboardInterrupt

    @contextmanager
    def prepares(self) -> Iterator[None]:
        """Let a request interrupt the block."""
        with self._lock:
            self._preparing = threading.get_ident()
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._preparing = None
        self.check()
