"""The printed text of a mini-batch, from the logs of its process, by the table of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from daskprs._report.recorded_attempts import recorded_attempts
from daskprs._system.log_cap import read_part
from daskprs._system.regular_files import open_regular
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder

Stream = Literal["stdout", "stderr"]


def printed_text(folder: JobFolder, stream: Stream, index: int, attempt: int | None = None) -> str:
    """Return the text that an attempt, the last or a given one, has written to a stream.

    Raise `UsageError` when the table of attempts has no such attempt, or the part of the log is
    unknown.
    """
    rows = [
        one for one in recorded_attempts(folder, index) if attempt is None or one.attempt == attempt
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
        if lines := _marked_lines(log, index):
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


def _marked_lines(log: Path, index: int) -> str:
    """Return the lines of a mini-batch whose process had several at a time, which mark them."""
    mark = f"[{index}] ".encode()
    try:
        with open_regular(log) as file:
            lines = [line.removeprefix(mark) for line in file if line.startswith(mark)]
    except FileNotFoundError:
        return ""
    return b"".join(lines).decode("utf-8", "replace")
