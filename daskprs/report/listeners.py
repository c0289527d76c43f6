"""Listeners: whoever shows or writes down what the job tells."""

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
    """Hears every event of a job, in order, from the driver's one loop."""

    def tell(self, event: Event) -> None:
        """Take an event; must be quick, as some come for every mini-batch."""
        ...

    def close(self) -> None:
        """Finish; called once, also when the job was broken off."""
        ...


class Listeners:
    """Tells all listeners. One that raises is written down and dropped: the job goes on.

    The others are told of it, so that a person knows what is missing from the logs.
    """

    def __init__(self, listeners: Iterable[Listener], folder: JobFolder) -> None:
        self._listeners = tuple(listeners)
        self._folder = folder

    def tell(self, event: Event) -> None:
        """Tell an event to all."""
        stopped = []
        for listener in self._listeners:
            try:
                listener.tell(event)
            except Exception as error:  # noqa: BLE001 - a listener must not end the job
                stopped.append((listener, error))
        if stopped:
            self._drop(stopped)

    def close(self) -> None:
        """Let all finish, each once."""
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
