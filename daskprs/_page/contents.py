"""The contents of a report: all that it says, for a page as for a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.outcomes import Failure
from daskprs._core.tracebacks import condensed, deepest_line
from daskprs._page.causes import causes_of_items, causes_of_starts, paths_of
from daskprs._page.hints import hints_of
from daskprs._report.log_stream import TracebackLog
from daskprs._system.regular_files import open_regular
from daskprs._system.stores import plain_address

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from daskprs._core.events import Counts
    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.causes import Cause
    from daskprs._page.figures import RecordedFigures

COMPARED_CHARS = 1_000
"""Beginning of an error by which it is found again: the logs cut long ones."""
TAIL_BYTES = 4_000
TAIL_LINES = 15
TRACEBACK_CHARS = 8_000
MOST_FILES = 10


class Standing(NamedTuple):
    """Where a job stands, according to its journals."""

    status: str
    verdict: str
    """The state of the job in a sentence."""
    mini_batches: Counts
    """Those that are settled: `total` is their number."""
    planned: int | None
    """Number of mini-batches of the plan; None where it is not known yet."""
    items: Counts
    not_returned: int
    """Failed items of mini-batches that succeeded: `run` returned fewer than it was given."""
    unit: str
    recorded: tuple[tuple[str, str], ...] = ()
    """More names and texts that the job has recorded, such as what it has used."""
    advice: tuple[str, ...] = ()
    input: str = "the input"
    """Where the input is."""
    way_on: str = ""
    """The command, or the words, that go on with the job; empty where nothing is left to do."""
    replay: str = ""
    """The command that runs a failed mini-batch again, without its number."""
    headline: tuple[str, str] = ("", "")
    """Class and message of the error that the job ended by."""


class Headline(NamedTuple):
    """The first cause."""

    error: str
    line: str
    """The deepest line of the script; empty where there is none."""
    where: str
    """What had it first."""
    paths: list[str]
    """The files of the mini-batch that had it first, where it was given up."""
    evidence: str
    """The traceback, or the last lines that the process has written to stderr."""
    replay: str
    """The command that runs it again; empty if none can."""

    @property
    def files(self) -> str:
        """The files of the mini-batch, and how to find the one, in words."""
        paths = self.paths
        shown = ", ".join(paths[:MOST_FILES])
        more = f" and {len(paths) - MOST_FILES:,} more" if len(paths) > MOST_FILES else ""
        if len(paths) == 1:
            return f"Its file: {shown}."
        return (
            f"Its {len(paths):,} files: {shown}{more}. To find out which of them it is, run the "
            "first alone by --rows 0:1, the next by --rows 1:2, or let a resume search: "
            "on_error='isolate'."
        )


class Contents(NamedTuple):
    """What a report says."""

    folder: JobFolder
    standing: Standing
    figures: RecordedFigures
    hints: list[str]
    """What the figures show of its trouble."""
    causes: list[Cause]
    """What attempts failed by, the most important first."""
    others: int
    """Number of failures by causes that are too many to be kept."""
    headline: Headline | None

    @classmethod
    def of(cls, folder: JobFolder, standing: Standing, figures: RecordedFigures) -> Contents:
        """Put together what is to be said of a job."""
        kinds = (
            causes_of_starts(figures.lives),
            causes_of_items(folder, standing.unit),
            figures.table.causes,
        )
        causes = [cause for each in kinds for cause in each]
        others = sum(each.others for each in kinds)
        first = _first(causes, standing)
        headline = None if first is None else _headline(folder, standing, first)
        hints = hints_of(figures, standing.input)
        return cls(folder, standing, figures, hints, causes, others, headline)

    # ---- counts ----

    @property
    def elapsed_s(self) -> float:
        """Seconds in which drivers have worked on the job."""
        return self.figures.work.length_s

    @property
    def waiting(self) -> int | None:
        """Number of mini-batches that are not settled; None where the plan is not known yet."""
        standing = self.standing
        if standing.planned is None:
            return None
        return max(0, standing.planned - standing.mini_batches.total)

    @property
    def attempts_failed(self) -> int:
        """Number of attempts that failed, those of mini-batches that were done later included."""
        return int((~self.figures.table.attempts.is_done).sum())

    @property
    def deaths(self) -> int:
        """Number of processes that ended though nobody had asked them to."""
        return sum(bool(life.reason) for life in self.figures.lives)

    def run_seconds(self) -> np.ndarray:
        """Return the seconds in `run` of each attempt that succeeded."""
        attempts = self.figures.table.attempts
        run_s: np.ndarray = attempts.run_s[attempts.is_done]
        return run_s


def _first(causes: list[Cause], standing: Standing) -> Cause | None:
    """Return the cause that the job ended by, or else the most important one."""
    error = str(Failure(*standing.headline)).partition("\n")[0][:COMPARED_CHARS]
    for cause in causes:
        if error and cause.error.startswith(error):
            return cause
    return causes[0] if causes else None


def _headline(folder: JobFolder, standing: Standing, cause: Cause) -> Headline:
    evidence = cause.evidence or _evidence(folder, cause)
    paths = [] if cause.mini_batch is None else paths_of(folder, cause.mini_batch)
    paths = [*map(plain_address, paths)]
    again = cause.replay(standing.replay)
    return Headline(cause.error, deepest_line(evidence), cause.where, paths, evidence, again)


def _evidence(folder: JobFolder, cause: Cause) -> str:
    """Return what the log of a failure has of it: its traceback, or the last lines on stderr."""
    log = folder.logs / cause.log
    if not cause.log or not log.is_file():
        return ""
    if folder.tracebacks_of_all not in log.parents:
        return _tail(log)
    error = cause.error.partition("\n")[0][:COMPARED_CHARS]
    entries = TracebackLog(log, "", "error").new(is_last=True)
    found = [one.text for one in entries if cause.mini_batch in (None, one.mini_batch)]
    # An attempt before, in the same process, may have had another error.
    text = next((one for one in found if error in one), found[0] if found else "")
    return condensed(text.partition("\n")[2])[-TRACEBACK_CHARS:]


def _tail(log: Path) -> str:
    with open_regular(log) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])
