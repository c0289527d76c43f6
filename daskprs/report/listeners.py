"""Listeners: they receive the events of a job, and show or log them."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from daskprs.core.events import MessageLogged
from daskprs.errors import JobFolderError
from daskprs.system.regular_files import append_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.events import Event
    from daskprs.folders.job_folder import JobFolder


class Listener(Protocol):
    """Receives every event of a job, in order, from the driver's one loop."""

    def tell(self, event: Event) -> None:
        """Receive an event; must be quick, as some events come for every mini-batch."""
        ...

    def close(self) -> None:
        """Finish; called once, also when the job was interrupted."""
        ...


class Listeners:
    """Sends events to all listeners. One that raises is logged and dropped; the job goes on.

    The other listeners receive a warning, so that people know which log is incomplete.
    """

    def __init__(self, listeners: Iterable[Listener], folder: JobFolder) -> None:
        self._listeners = tuple(listeners)
        self._folder = folder

    def tell(self, event: Event) -> None:
        """Send an event to all listeners."""
        stopped = []
        for listener in self._listeners:
            try:
                listener.tell(event)
            except Exception as error:  # noqa: BLE001 - a listener must not end the job
                stopped.append((listener, error))
        if stopped:
            self._drop(stopped)

    def close(self) -> None:
        """Close all listeners, each once."""
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            try:
                listener.close()
            except Exception as error:  # noqa: BLE001 - the same
                self._write_down(listener, error)

    def _drop(self, stopped: list[tuple[Listener, Exception]]) -> None:
        gone = {id(listener) for listener, _ in stopped}
        self._listeners = tuple(one for one in self._listeners if id(one) not in gone)
        for listener, error in stopped:
            with suppress(Exception):
                listener.close()  # the terminal has its cursor back, what was written is kept
            self.tell(MessageLogged("warning", self._write_down(listener, error)))

    def _write_down(self, listener: Listener, error: Exception) -> str:
        """Write an error to the log folder, and return a sentence about it."""
        name = type(listener).__name__
        log = self._folder.own_error(name)
        with suppress(OSError, JobFolderError):  # a full disk: there is nowhere to write it
            log.parent.mkdir(parents=True, exist_ok=True)
            with append_regular(log) as file:
                traceback.print_exception(error, file=file)
        return f"{name} has stopped, the job goes on: {type(error).__name__}: {error}. See {log}"
