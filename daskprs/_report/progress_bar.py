"""The progress of a running job, as a person sees it."""

from __future__ import annotations

import os
import sys
import threading
from typing import IO, TYPE_CHECKING, ClassVar, Protocol
from weakref import WeakSet

from daskprs._core.events import (
    AdviceGiven,
    AgentChanged,
    AttemptFailed,
    JobStarted,
    MessageLogged,
    ProgressReported,
)
from daskprs._core.lease import InitFailed
from daskprs._core.outcomes import Status
from daskprs._core.tracebacks import deepest_line
from daskprs._report.evidence import evidence
from daskprs._report.notebook import NotebookDisplay, in_notebook
from daskprs._report.progress_text import progress_text
from daskprs._system.standard_streams import is_terminal, without_escapes

if TYPE_CHECKING:
    from daskprs._core.events import Event, Place
    from daskprs._core.outcomes import Failure
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_view import JobWatch, View
    from daskprs._report.live_line import LiveLines

FIRST_DRAWN_S = 0.5
"""Seconds after which the live lines are imported and drawn; a shorter job does without."""
FIRST_LINE_S = 10.0
SLOWEST_LINE_S = 300.0
SLOWER = 1.5
"""Factor by which each pause is longer than the one before."""
MESSAGE_CHARS = 300
SHOWN_LEVELS = ("notice", "warning", "error")


class Watched(Protocol):
    """The job that a display shows: a job of this process, or a job of another process."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the work."""
        ...

    def view(self) -> View | None:
        """Return the present view, which costs more than the time; None before the first one."""
        ...


class Display(Protocol):
    """A place where progress is shown."""

    def show(self, watched: Watched) -> None:
        """Show the progress of the job; called often, so that not each call must draw."""
        ...

    def say(self, text: str) -> None:
        """Show a permanent line."""
        ...

    def output(self, lines: list[str]) -> None:
        """Show lines that the script has printed."""
        ...

    def end(self, view: View | None) -> None:
        """Show only the last state, permanently."""
        ...


class ProgressBar:
    """Listens to a job and shows its progress.

    It shows the first error of the script at once, since most people wait for that.
    """

    def __init__(self, display: Display, folder: JobFolder, watch: JobWatch) -> None:
        self._display = display
        self._folder = folder
        self._watch = watch
        self._shows_error = False

    def tell(self, event: Event) -> None:
        """Show an event, if people should see it."""
        match event:
            case AttemptFailed():
                # The loss of a worker has a message of its own, and may be no fault of the script.
                is_loss = event.outcome.status is Status.NODE_LOST and not event.final
                if event.outcome.failure is not None and not is_loss:
                    self._attempt_failed(event, event.outcome.failure)
            case ProgressReported():
                self._display.show(self._watch)
            case AgentChanged(place, InitFailed(failure=failure)):
                self._first_error(failure, "import or init()", place)
            case MessageLogged(level, message) if level in SHOWN_LEVELS:
                self._say(message if level == "notice" else f"{level}: {message}")
            case AdviceGiven(text):
                self._say(text)
            case JobStarted(recovered=recovered) if recovered:
                self._say("resumed: what an earlier run has committed is not run again")

    def close(self) -> None:
        """Finish the display."""
        self._display.end(self._watch.view())

    def _say(self, text: str) -> None:
        """Show a permanent line; the names of files may have escapes, too."""
        self._display.say(without_escapes(text))

    def _attempt_failed(self, event: AttemptFailed, failure: Failure) -> None:
        mini_batch, outcome = event.mini_batch, event.outcome
        where = f"{mini_batch.described}, attempt {outcome.attempt}"
        self._first_error(failure, where, event.place)

    def _first_error(self, failure: Failure, where: str, place: Place) -> None:
        if self._shows_error:
            return
        self._shows_error = True
        error = failure._replace(message=failure.message.partition("\n")[0][:MESSAGE_CHARS])
        seen = evidence(failure, place, self._folder)
        line = deepest_line(failure.traceback)
        told = f"first error: {error}\n"
        if line and line not in str(error):
            told += f"  at {line}\n"
        self._say(f"{told}  in {where}; {seen}")


class Terminal:
    """A terminal; its live lines appear once the job has run for `FIRST_DRAWN_S`."""

    def __init__(self, stream: IO[str], name: str = "") -> None:
        self._stream = stream
        self._name = name
        self._line: LiveLines | None = None

    def show(self, watched: Watched) -> None:
        """Draw the live lines."""
        if self._line is None and watched.elapsed_s >= FIRST_DRAWN_S:
            from daskprs._report.live_line import LiveLines  # rich takes a tenth of a second

            self._line = LiveLines(self._stream, self._name)
        if self._line is not None:
            self._line.show(watched)

    def say(self, text: str) -> None:
        """Write above the live lines."""
        if self._line is not None:
            self._line.say(text)
        else:
            # Above the live lines of another job, which stand in for the stream.
            is_drawn = getattr(sys.stderr, "rich_proxied_file", None) is self._stream
            stream = sys.stderr if is_drawn else self._stream
            stream.write(f"{text}\n")
            stream.flush()

    def output(self, lines: list[str]) -> None:
        """Write lines of the script above the live line."""
        self.say("\n".join(lines))

    def end(self, view: View | None) -> None:
        """Leave the last state behind."""
        if self._line is not None:
            self._line.end(view)
        elif view is not None:
            self.say(progress_text(view))


class PlainLines:
    """Writes a line after ten seconds, then after ever longer pauses, and at the end.

    Jobs that one program shows at a time have their names in their lines.
    """

    _at_a_time: ClassVar[WeakSet[PlainLines]] = WeakSet()
    """The displays of jobs with names that have not ended."""
    _counting: ClassVar[threading.Lock] = threading.Lock()
    """Held by one that joins or leaves these: several threads may begin and end jobs."""

    def __init__(self, stream: IO[str] | None, name: str = "") -> None:
        self._stream = stream
        self._next_s = self._pause_s = FIRST_LINE_S
        self._name, self._who = name, "daskprs"
        if name:
            with self._counting:
                self._at_a_time.add(self)
                at_a_time = [*self._at_a_time]
            for one in at_a_time if len(at_a_time) > 1 else ():
                one.tell_name()

    def show(self, watched: Watched) -> None:
        """Write a line if it is time for one."""
        if watched.elapsed_s < self._next_s or (view := watched.view()) is None:
            return
        self._pause_s = min(SLOWEST_LINE_S, self._pause_s * SLOWER)
        self._next_s = watched.elapsed_s + self._pause_s
        self.say(progress_text(view))

    def say(self, text: str) -> None:
        """Write a line."""
        self.output([f"{self._who}: {text}"])

    def tell_name(self) -> None:
        """Begin each line with the name of the job from now on."""
        self._who = f"daskprs {self._name}"

    def output(self, lines: list[str]) -> None:
        """Write lines of the script."""
        if self._stream is not None:  # stderr is None where it is closed
            self._stream.writelines(f"{line}\n" for line in lines)
            self._stream.flush()

    def end(self, view: View | None) -> None:
        """Write the last state."""
        with self._counting:
            self._at_a_time.discard(self)
        if view is not None:
            self.say(progress_text(view))


def display_for(stream: IO[str] | None, folder: JobFolder, name: str = "") -> Display:
    """Return the display that suits where the job runs: in a notebook one output of its cell.

    `name` is that of a job beside which others may be shown.
    """
    return NotebookDisplay(folder) if in_notebook() else display_on(stream, name)


def display_on(stream: IO[str] | None, name: str = "") -> Display:
    """Return live lines for a terminal, and for anything else a line now and then."""
    if stream is not None and is_terminal(stream) and os.environ.get("TERM") != "dumb":
        return Terminal(stream, name)
    return PlainLines(stream, name)
