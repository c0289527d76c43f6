"""The result of a job."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from daskprs._arrow.arrow_polars import polars_frame
from daskprs._core.events import Counts
from daskprs._folders.job_folder import JobFolder
from daskprs._job.usage import Usage
from daskprs._report.html_table import table_of
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dask.dataframe as dd
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from daskprs._output.kept_rows import KeptRows
    from daskprs._output.published_rows import PublishedRows


__all__ = ["Counts", "ParallelRunResult"]

RUNNING = "Running"
"""The status of a detached job right after its submission."""
PATHS = ("output_file", "output_dir", "logs_dir", "job_dir")


@dataclass(frozen=True, repr=False)
class ParallelRunResult:
    """The result of a job: counts, and the places of its output and logs.

    Attributes
    ----------
    status : str
        ``"Completed"``, ``"Failed"``, ``"Canceled"`` or ``"Interrupted"``; ``"Running"`` for a
        detached job.
    mini_batches : Counts
        Number of mini-batches of the job (`total`), and how many `succeeded` and `failed`. If a job
        ended early, and the number of all is not known before (of CSV, say), `total` is that of the
        mini-batches planned by then.
    items : Counts
        The rows (tables) or files of the mini-batches that have succeeded or failed: `succeeded` is
        the sum of ``len(result)``, and a mini-batch that returned fewer than it was given adds the
        difference to `failed`.
    output_file : Path or str or None
        The published output: the append_row file, or the folder of a data set. A str where it is a
        URL; None where none was written or nothing was published.
    output_dir : Path or str
        Where the output file is, and where the script may write its own.
    logs_dir : Path
        The log folder.
    job_dir : Path
        The job folder: logs, journal and, for an unfinished job, what ``resume=True`` needs.
    elapsed_s : float
        Seconds from the call to the result.
    not_returned : int
        The number of failed items in mini-batches that succeeded: `run` returned fewer
        than it was given, one row for each key, say.
    left_out : tuple of str
        GPUs and nodes that were left out for a time, since mini-batches failed on them that
        succeeded elsewhere: ``("node 1",)``. Also nodes on which the import of the script or `init`
        failed again and again: ``("node 2 (no process came up)",)``.
    renewals : int
        The number of processes that were renewed, since a mini-batch may have broken them.
    throttled : int
        The number of attempts that an endpoint has refused, since there were too many requests.
    advice : tuple of str
        What the load of GPUs and cores suggests for the next job, such as another
        `process_count_per_node`. Only a job of ten seconds or more has advice.
    usage : Usage
        What the script has counted by ``context.count``, in all runs of the job: `spent` and
        `useful`, each a dict of amounts by name.
    is_trusted : bool
        Whether Python objects are loaded even if another user has written them: see `trusted`.

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
    renewals: int = 0
    throttled: int = 0
    not_returned: int = 0
    advice: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    is_trusted: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, record: dict[str, Any]) -> ParallelRunResult:
        """Return the result from the JSON values that `record` made."""
        values = dict(record)
        for name in PATHS:
            values[name] = _place(values[name])
        for name in ("mini_batches", "items"):
            values[name] = Counts(*values[name])
        for name in ("left_out", "advice"):
            values[name] = tuple(values.get(name, ()))
        values["usage"] = Usage(*values.get("usage", ()))
        values.pop("is_trusted", None)  # only a reader can say that
        for name in ("error", "reason", "again"):  # they are no part of a result
            values.pop(name, None)
        return cls(**values)

    @property
    def failed_file(self) -> Path | None:
        """The table of failed mini-batches, with every attempt; None if none failed.

        It is a Parquet file in the job folder, with a row for each mini-batch. A later run of the
        job in which they succeed removes the file.
        """
        path = self._folder_there().failed
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

        from daskprs._report.evidence import FailedRow, failed_rows

        rows = list(failed_rows(self._folder_there()))
        return pd.DataFrame(rows, columns=list(FailedRow._fields))

    @property
    def failed_rows(self) -> pd.DataFrame:
        """The rows or files without which their mini-batches are done: see ``on_error="isolate"``.

        Returns
        -------
        pandas.DataFrame
            One row for each, in input order: ``_position`` (in the whole input; null where the plan
            does not have it), ``_mini_batch``, ``_number`` (in the mini-batch, from 0), ``_status``
            (``RUN_EXCEPTION``, ``RUN_TIMEOUT``, ``PROCESS_DIED``), ``_kind`` (the class of the
            error), ``_error``, ``_traceback``, ``_attempts`` (at the mini-batch until then),
            ``_host`` and ``_process``, then the columns of the input; of a file, ``path``. They are
            null where the failed rows of a mini-batch are larger than 1 MB. Read from
            ``failed_rows.parquet`` in the job folder each time.

        """
        import pandas as pd

        from daskprs._output.failures.failed_rows import LONG, SCHEMA

        path = self._folder_there().failed_rows
        rows = pd.read_parquet(path) if path.exists() else SCHEMA.empty_table().to_pandas()
        return rows.astype(dict.fromkeys(LONG, object))  # rows share a text

    def _folder_there(self) -> JobFolder:
        """Return the job folder; one that is gone does not say that nothing has failed."""
        folder = JobFolder(self.job_dir)
        if not folder.path.exists():
            from daskprs._output.kept_rows import unseen

            raise unseen(folder)
        return folder

    def stdout(self, mini_batch: int, attempt: int | None = None) -> str:
        """Return what `run` and whatever it started printed for a mini-batch.

        Output of the import, of ``init()`` and of threads between two mini-batches is not in it:
        `logs_dir` has it all, process by process.

        Parameters
        ----------
        mini_batch
            The number of the mini-batch, as in `failed` and in the plan.
        attempt
            The number of the attempt, from 1. Default: the last one.

        Returns
        -------
        str
            The text; empty where nothing was printed. Where a process works on several mini-batches
            at a time, its text is that of all attempts there.

        Raises
        ------
        UsageError
            When no such attempt has ended, its log is gone, or it is unknown which part of the log
            is of the mini-batch, since the script has put something else in the place of stdout
            or stderr.

        """
        from daskprs._report.recorded_attempts import printed_text

        return printed_text(JobFolder(self.job_dir), "stdout", mini_batch, attempt)

    def stderr(self, mini_batch: int, attempt: int | None = None) -> str:
        """Return the same for stderr: warnings, progress bars, and what libraries complain of."""
        from daskprs._report.recorded_attempts import printed_text

        return printed_text(JobFolder(self.job_dir), "stderr", mini_batch, attempt)

    def record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        values = asdict(self)
        del values["is_trusted"]
        for name in PATHS:
            values[name] = None if values[name] is None else str(values[name])
        return values

    def trusted(self) -> ParallelRunResult:
        """Return the same result, whose Python objects are loaded whoever has written them.

        Rows, and labels of the input, that are Python objects are kept as pickles. To load a pickle
        can run code. So a pickle is loaded only if your own key made its checksum, or if it lies in
        a private folder of yours. Rows of plain types are not pickled, and can always be read.

        Returns
        -------
        ParallelRunResult
            Use it only if you trust whoever can write to `job_dir`, or has made it.

        """
        return replace(self, is_trusted=True)

    def to_pandas(self, *, ignore_index: bool = False) -> pd.DataFrame:
        """Return what `run` returned, in input order, with its types.

        Frames are put together. Elements of lists, tuples and arrays make one column called
        ``result``. With ``on_error="null"``, integers and booleans have types that hold nulls, such
        as ``Int64`` and ``boolean``, and ``_error`` is ``string``, whichever rows have failed.

        If the input is a pandas or dask DataFrame, the rows carry the labels of its index, so that
        ``frame["score"] = result.to_pandas()["score"]`` is right after a filter, too. Labels are
        decided for the whole result. A mini-batch of n rows fits by position if `run` returned a
        list or an array of n elements, or a frame of n rows with the index 0 to n - 1. It fits
        through the index of the returned frame if that is unnamed and holds different numbers out
        of 0 to n - 1. The rows are numbered from 0, with a warning, if a mini-batch with rows fits
        neither way, or if each frame that is shorter than its mini-batch has the index 0, 1, … as
        after ``reset_index``. Rows that have failed (see `failed_rows`) do not count as missing:
        the others keep their labels.

        The rows of a data set are numbered from 0, since its files keep no index. They come with a
        warning if a pandas input has other labels, or another number of rows. Set
        ``keep_rows=True`` to have the labels. The rows of any other input are numbered from 0.

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
        JobFolderError
            When the job folder, or the rows in it, were removed; when the rows are Python objects
            that another user may have written: see `trusted`.
        OptionError
            When typed rows were not kept: they are with `output` and without any output, but with
            an `output_dir` only with ``keep_rows=True`` or in a data set. Text that is read back
            would turn ``"007"`` into 7.

        Warns
        -----
        UserWarning
            When the rows of a DataFrame are numbered from 0.

        """
        from daskprs._arrow.arrow_pandas import frame_of
        from daskprs._output.read_rows import read_rows, warn_of_lost_labels

        folder = JobFolder(self.job_dir, is_trusted=self.is_trusted)
        rows = read_rows(folder, ignore_index=ignore_index)
        if rows is None:
            table = self._kept("to_pandas").reader().read_all()
            rows = frame_of(table)
            if not ignore_index:
                warn_of_lost_labels(folder, len(rows))
        return rows

    def to_arrow(self) -> pa.Table:
        """Return what `run` returned as an Arrow table, in input order.

        The first mini-batch with rows fixes the columns and their types. A column of nulls takes
        the first type that comes. Later rows are cast, if no value is lost. A NaN in a frame of
        pandas, a list or an array of NumPy is null, and labels of columns are text. Elements of
        lists make one column called ``result``. The rows carry no labels of the input.

        Returns
        -------
        pyarrow.Table
            All rows; it has to fit into memory. ``pyarrow.RecordBatchReader.from_stream(result)``
            reads one mini-batch after the other instead, as every reader of Arrow streams does.

        Raises
        ------
        OptionError
            As by `to_pandas`.
        ReturnTypeError
            When Arrow has no type for the values of a column, or when the rows of a mini-batch do
            not fit to those before. The message names mini-batch and column.

        """
        return self._kept("to_arrow").reader().read_all()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as a stream of Arrow, one mini-batch or row group after the other.

        Rows of a data set come by the row groups of its files.
        """
        reader = self._kept("__arrow_c_stream__").reader()
        return reader.__arrow_c_stream__(requested_schema)

    @overload
    def to_polars(self, *, lazy: Literal[False] = ...) -> pl.DataFrame: ...
    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...
    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return what `run` returned as a frame of polars, in input order.

        Columns and types are those of `to_arrow`.

        Parameters
        ----------
        lazy
            Return a LazyFrame, which reads one mini-batch after the other when it is collected.

        Returns
        -------
        polars.DataFrame or polars.LazyFrame
            All rows.

        Raises
        ------
        OptionError, ReturnTypeError
            As by `to_arrow`; a LazyFrame raises its own error when it is collected.

        """
        kept = self._kept("to_polars")
        if lazy:
            from daskprs._job.lazy_rows import polars_scan

            return polars_scan(kept)
        return polars_frame(kept.reader().read_all())

    def to_dask_dataframe(self) -> dd.DataFrame:
        """Return what `run` returned as a dask DataFrame, in input order.

        Tasks read the partitions from the job folder, or from the data set of the job, which every
        worker has to see. A partition holds 64 MB of kept rows, or one mini-batch that has more; of
        a data set, 32 MB. Where only some columns are used, only those are decoded.

        Columns and types are those of `to_arrow`, and each partition numbers its rows from 0.
        Integers and booleans that were no columns of a pandas frame are ``Int64`` and
        ``boolean``, since rows that have not been read may be null; those of a data set always are.

        Returns
        -------
        dask.dataframe.DataFrame
            The rows. Only the first mini-batch with rows is read now, and further ones while a
            column holds nothing but nulls.

        Raises
        ------
        OptionError, ReturnTypeError
            As by `to_arrow`; tasks raise the errors of their own partition.

        """
        from daskprs._job.lazy_rows import dask_frame

        return dask_frame(self._kept("to_dask_dataframe"))

    @overload
    def iter_batches(self, batch_format: Literal["pandas"] = ...) -> Iterator[pd.DataFrame]: ...
    @overload
    def iter_batches(self, batch_format: Literal["pyarrow"]) -> Iterator[pa.Table]: ...
    @overload
    def iter_batches(self, batch_format: Literal["polars"]) -> Iterator[pl.DataFrame]: ...
    def iter_batches(
        self, batch_format: Literal["pandas", "pyarrow", "polars"] = "pandas"
    ) -> Iterator[Any]:
        """Yield the kept rows of each mini-batch, in input order, one mini-batch at a time.

        A mini-batch without rows yields nothing. `ParallelRun.iter_batches` does the same while
        the job runs. Where the rows are read from a data set, its row groups are yielded instead:
        each has rows of several mini-batches, or a part of the rows of one.

        Parameters
        ----------
        batch_format
            ``"pandas"``: frames with the types of `to_pandas`, their rows numbered from 0.
            ``"pyarrow"`` and ``"polars"``: tables and frames with the types of `to_arrow`.

        Yields
        ------
        pandas.DataFrame, pyarrow.Table or polars.DataFrame
            The rows of a mini-batch, or those of a row group.

        Raises
        ------
        OptionError, ReturnTypeError
            As by `to_arrow`.

        """
        if batch_format not in ("pandas", "pyarrow", "polars"):
            msg = f": {batch_format!r} is none of 'pandas', 'pyarrow' and 'polars'."
            raise OptionError(Option("batch_format"), msg)
        kept = self._kept("iter_batches")
        if batch_format == "pandas":
            return kept.frames()
        if batch_format == "pyarrow":
            return kept.batches()
        return map(polars_frame, kept.batches())

    def _kept(self, method: str) -> KeptRows | PublishedRows:
        from daskprs._output.published_rows import rows_of

        kept = rows_of(JobFolder(self.job_dir, is_trusted=self.is_trusted))
        if not kept.has_types:
            raise _no_rows_kept(method)
        return kept

    def __repr__(self) -> str:
        """Return the result as a few lines of text."""
        return "\n".join(
            [
                f"<daskprs job {self.status}>",
                *(f"  {name:<13}{text}" for name, text in self._rows()),
            ]
        )

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks, and what the processes of a long job did."""
        from daskprs._page.pictures import main_picture

        table = table_of(f"daskprs job {self.status}", self._rows())
        return table + main_picture(JobFolder(self.job_dir), self.elapsed_s)

    def _rows(self) -> list[tuple[str, str]]:
        total, succeeded, failed = self.mini_batches
        is_done = total == succeeded + failed
        rows = [
            ("mini-batches", _counted(self.mini_batches, "total" if is_done else "planned")),
            (f"{self.unit}s", items_text(self.items, self.not_returned, of_all=is_done)),
            ("elapsed", f"{self.elapsed_s:.1f} s"),
        ]
        rows += [("used", self.usage.text(name)) for name in self.usage.spent]
        if self.output_file is not None:
            rows.append(("output", str(self.output_file)))
        elif _holds_files(self.output_dir) and not self.job_dir.is_relative_to(self.output_dir):
            rows.append(("output", str(self.output_dir)))
        if self.mini_batches.failed:
            rows.append(("errors", str(JobFolder(self.job_dir).job_error)))
            rows.append(("failed", str(JobFolder(self.job_dir).failed)))
        if (path := JobFolder(self.job_dir).failed_rows).exists():
            rows.append((f"failed {self.unit}s", str(path)))
        rows += [("advice", text) for text in self.advice]
        return [*rows, ("logs", str(self.logs_dir)), ("job", str(self.job_dir))]


def _no_rows_kept(method: str) -> OptionError:
    msg = (
        f"{method}: this job kept no typed rows, and a resume cannot add them. Call parallel_run "
        f"with another job_dir and {Option('output', 'rows.csv')} (or .parquet, .jsonl, .arrow) in "
        f"place of {Option('output_dir')} and its names, or without any output: both keep typed "
        f"rows. Beside {Option('output_dir')}, {Option('keep_rows', value=True)} keeps them."
    )
    return OptionError(msg)


def _place(written: str | None) -> Path | str | None:
    """Return a URL as text, and any other place as a path."""
    return written if written is None or "://" in written else Path(written)


def _holds_files(place: Path | str) -> bool:
    """Return whether a local folder has entries: a script may have written there."""
    return isinstance(place, Path) and place.is_dir() and any(place.iterdir())


def items_text(items: Counts, not_returned: int, *, of_all: bool) -> str:
    """Return the counts of items; what `run` did not return counts apart from failures.

    Without `of_all`, there are more items than these.
    """
    total, failed = "total" if of_all else "", items.failed - not_returned
    if not not_returned:
        return _counted(items, total)
    text = f"{items.succeeded:,} returned, {not_returned:,} fewer than given"
    text = f"{items.total:,} {total}, {text}" if total else text
    return f"{text}, {failed:,} failed" if failed else text


def _counted(counts: Counts, total: str) -> str:
    text = f"{counts.succeeded:,} succeeded, {counts.failed:,} failed"
    return f"{counts.total:,} {total}, {text}" if total else text
