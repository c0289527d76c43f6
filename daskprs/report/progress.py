"""Progress: a live line in a terminal, a display in a notebook, now and then a line in a log."""

from __future__ import annotations

import html
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Protocol

from daskprs.core.ending import JobStatus
from daskprs.core.events import AttemptEnded, JobEnded, JobStarted, Remarked, Stood
from daskprs.report.progress_text import fraction_done, progress_text

if TYPE_CHECKING:
    from daskprs.core.events import Event

FIRST_LINE_S = 10.0
SLOWEST_LINE_S = 300.0
BAR_WIDTH = 24


class Display(Protocol):
    """A place where progress is shown."""

    def show(self, stood: Stood) -> None:
        """Show how far the job is."""
        ...

    def say(self, text: str) -> None:
        """Say something that stays."""
        ...

    def end(self, stood: Stood | None) -> None:
        """Leave the last state, and nothing else, behind."""
        ...


class Progress:
    """Listens to a job and shows how it goes.

    The first failure of the script is told at once: it is what most people want to know.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        self._last: Stood | None = None
        self._told_failure = False

    def tell(self, event: Event) -> None:
        """Show an event, if it is one to be shown."""
        match event:
            case AttemptEnded(outcome=outcome) if outcome.failure and not self._told_failure:
                self._told_failure = True
                failure = outcome.failure
                first = failure.message.partition("\n")[0]
                self._display.say(
                    f"first failure: {failure.kind}: {first} (mini-batch {outcome.index}, "
                    f"{event.mini_batch.label}, attempt {outcome.attempt})"
                )
            case Stood():
                self._last = event
                self._display.show(event)
            case Remarked(level, message) if level in ("warning", "error"):
                self._display.say(f"{level}: {message}")
            case JobStarted(resumed=True):
                self._display.say("resumed: what is committed is not run again")
            case JobEnded(ending=ending):
                if ending.status is JobStatus.COMPLETED and self._last is not None:
                    self._last = self._last._replace(
                        standing=event.standing, elapsed_s=event.elapsed_s, since_progress_s=0.0
                    )

    def close(self) -> None:
        """Finish the display."""
        self._display.end(self._last)


class Lines:
    """One plain line now and then, for logs: at first often, later seldom."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next_s = FIRST_LINE_S
        self._pause_s = FIRST_LINE_S

    def show(self, stood: Stood) -> None:
        """Write a line if it is time for one."""
        if stood.elapsed_s >= self._next_s:
            self._pause_s = min(SLOWEST_LINE_S, self._pause_s * 1.5)
            self._next_s = stood.elapsed_s + self._pause_s
            self.say(progress_text(stood))

    def say(self, text: str) -> None:
        """Write a line."""
        self._stream.write(f"daskprs: {text}\n")
        self._stream.flush()

    def end(self, stood: Stood | None) -> None:
        """Write the last state."""
        if stood is not None:
            self.say(progress_text(stood))


class LiveLine:
    """A line in a terminal that is drawn again and again."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console  # a tenth of a second, for terminals only

        self._console = Console(file=stream, highlight=False)
        self._live: Any = None

    def show(self, stood: Stood) -> None:
        """Draw the line again."""
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._drawn(stood), refresh=True)

    def say(self, text: str) -> None:
        """Write above the line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def end(self, stood: Stood | None) -> None:
        """Take the live line away, and leave its last state as an ordinary one."""
        if self._live is not None:
            self._live.stop()
        if stood is not None:
            self._console.print(self._drawn(stood))

    def _drawn(self, stood: Stood) -> Any:
        from rich.text import Text

        text = Text(no_wrap=True, overflow="ellipsis")
        share = fraction_done(stood)
        if share is not None:
            full = round(share * BAR_WIDTH)
            text.append("━" * full, style="green")
            text.append("━" * (BAR_WIDTH - full) + " ", style="dim")
            text.append(f"{100 * share:3.0f} % ")
        return text.append(progress_text(stood))


class Notebook:
    """A display in a notebook that is updated in place, without widgets."""

    def __init__(self) -> None:
        display: Any = sys.modules["IPython.display"]
        self._handle = display.display(display.HTML(""), display_id=True)
        self._html = display.HTML
        self._said: list[str] = []
        self._drawn_s = 0.0

    def show(self, stood: Stood) -> None:
        """Draw it again, not more than once a second."""
        now = time.monotonic()
        if now - self._drawn_s >= 1.0:
            self._drawn_s = now
            self._draw(stood)

    def say(self, text: str) -> None:
        """Add a line."""
        self._said.append(text)

    def end(self, stood: Stood | None) -> None:
        """Draw the last state."""
        if stood is not None:
            self._draw(stood)

    def _draw(self, stood: Stood) -> None:
        share = fraction_done(stood)
        bar = "" if share is None else f"<progress value='{share:.4f}' max='1'></progress> "
        said = "".join(f"<br>{html.escape(text)}" for text in self._said)
        self._handle.update(self._html(f"{bar}{html.escape(progress_text(stood))}{said}"))


def progress_for(wanted: bool | None, stream: IO[str]) -> Progress | None:  # noqa: FBT001 - an option
    """Return the progress that suits where the job runs; None if it is not wanted.

    With None a stream that is no terminal gets lines, a terminal a live line, and a notebook a
    display.
    """
    if wanted is False:
        return None
    if "ipykernel" in sys.modules and "IPython.display" in sys.modules:
        return Progress(Notebook())
    return Progress(LiveLine(stream) if stream.isatty() else Lines(stream))
