"""``job_error.txt`` and the tracebacks: the errors of the script, each kind once."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daskprs._core.events import AgentChanged, AttemptFailed, JobEnded, JobStarted, ProgressReported
from daskprs._core.lease import AgentExited, InitFailed
from daskprs._report.evidence import NO_PROCESS, evidence
from daskprs._report.humanize import Stamps
from daskprs._system.atomic_file import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.events import Event, Place
    from daskprs._core.outcomes import Failure
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.log_files import LogFiles

KINDS_KEPT = 200
"""Number of kinds of errors to keep; others are only counted, with their tracebacks on disk."""
SHAPE_CHARS = 300
TRACEBACK_CHARS = 5_000
SUMMARY_EVERY_S = 10.0
_VARIES = re.compile(r"0x[0-9a-f]+|\d+|'[^'\n]*'|\"[^\"\n]*\"", re.IGNORECASE)


def shape(failure: Failure) -> tuple[str, str]:
    """Return the common part of errors of one kind: all but numbers, addresses and quotes."""
    first_line = failure.message.partition("\n")[0]
    return failure.kind, _VARIES.sub("#", first_line[:SHAPE_CHARS])


@dataclass
class _Kind:
    """Errors of one shape: the first one, and their number."""

    failure: Failure
    where: str
    count: int = 1

    def __str__(self) -> str:
        """Return the kind as a paragraph of the summary."""
        failure = self.failure
        lines = [f"{self.count:,} × {failure}", f"first: {self.where}"]
        if failure.traceback:
            text = failure.traceback.rstrip()
            cut = "…\n" if len(text) > TRACEBACK_CHARS else ""
            lines.append(f"\n{cut}{text[-TRACEBACK_CHARS:]}")
        return "\n".join(lines) + "\n"


class ScriptErrors:
    """Collects the script's errors, and writes full tracebacks as they come."""

    def __init__(
        self, folder: JobFolder, files: LogFiles, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._files = files
        self._clock = clock
        self._stamps = Stamps()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._others = 0
        self._changed = False
        self._due_s = 0.0

    def tell(self, event: Event) -> None:
        """Record a failure."""
        match event:
            case AttemptFailed(again=False):
                if event.outcome.failure is not None:
                    self._attempt_failed(event, event.outcome.failure)
            case ProgressReported():
                if self._changed and self._clock() >= self._due_s:
                    self._summarize()
            case AgentChanged(place, InitFailed(failure=failure)):
                self._take(place, failure, "import or init()")
            case AgentChanged(place, AgentExited(warning=failure)) if failure:
                self._take(place, failure, "shutdown()")
            case JobStarted():
                self._folder.job_error.unlink(missing_ok=True)  # of the run that this one resumes
            case JobEnded():
                self.close()

    def close(self) -> None:
        """Write the summary."""
        if self._changed:
            self._summarize()

    def _attempt_failed(self, event: AttemptFailed, failure: Failure) -> None:
        mini_batch, outcome = event.mini_batch, event.outcome
        where = f"{mini_batch.described}, attempt {outcome.attempt}, {outcome.status.value}"
        self._take(event.place, failure, where)

    def _take(self, place: Place, failure: Failure, where: str) -> None:
        self._changed = True
        process = place.process or NO_PROCESS
        log = self._folder.tracebacks(place.node, process)
        text = failure.traceback or str(failure)
        stamp = self._stamps.at(time.time())
        self._files.file(log).write(f"{stamp}|{where}\n{text.rstrip()}\n\n")
        key = shape(failure)
        if key in self._kinds:
            self._kinds[key].count += 1
        elif len(self._kinds) < KINDS_KEPT:
            seen = evidence(failure, place, self._folder)
            first = f"{where}, on node {place.node}, {process}; {seen}"
            self._kinds[key] = _Kind(failure, first)
        else:
            self._others += 1

    def _summarize(self) -> None:
        self._changed = False
        self._due_s = self._clock() + SUMMARY_EVERY_S
        parts = [str(kind) for kind in sorted(self._kinds.values(), key=lambda kind: -kind.count)]
        if self._others:
            parts.append(f"{self._others:,} errors of more kinds: {self._folder.tracebacks_of_all}")
        write_text(self._folder.job_error, "\n".join(parts))
