"""What the log of the driver has recorded of a job: its runs, its workers and its messages."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from daskprs._inputs.source.sizes import parse_bytes
from daskprs._page.stamped_lines import stamped_lines
from daskprs._report.humanize import MB

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

LINE = re.compile(r"([A-Z]+)\|(\d+)\|[^|]*\|(.*)")
BEGUN = re.compile(r"job \S+ (?:starts|resumes): (.*)")
OPTION = re.compile(r"option (\w+)=(.*)")
WORKERS = re.compile(r"[\d,]+ nodes?, ([\d,]+) slots?$")
ENDED = re.compile(r"job [A-Z][a-z]+(?:$|: (.*))")
RENEWED = re.compile(r"\S+ on node \d+ is renewed: ")
VERSIONS = "versions: "
MOST_MESSAGES = 40
"""Most messages that are kept: the first half, and the last half."""


class Workers(NamedTuple):
    """How many slots the cluster had from a time on."""

    time_s: float
    slots: int


class Message(NamedTuple):
    """A message for people."""

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
    renewed: list[float] = field(default_factory=list)
    """When processes were renewed that a mini-batch may have broken."""
    first: list[Message] = field(default_factory=list)
    last: list[Message] = field(default_factory=list)
    left_out: int = 0
    """Number of the messages between the first and the last that are kept."""
    _pid: str = ""
    """The process of the last run."""
    _is_over: bool = False
    _has_versions: bool = False
    """Whether it has told its versions: drivers of earlier versions gave warnings first."""

    @property
    def memory_limit_mb(self) -> float | None:
        """The limit of a process, if the call has set one."""
        with suppress(ValueError, SyntaxError):
            if limit := ast.literal_eval(self.options.get("agent_memory_limit", "None")):
                return parse_bytes(limit, "agent_memory_limit") / MB
        return None

    @classmethod
    def of(cls, folder: JobFolder) -> Self:
        """Read the log of a job."""
        record = cls()
        for time_s, text in stamped_lines(folder.master_log):
            record._take(time_s, text)
        return record

    def _take(self, time_s: float, line: str) -> None:
        found = LINE.match(line)
        if found is None:  # a line of a message, which begins with a time
            return
        level, pid, said = found.groups()
        begun = BEGUN.match(said) if level == "INFO" else None
        # A driver begins with the versions. It may have the process id of the one before: in one
        # process, and in containers, where that of a driver that was killed is the next one's.
        tells_versions = said.startswith(VERSIONS)
        if pid != self._pid or (tells_versions and self._has_versions):
            self.runs.append((time_s, time_s))
            self._pid, self._is_over, self._has_versions = pid, False, False
        self._has_versions |= tells_versions
        if begun is not None:
            self.script, self.options, self.reason = begun[1], {}, ""
        if not self._is_over:
            self.runs[-1] = (self.runs[-1][0], time_s)
        self._read(time_s, level, said)

    def _read(self, time_s: float, level: str, said: str) -> None:
        if RENEWED.match(said):
            self.renewed.append(time_s)
        if level in ("INFO", "ERROR") and (found := ENDED.match(said)):
            self.reason, self._is_over = found[1] or "", True
        elif level in ("NOTICE", "WARNING", "ERROR"):
            self._keep(Message(level.lower(), said))
        elif found := OPTION.match(said):
            self.options[found[1]] = found[2]
        elif found := WORKERS.match(said):
            self.workers.append(Workers(time_s, int(found[1].replace(",", ""))))
        elif said.startswith(VERSIONS):
            self.versions = said.removeprefix(VERSIONS)

    def _keep(self, message: Message) -> None:
        if len(self.first) < MOST_MESSAGES // 2:
            self.first.append(message)
            return
        self.last.append(message)
        if len(self.last) > MOST_MESSAGES // 2:
            del self.last[0]
            self.left_out += 1
