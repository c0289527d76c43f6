"""The listeners of a job: they receive its events, and show or log them."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Protocol

from daskprs._core.events import MessageLogged, ProgressReported
from daskprs._report.attempts import AttemptLogs
from daskprs._report.humanize import duration
from daskprs._report.job_logs import DriverLog, JobLogs, Overview
from daskprs._report.job_view import JobWatch
from daskprs._report.log_files import LogFiles
from daskprs._report.loggers import Loggers
from daskprs._report.progress_bar import ProgressBar, display_for
from daskprs._report.progress_file import ProgressFile
from daskprs._report.script_errors import ScriptErrors
from daskprs._report.shown_output import ShownOutput
from daskprs._report.summaries import Summaries
from daskprs._report.usage_logs import UsageLogs
from daskprs._system.regular_files import append_regular
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs._core.events import Event, Progress
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.progress_bar import Display

FIRST_AFTER_S = 3.0
LONGEST_S = 60.0
"""Maximum seconds between two notices; up to this, each pause is twice the one before."""
AGAIN_S = 0.25
"""Seconds between two reports of what the driver does after the last mini-batch."""


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
        self._telling = threading.RLock()
        """Held while an event is sent: what writes parts reports, while another thread does."""

    def tell(self, event: Event) -> None:
        """Send an event to all listeners."""
        stopped = []
        with self._telling:
            for listener in self._listeners:
                try:
                    listener.tell(event)
                except Exception as error:  # noqa: BLE001 - a listener must not end the job
                    stopped.append((listener, error))
            if stopped:
                self._drop(stopped)

    def say(self, level: str, message: str) -> None:
        """Send a message for people, as `MessageLogged` has it."""
        self.tell(MessageLogged(level, message))

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
            with suppress(Exception):  # it has failed already, and its first error is written down
                listener.close()  # restores the cursor of the terminal, and keeps the text
            self.say("warning", self._write_down(listener, error))

    def _write_down(self, listener: Listener, error: Exception) -> str:
        """Write an error to the log folder, and return a sentence about it."""
        name = type(listener).__name__
        log = self._folder.own_error(name)
        with suppress(OSError, JobFolderError):  # a full disk: there is nowhere to write it
            log.parent.mkdir(parents=True, exist_ok=True)
            with append_regular(log) as file:
                traceback.print_exception(error, file=file)
        return f"{name} has stopped, the job goes on: {type(error).__name__}: {error}. See {log}"


def listeners_of(
    folder: JobFolder,
    *,
    progress: bool | None,
    show_output: bool = False,
    display: Display | None = None,
) -> list[Listener]:
    """Return the listeners of a job; `LogFiles`, which flushes the files, comes last.

    `display` is the one to show the job on, if there is one already.
    """
    files, watch = LogFiles(), JobWatch()
    return [
        watch,
        *_on_screen(folder, watch, display, progress=progress, show_output=show_output),
        ProgressFile(folder, watch),
        Loggers(folder),
        JobLogs(folder),
        AttemptLogs(folder, files),
        ScriptErrors(folder, files),
        Summaries(folder),
        UsageLogs(folder, files),
        Overview(folder, files, watch),
        DriverLog(folder, files),
        files,
    ]


def _on_screen(
    folder: JobFolder,
    watch: JobWatch,
    display: Display | None,
    *,
    progress: bool | None,
    show_output: bool,
) -> Iterator[Listener]:
    """Yield the listeners with a display; output comes first, as progress ends the display."""
    if progress is False and not show_output:
        return
    display = display or display_for(sys.stderr, folder)
    if show_output:
        yield ShownOutput(display.output, folder)
    if progress is not False:
        yield ProgressBar(display, folder, watch)


@contextmanager
def report_listing(
    folder: JobFolder, how_far: Callable[[], str], *, progress: bool | None
) -> Iterator[None]:
    """Show how far the listing of the input is, before the job has a folder or a listener.

    `progress` is the option: False shows nothing.
    """
    if progress is False:
        yield
        return
    display = cache(lambda: display_for(sys.stderr, folder))
    notice = _notices("looking at", how_far)

    def tell() -> None:
        with suppress(OSError):  # the job begins where stderr cannot be written, too
            display().say(notice())

    with _telling(tell, FIRST_AFTER_S, LONGEST_S):
        yield


@contextmanager
def report_preparation(listeners: Listeners, how_far: Callable[[], str]) -> Iterator[None]:
    """Report the progress of the input's preparation, which may take minutes without other events.

    `how_far` returns the progress in a few words, or none. During the preparation, only the thread
    of this function sends events to the listeners.
    """
    notice = _notices("preparing", how_far)
    with _telling(lambda: listeners.say("notice", notice()), FIRST_AFTER_S, LONGEST_S):
        yield


def _notices(doing: str, how_far: Callable[[], str]) -> Callable[[], str]:
    """Return what gives a notice of the time from now on, and of how far it is."""
    begun_s = time.monotonic()

    def notice() -> str:
        for_s, more = duration(time.monotonic() - begun_s), how_far()
        return f"{doing} the input for {for_s}" + (f": {more}" if more else "")

    return notice


@contextmanager
def report_doing(
    listeners: Listeners, standing: Progress, begun_s: float, doing: Callable[[], str]
) -> Iterator[None]:
    """Report what the driver does after the last mini-batch: to upload may take an hour.

    During the block, only the thread of this function sends events to the listeners.
    """

    def report() -> None:
        elapsed_s = time.monotonic() - begun_s
        listeners.tell(ProgressReported(standing, (), elapsed_s, 0.0, doing=doing()))

    with _telling(report, AGAIN_S, AGAIN_S):
        yield


@contextmanager
def _telling(tell: Callable[[], None], first_s: float, longest_s: float) -> Iterator[None]:
    """Call `tell` again and again, each pause being twice the one before up to `longest_s`."""
    over = threading.Event()

    def tell_again() -> None:
        pause_s = first_s
        while not over.wait(pause_s):
            tell()
            pause_s = min(longest_s, 2 * pause_s)

    thread = threading.Thread(target=tell_again, name="daskprs-progress", daemon=True)
    started = False
    with suppress(RuntimeError):  # no more threads: the work is done without a word
        thread.start()
        started = True
    try:
        yield
    finally:
        over.set()
        if started:
            thread.join()
