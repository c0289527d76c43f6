"""``job_error.txt`` and the tracebacks: what went wrong in the script, each kind once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs.core.events import AgentChanged, AttemptEnded, JobEnded
from daskprs.core.lease import AgentExited, InitFailed

if TYPE_CHECKING:
    from daskprs.core.events import Event, Place
    from daskprs.core.outcomes import Failure
    from daskprs.job_folder import JobFolder
    from daskprs.report.lines import LogFiles

KINDS_KEPT = 1_000
_NUMBERS = re.compile(r"\d+")


class _Kind:
    """Errors that differ in numbers only."""

    def __init__(self, failure: Failure, where: str) -> None:
        self.failure = failure
        self.where = where
        self.count = 0


class ScriptErrors:
    """Collects the script's errors, and writes full tracebacks as they come."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._files = files
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._others = 0

    def tell(self, event: Event) -> None:
        """Take note of a failure."""
        match event:
            case AttemptEnded(place=place, mini_batch=mini_batch) if event.outcome.failure:
                where = (
                    f"mini-batch {mini_batch.index} ({mini_batch.label}), {event.outcome.status}"
                )
                self._take(place, event.outcome.failure, where)
            case AgentChanged(place, InitFailed(failure=failure)):
                self._take(place, failure, "import or init()")
            case AgentChanged(place, AgentExited(warning=failure)) if failure:
                self._take(place, failure, "shutdown()")
            case JobEnded():
                self._summarize()

    def close(self) -> None:
        """Do nothing: the summary is written with the end of the job."""

    def _take(self, place: Place, failure: Failure, where: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = failure.traceback or f"{failure.kind}: {failure.message}\n"
        log = self._folder.tracebacks(place.node, place.process)
        self._files.write(log, f"{now} {where}\n{text.rstrip()}\n\n")
        key = failure.kind, _NUMBERS.sub("0", failure.message)[:500]
        if key not in self._kinds and len(self._kinds) >= KINDS_KEPT:
            self._others += 1
            return
        first = f"{where} on node {place.node}, {place.process}; traceback in {log}"
        self._kinds.setdefault(key, _Kind(failure, first)).count += 1

    def _summarize(self) -> None:
        kinds = sorted(self._kinds.values(), key=lambda kind: -kind.count)
        parts = [
            f"{kind.count} × {kind.failure.kind}: {kind.failure.message}\n    first: {kind.where}\n"
            for kind in kinds
        ]
        if self._others:
            parts.append(f"{self._others} errors of other kinds are in logs/user/error.\n")
        if parts:
            self._files.write(self._folder.job_error, "\n".join(parts))
