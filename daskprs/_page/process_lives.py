"""The lives of agent processes: when each began, was ready and ended, from the logs of nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daskprs._page.stamped_lines import stamped_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._folders.job_folder import JobFolder

STARTED = re.compile(r"(\S+) started, pid \d+")
READY = re.compile(r"(\S+) ready after ([\d.]+) s")
NOT_READY = re.compile(r"(\S+) failed in import or init\(\) after ([\d.]+) s: ")
EXITED = re.compile(r"(\S+) exits with returncode -?\d+")
CHANGES = (STARTED, READY, NOT_READY, EXITED)
STOPPED = "exits with returncode 0: stopped"
"""The end of a process that was asked to end, and did so in order; an error of its `shutdown` may
follow."""


@dataclass(slots=True)
class Life:
    """The life of a process; times are seconds since the epoch, as the driver has heard of it."""

    name: str
    """Node and process, such as ``0/process001``."""
    heard: float
    """When the driver first heard of it."""
    ready: float | None = None
    """When `init` was done."""
    init_s: float = 0.0
    """Seconds from the start of the process until then."""
    ended: float | None = None
    reason: str = ""
    """Why it ended, if it was not asked to."""
    error: str = ""
    """The error of an import or of `init`."""

    @property
    def begun(self) -> float:
        """When it was started: `init` was over at the latest when the driver heard of that."""
        return (self.heard if self.ready is None else self.ready) - self.init_s

    @property
    def times(self) -> Iterator[float]:
        """The times at which something happened to it."""
        yield self.begun
        yield from (one for one in (self.heard, self.ready, self.ended) if one is not None)


def lives_of(folder: JobFolder) -> list[Life]:
    """Return the lives of all processes; each run of a job may begin with the same names."""
    lives: list[Life] = []
    for path in sorted(folder.logs.glob("sys/node/*/_main.txt")):
        now: dict[str, Life] = {}
        for time_s, text in stamped_lines(path):
            change = next(filter(None, (pattern.match(text) for pattern in CHANGES)), None)
            if change is None:
                continue
            name = change[1]
            if name not in now or change.re is STARTED:
                now[name] = Life(f"{path.parent.name}/{name}", time_s)
                lives.append(now[name])
            _change(now[name], time_s, change)
    return lives


def _change(life: Life, time_s: float, change: re.Match[str]) -> None:
    if change.re is READY:
        life.ready, life.init_s = time_s, float(change[2])
    elif change.re is NOT_READY:
        life.init_s, life.error = float(change[2]), change.string[change.end() :]
    elif change.re is EXITED:
        life.ended = time_s
        if STOPPED not in change.string:
            life.reason = change.string
