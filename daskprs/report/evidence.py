"""Where to read more about a failure: the log that has the most to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.core.events import Place
    from daskprs.core.outcomes import Failure
    from daskprs.folders.job_folder import JobFolder

SAID_ON_STDERR = {"PROCESS_DIED", "TimeoutError", "MemoryError"}
"""What ends a process, so that it has no traceback; an exception of that name has one."""
NO_PROCESS = "no_process"
"""In place of its name, where a mini-batch was failed without an agent process."""


class Evidence(NamedTuple):
    """A log file, and what is found in it."""

    what: str
    log: Path

    def __str__(self) -> str:
        """Return both, as a message has it."""
        return f"{self.what}: {self.log}"


def evidence(failure: Failure, place: Place, folder: JobFolder) -> Evidence:
    """Return the log to look into.

    An exception has a traceback. A process that died or was killed has none, but may have said
    something before, and the stacks of one that was too slow are there too.
    """
    if failure.traceback:
        return Evidence("full traceback", _errors(place, folder))
    if place.process and failure.kind in SAID_ON_STDERR:
        return Evidence("its stderr log", folder.stderr(place.node, place.process))
    return Evidence("its error log", _errors(place, folder))


def _errors(place: Place, folder: JobFolder) -> Path:
    return folder.tracebacks(place.node, place.process or NO_PROCESS)
