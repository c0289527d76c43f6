"""The result of a job."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.ending import JobStatus
from daskprs.core.events import Counts
from daskprs.errors import Option, OptionError, ParallelRunCanceled, ParallelRunFailed
from daskprs.folders.job_folder import JobFolder

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["Counts", "ParallelRunResult"]

RUNNING = "Running"
"""The status of a detached job right after its submission."""
PATHS = ("output_file", "output_dir", "logs_dir", "job_dir")


@dataclass(frozen=True, repr=False)
class ParallelRunResult:
    """What a job did, and where everything is.

    Attributes
    ----------
    status : str
        ``"Completed"``, ``"Failed"`` or ``"Canceled"``; ``"Running"`` for a detached job.
    mini_batches : Counts
        Number of mini-batches (`total`), and how many `succeeded` and `failed`. A job that ended
        early counts those planned until then.
    items : Counts
        The same in rows (tables) or files: `succeeded` is the sum of ``len(result)``, and a
        mini-batch that returned fewer than it was given adds the difference to `failed`.
    output_file : Path or str or None
        The published append_row file, a str where it is a URL; None where no text was written or
        nothing was published.
    output_dir : Path or str
        Where the output file is, and where the script may write its own.
    logs_dir : Path
        The log folder.
    job_dir : Path
        The job folder: logs, journal and, for an unfinished job, what ``resume=True`` needs.
    elapsed_s : float
        Seconds from the call to the result.
    left_out : tuple of str
        Processes that were replaced, and GPUs and nodes that were left out for a time, since
        everything failed on them that worked elsewhere: ``("node 1",)``.

    """

    status: str
    mini_batches: Counts
    items: Counts
    output_file: Path | str | None
    output_dir: Path | str
    logs_dir: Path
    job_dir: Path
    elapsed_s: float
    unit: str = "row"
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: dict[str, Any]) -> ParallelRunResult:
        """Return the result from the JSON values that `record` made."""
        values = dict(record)
        for name in PATHS:
            values[name] = _place(values[name])
        for name in ("mini_batches", "items"):
            values[name] = Counts(*values[name])
        values["left_out"] = tuple(values.get("left_out", ()))
        return cls(**values)

    @property
    def failed_file(self) -> Path | None:
        """The table of failed mini-batches, with every attempt; None if none failed.

        It is a Parquet file in the job folder, with a row for each mini-batch. A later run of the
        job in which they succeed removes the file.
        """
        path = JobFolder(self.job_dir).failed
        return path if path.exists() else None

    @property
    def failed(self) -> pd.DataFrame:
        """The mini-batches that failed in the end.

        Returns
        -------
        pandas.DataFrame
            One row for each, in input order, with the columns
            ``mini_batch`` (int), ``label`` (str, which part of the input it is), ``items`` (int),
            ``log`` (str, below `logs_dir`: the traceback, or what a process that died wrote to
            stderr) and ``error`` (str). Read from `failed_file` each time.

        """
        import pandas as pd

        from daskprs.report.evidence import FailedRow, failed_rows

        rows = list(failed_rows(JobFolder(self.job_dir)))
        return pd.DataFrame(rows, columns=list(FailedRow._fields))

    def record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        values = asdict(self)
        for name in PATHS:
            values[name] = None if values[name] is None else str(values[name])
        return values

    def to_pandas(self, *, ignore_index: bool = False) -> pd.DataFrame:
        """Return what `run` returned, in input order, with its types.

        Frames are put together. Elements of lists, tuples and arrays make one column called
        ``result``.

        If the input is a pandas or dask DataFrame, the rows carry the labels of its index, so that
        ``frame["score"] = result.to_pandas()["score"]`` is right after a filter, too. Labels are
        decided for the whole result. A mini-batch of n rows fits by position if `run` returned a
        list or an array of n elements, or a frame of n rows with the index 0 to n - 1. It fits
        through the index of the returned frame if that is unnamed and holds different numbers out
        of 0 to n - 1. The rows are numbered from 0, with a warning, if a mini-batch with rows fits
        neither way, or if each frame that is shorter than its mini-batch has the index 0, 1, … as
        after ``reset_index``.

        The rows of any other input are numbered from 0.

        Parameters
        ----------
        ignore_index
            Number the rows from 0 in any case, without a warning.

        Returns
        -------
        pandas.DataFrame
            All rows; it has to fit into memory.

        Raises
        ------
        OptionError
            When typed rows were not kept: with an `output_dir` they are only with
            ``keep_rows=True``, since text that is read back would turn ``"007"`` into 7.

        Warns
        -----
        UserWarning
            When the rows of a DataFrame are numbered from 0.

        """
        from daskprs.output.read_rows import read_rows

        rows = read_rows(JobFolder(self.job_dir), ignore_index=ignore_index)
        if rows is None:
            msg = (
                "to_pandas: this job kept no typed rows. Call parallel_run without output_dir, or "
                f"with {Option('keep_rows', value=True)}."
            )
            raise OptionError(msg)
        return rows

    def __repr__(self) -> str:
        """Return the result as a few lines of text."""
        return "\n".join(
            [
                f"<daskprs job {self.status}>",
                *(f"  {name:<13}{text}" for name, text in self._rows()),
            ]
        )

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self._rows()
        )
        return f"<table><caption>daskprs job {self.status}</caption>{rows}</table>"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("mini-batches", _counted(self.mini_batches)),
            (f"{self.unit}s", _counted(self.items)),
            ("elapsed", f"{self.elapsed_s:.1f} s"),
        ]
        if self.output_file is not None:
            rows.append(("output", str(self.output_file)))
        elif _holds_files(self.output_dir):
            rows.append(("output", str(self.output_dir)))
        if self.mini_batches.failed:
            rows.append(("errors", str(JobFolder(self.job_dir).job_error)))
            rows.append(("failed", str(JobFolder(self.job_dir).failed)))
        return [*rows, ("logs", str(self.logs_dir)), ("job", str(self.job_dir))]


def _place(written: str | None) -> Path | str | None:
    """Return a URL as text, and any other place as a path."""
    return written if written is None or "://" in written else Path(written)


def _holds_files(place: Path | str) -> bool:
    """Return whether a local folder has entries: a script may have written there."""
    return isinstance(place, Path) and place.is_dir() and any(place.iterdir())


def _counted(counts: Counts) -> str:
    return f"{counts.total:,} total, {counts.succeeded:,} succeeded, {counts.failed:,} failed"


class JobEnd(NamedTuple):
    """The end of a job, fixed before it is reported: no interrupt changes it afterwards."""

    result: ParallelRunResult
    message: str

    @classmethod
    def early(cls, nothing: ParallelRunResult) -> JobEnd:
        """Return the end of a job that was interrupted while it was prepared."""
        return cls(nothing, "The job is Canceled: it was interrupted before the first mini-batch.")

    def told(self) -> ParallelRunResult:
        """Return the result of a completed job.

        Raises
        ------
        ParallelRunFailed, ParallelRunCanceled
            With the result of any other job.

        """
        match JobStatus(self.result.status):
            case JobStatus.COMPLETED:
                return self.result
            case JobStatus.CANCELED:
                raise ParallelRunCanceled(self.message, self.result)
            case JobStatus.FAILED:
                raise ParallelRunFailed(self.message, self.result)
