"""The attempts at a mini-batch as the logs of a job have them: its table, and its process logs."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._report.attempts import COLUMNS
from daskprs._report.evidence import NO_PROCESS
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder


class RecordedAttempt(NamedTuple):
    """A row of the table of attempts."""

    run: int
    attempt: int
    node: int
    process: str
    started: str
    """UTC, as the table has it."""
    elapsed_s: float
    run_s: float
    status: str
    detail: dict[str, Any]
    """The values of the last column."""

    @property
    def has_process(self) -> bool:
        """Whether the attempt had begun in a process."""
        return self.process != NO_PROCESS


def recorded_attempts(folder: JobFolder, index: int) -> list[RecordedAttempt]:
    """Return the attempts that have ended at the mini-batch with a number, of all runs."""
    return [*map(_attempt, _whole_rows(folder.attempts, index))]


def process_of(folder: JobFolder, one: RecordedAttempt, index: int) -> tuple[str, int] | None:
    """Return host and process id of an attempt, from the log of its process; None: not there."""
    mark = f"|mini-batch {index}|attempt {one.attempt}|"
    try:
        with open_regular(folder.process_log(one.node, one.process)) as file:
            for line in file:
                before, found, _ = line.decode(errors="replace").partition(mark)
                _, _, who = before.partition("|")
                host, _, pid = who.rpartition("|")
                if found and pid.isdecimal():
                    return host, int(pid)
    except FileNotFoundError:
        pass
    return None


def _attempt(row: list[str]) -> RecordedAttempt:
    cells = dict(zip(COLUMNS, row, strict=True))
    detail = json.loads(cells["Mini-batch Detail"])
    return RecordedAttempt(
        detail["run"],
        int(cells["Picked Count"]),
        int(cells["Node Id"]),
        cells["Process"],
        cells["Process Start Time"],
        float(cells["Elapsed Seconds"]),
        float(cells["Run Method Seconds"]),
        cells["Status"],
        detail,
    )


def _whole_rows(table: Path, index: int) -> Iterator[list[str]]:
    """Yield the rows of a mini-batch; each is one line, and the last may be torn by a crash."""
    beginning = f"{index},".encode()
    try:
        with open_regular(table) as file:
            lines = [line.decode() for line in file if line.startswith(beginning)]
    except FileNotFoundError:
        return
    yield from csv.reader(line for line in lines if line.endswith('}"\n'))
