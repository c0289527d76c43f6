"""What the log of the driver has recorded of a job: its runs, its workers and its messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from daskprs._page.stamped_lines import stamped_lines

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

BEGUN = re.compile(r"INFO\|\d+\|[^|]*\|job (\S+) (?:starts|resumes): (.*)")
OPTION = re.compile(r"INFO\|\d+\|[^|]*\|option (\w+)=(.*)")
WORKERS = re.compile(r"INFO\|\d+\|[^|]*\|([\d,]+) nodes?, ([\d,]+) slots?$")
MESSAGE = re.compile(r"(NOTICE|WARNING|ERROR)\|\d+\|[^|]*\|(.*)")
ENDED = re.compile(r"(?:INFO|ERROR)\|\d+\|[^|]*\|job [A-Z][a-z]+(?:$|: (.*))")
VERSIONS = re.compile(r"INFO\|\d+\|[^|]*\|versions: (.*)")
MOST_MESSAGES = 40
"""Most messages that are kept: the first half, and the last half."""


class Workers(NamedTuple):
    """How many slots the cluster had from a time on."""

    time_s: float
    nodes: int
    slots: int


class Message(NamedTuple):
    """A message for people."""

    time_s: float
    level: str
    text: str


@dataclass(slots=True)
class DriverRecord:
    """What the log of the driver has recorded; times are seconds since the epoch."""

    script: str = ""
    runs: list[tuple[float, float]] = field(default_factory=list)
    """The first and the last time of each run in the log."""
    options: dict[str, str] = field(default_factory=dict)
    """The options of the last run, as its call had them."""
    versions: str = ""
    reason: str = ""
    """Why the last run ended as it did; empty where it was completed, or has not ended."""
    workers: list[Workers] = field(default_factory=list)
    first: list[Message] = field(default_factory=list)
    last: list[Message] = field(default_factory=list)
    left_out: int = 0
    """Number of the messages between the first and the last that are kept."""

    @classmethod
    def of(cls, folder: JobFolder) -> Self:
        """Read the log of a job."""
        record = cls()
        for time_s, text in stamped_lines(folder.master_log):
            record._take(time_s, text)
        return record

    def _take(self, time_s: float, text: str) -> None:
        if found := BEGUN.match(text):
            self.script, self.options, self.reason = found[2], {}, ""
            self.runs.append((time_s, time_s))
        if self.runs:
            self.runs[-1] = (self.runs[-1][0], time_s)
        if found := OPTION.match(text):
            self.options[found[1]] = found[2]
        elif found := ENDED.match(text):
            self.reason = found[1] or ""
        elif found := VERSIONS.match(text):
            self.versions = found[1]
        elif found := WORKERS.match(text):
            numbers = (int(number.replace(",", "")) for number in found.groups())
            self.workers.append(Workers(time_s, *numbers))
        elif found := MESSAGE.match(text):
            self._keep(Message(time_s, found[1].lower(), found[2]))

    def _keep(self, message: Message) -> None:
        if len(self.first) < MOST_MESSAGES // 2:
            self.first.append(message)
            return
        self.last.append(message)
        if len(self.last) > MOST_MESSAGES // 2:
            del self.last[0]
            self.left_out += 1
