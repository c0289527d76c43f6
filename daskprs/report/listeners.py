"""Listeners: whoever shows or writes down what the job tells."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.events import Event
    from daskprs.job_folder import JobFolder


class Listener(Protocol):
    """Hears every event of a job, in order, from the driver's one loop."""

    def tell(self, event: Event) -> None:
        """Take an event; must be quick, as some come for every mini-batch."""
        ...

    def close(self) -> None:
        """Finish; called once, also when the job was broken off."""
        ...


class Listeners:
    """Tells all listeners. One that raises is written down and dropped: the job goes on."""

    def __init__(self, listeners: Iterable[Listener], folder: JobFolder) -> None:
        self._listeners = list(listeners)
        self._folder = folder

    def tell(self, event: Event) -> None:
        """Tell an event to all."""
        for listener in list(self._listeners):
            try:
                listener.tell(event)
            except Exception:  # noqa: BLE001 - a listener must not end the job
                self._drop(listener)

    def close(self) -> None:
        """Let all finish."""
        for listener in list(self._listeners):
            try:
                listener.close()
            except Exception:  # noqa: BLE001 - the same
                self._drop(listener)

    def _drop(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        name = type(listener).__name__
        try:
            self._folder.own_errors.mkdir(parents=True, exist_ok=True)
            (self._folder.own_errors / f"{name}.txt").write_text(traceback.format_exc())
        except OSError:
            return  # a full disk: there is nowhere to say it
