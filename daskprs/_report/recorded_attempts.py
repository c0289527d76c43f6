"""The attempts at a mini-batch as the logs of a job have them: its table, and its process logs.

By the table it is known which part of the printed text of a process is of which attempt.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from daskprs._output.failures.attempt import ATTEMPTS
from daskprs._output.journal.history import History
from daskprs._output.journal.journal import records_of
from daskprs._report.attempts import COLUMNS
from daskprs._report.evidence import NO_PROCESS
from daskprs._system.log_cap import read_part
from daskprs._system.regular_files import open_regular
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder

Stream = Literal["stdout", "stderr"]


class RecordedAttempt(NamedTuple):
    """A row of the table of attempts."""

    mini_batch: int
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
    beginning = f"{index},".encode()
    try:
        with open_regular(folder.attempts) as file:
            lines = [line for line in file if line.startswith(beginning)]
    except FileNotFoundError:
        return []
    # Each row is one line, and the last may be torn by a crash.
    return [one for line in lines if line.endswith(b'}"\n') and (one := attempt_in(line))]


def attempt_in(line: bytes) -> RecordedAttempt | None:
    """Return the attempt in a line of the table; None for the header."""
    (row,) = csv.reader([line.decode(errors="replace")])
    if len(row) != len(COLUMNS) or not row[0].isdecimal():
        return None
    cells = dict(zip(COLUMNS, row, strict=True))
    detail = json.loads(cells["Mini-batch Detail"])
    return RecordedAttempt(
        int(cells["Mini-batch Id"]),
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


# ---- printed text ----


def printed_text(folder: JobFolder, stream: Stream, index: int, attempt: int | None = None) -> str:
    """Return the text that an attempt, the last or a given one, has written to a stream.

    Raise `UsageError` when the table of attempts has no such attempt, or the part of the log is
    unknown.
    """
    run, number = _number_in_logs(folder, index)
    rows = [
        one
        for one in recorded_attempts(folder, number)
        if attempt in (None, one.attempt) and run in (None, one.run)
    ]
    if not rows:
        which = "no attempt" if attempt is None else f"no attempt {attempt}"
        msg = f"{stream}: mini-batch {index} has {which} that has ended, by {folder.attempts}."
        raise UsageError(msg)
    node, process, detail = rows[-1].node, rows[-1].process, rows[-1].detail
    if stream not in detail:
        return ""
    log = (folder.stdout if stream == "stdout" else folder.stderr)(node, process)
    if detail[stream] is None:
        if lines := _marked_lines(log, number):
            return lines
        msg = (
            f"{stream}: which part of {log} is of mini-batch {index} is unknown, since the script "
            "has put something else in the place of stdout or stderr. Read the log."
        )
        raise UsageError(msg)
    try:
        return read_part(log, *detail[stream]).decode("utf-8", "replace")
    except FileNotFoundError as error:
        msg = f"{stream}: {log} is gone, which had the output of mini-batch {index}."
        raise UsageError(msg) from error


def _number_in_logs(folder: JobFolder, index: int) -> tuple[int | None, int]:
    """Return the run that has settled a mini-batch, and the number that the mini-batch had in it.

    The run is None while no run has numbered the mini-batches anew, for an input that has grown.
    """
    if next(records_of(folder, "renumbered"), None) is None:
        return None, index
    history = History(folder)
    rows = history.standing()
    for row in rows[history.commits.column("index")[rows] == index].tolist():
        return history.commits.values(row)["epoch"], int(history.recorded()[row])
    failed = history.given_up.get(index)
    for epoch, _, (_, identity, number, *_) in records_of(folder, *ATTEMPTS):
        if failed is not None and (epoch, identity) == (failed.epoch, failed.identity):
            return epoch, number
    return history.epoch, index


def _marked_lines(log: Path, index: int) -> str:
    """Return the lines of a mini-batch whose process had several at a time, which mark them."""
    mark = f"[{index}] ".encode()
    try:
        with open_regular(log) as file:
            lines = [line.removeprefix(mark) for line in file if line.startswith(mark)]
    except FileNotFoundError:
        return ""
    return b"".join(lines).decode("utf-8", "replace")
