"""`plan`: the mini-batches of an input before anything runs, and as a Dask collection."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from daskprs._inputs.open_source import open_source
from daskprs._job.inline_call import is_collection
from daskprs._options.client_rules import current_client, refuse_own_loop
from daskprs._options.rules import working_directory
from daskprs._options.run_options import RunOptions
from daskprs._report.html_table import table_of
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.read_options import Header, InputType
    from daskprs._inputs.source.source import Reader, Source
    from daskprs._options.arguments import NoOtherOptions

SHOWN = 10


class _PlanLoader:
    """Loads mini-batches in several threads at once, each time by a reader that is idle."""

    def __init__(self, reader: bytes) -> None:
        self._reader = reader
        self._idle: list[Reader] = []
        weakref.finalize(self, _close, self._idle)

    def __reduce__(self) -> tuple[Any, ...]:
        return _PlanLoader, (self._reader,)

    def __call__(self, mini_batch: MiniBatch) -> pd.DataFrame | list[str]:
        """Load a mini-batch."""
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = pickle.loads(self._reader)
        try:
            return reader.load(mini_batch)
        finally:
            self._idle.append(reader)


def _close(readers: list[Reader]) -> None:
    for reader in readers:
        reader.close()


class PlanTotals(NamedTuple):
    """The sums over the mini-batches of a plan."""

    mini_batches: int
    items: int | None
    """Rows or files; None where text has not been read."""
    size_bytes: int
    largest_bytes: int
    """Size of the largest mini-batch."""


class Plan:
    """The mini-batches that `parallel_run` would make of an input.

    Data written for the agents (a frame, shuffled rows) goes to a temporary folder, which is
    removed with the plan. Collections made from the plan keep the folder.
    """

    def __init__(self, source: Source) -> None:
        folder = tempfile.mkdtemp(prefix="daskprs-plan-")
        unfinished = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._source = source
        source.prepare(Path(folder))
        # The tasks of collections hold the loader, and so keep the folder after this object.
        self._load = _PlanLoader(pickle.dumps(source.reader()))
        weakref.finalize(self._load, shutil.rmtree, folder, ignore_errors=True)
        unfinished.detach()

    def __iter__(self) -> Iterator[MiniBatch]:
        """Yield the mini-batches, in order."""
        return self._source.mini_batches()

    def __len__(self) -> int:
        """Return the number of mini-batches; compressed text and keys require making them first."""
        count = self._source.count()
        return sum(1 for _ in self) if count is None else count

    @property
    def unit(self) -> str:
        """The unit of items: ``"row"`` or ``"file"``."""
        return self._source.unit

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each mini-batch.

        Returns
        -------
        pandas.DataFrame
            With the columns ``mini_batch`` (int), ``label`` (str), ``items`` (rows or files; null
            where text has not been read), ``size_bytes``, and one for each partition key; a key
            with one of these names is ``key label``, say.

        """
        import pandas as pd

        columns = ["mini_batch", "label", "items", "size_bytes"]
        names = {name: f"key {name}" for name in columns}
        rows = [
            {
                "mini_batch": one.index,
                "label": one.label,
                "items": one.items,
                "size_bytes": one.size_bytes,
                **{names.get(name, name): value for name, value in one.partition_key},
            }
            for one in self
        ]
        frame = pd.DataFrame(rows, columns=None if rows else columns)
        return frame.astype({"items": "Int64", "size_bytes": "Int64"})

    def to_dask_dataframe(self) -> Any:
        """Return a dask DataFrame with one partition for each mini-batch (tables)."""
        import dask
        import dask.dataframe as dd

        meta = self._meta()
        parts = list(self)
        # Dask would make strings of another type of them.
        with dask.config.set({"dataframe.convert-string": False}):
            if not parts:
                return dd.from_pandas(meta, npartitions=1)
            return dd.from_map(self._load, parts, meta=meta)

    def to_bag(self) -> Any:
        """Return a dask Bag with one partition of paths for each mini-batch (files)."""
        import dask.bag as db
        from dask import delayed

        load = delayed(self._load)
        return db.from_delayed([load(one) for one in self])

    def __repr__(self) -> str:
        """Return a summary, and the first mini-batches."""
        lines = [f"  {number}: {text}" if text else f"  {number}" for number, text in self._first()]
        return "\n".join([self._summary(), *lines])

    def _repr_html_(self) -> str:
        """Return the same for notebooks."""
        return table_of(self._summary().strip("<>"), self._first())

    def _meta(self) -> pd.DataFrame:
        meta = getattr(self._source, "meta", None)
        if meta is None:
            msg = "to_dask_dataframe: these mini-batches are lists of files; use to_bag."
            raise TypeError(msg)
        frame: pd.DataFrame = meta()
        return frame

    def totals(self) -> PlanTotals:
        """Return the sums over all mini-batches."""
        count, items, size = 0, 0, 0
        known, largest = True, 0
        for one in self:
            count += 1
            known &= one.items is not None
            items += one.items or 0
            size += one.size_bytes or 0
            largest = max(largest, one.size_bytes or 0)
        return PlanTotals(count, items if known else None, size, largest)

    def _summary(self) -> str:
        count, items, size, largest = self.totals()
        rows = "" if items is None else f"{counted(items, self.unit)}, "
        return (
            f"<daskprs plan: {counted(count, 'mini-batch')}, {rows}{size:,} bytes, the largest "
            f"{largest:,} bytes>"
        )

    def _first(self) -> list[tuple[str, str]]:
        """Return the numbers and descriptions of the first mini-batches."""
        rows = []
        for one in islice(self, SHOWN + 1):
            items = "" if one.items is None else f", {counted(one.items, self.unit)}"
            rows.append((str(one.index), f"{one.label}{items}"))
        return [*rows[:SHOWN], ("…", "")] if len(rows) > SHOWN else rows


def plan(
    data: Any,
    *,
    input_type: InputType = "auto",
    mini_batch_size: float | str | None = None,
    mini_batch_cost: str | Callable[..., Any] | None = None,
    partition_keys: Sequence[str | int] | str | None = None,
    partition_format: str | None = None,
    columns: Sequence[str | int] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | Any | None = None,
    delimiter: str | None = None,
    header: Header | None = None,
    encoding: str = "utf-8",
    support_multi_line: bool = True,
    csv_options: Mapping[str, Any] | None = None,
    include_path_column: bool = False,
    **unknown: Unpack[NoOtherOptions],
) -> Plan:
    """Return the mini-batches that `parallel_run` would make of an input.

    The parameters are `data` and the options of `parallel_run` that say how the input is read and
    cut into mini-batches. ``help(daskprs.RunOptions)`` says more about each option.

    Other Parameters
    ----------------
    Input
        input_type: What the input is: ``"table"``, ``"files"``, or ``"auto"``.
        mini_batch_size: For tables, ``"100 rows"``, or a size such as ``"10 MB"``.
        mini_batch_cost: What a row of a table costs.
        partition_keys: Columns that divide the rows: a mini-batch for each combination of values.
        partition_format: The form of paths that contain values.
        columns: The columns to read, in this order.
        dtypes: Types of columns, by name.
        meta: The columns of the frames in a list of Delayed objects or futures.
        delimiter: The character between the fields of delimited text.
        header: Which files have a header line.
        encoding: The encoding of text input.
        support_multi_line: Whether a quoted field may contain line breaks.
        csv_options: How cells of delimited text are read.
        include_path_column: Add the path of each row's file as the column `Path`.

    Returns
    -------
    Plan
        A preview, which turns into a dask DataFrame or a Bag.

    Raises
    ------
    UsageError
        As `parallel_run` does.

    """
    options = RunOptions(
        input_type=input_type,
        mini_batch_size=mini_batch_size,
        mini_batch_cost=mini_batch_cost,
        partition_keys=partition_keys,
        partition_format=partition_format,
        columns=columns,
        dtypes=dtypes,
        meta=meta,
        delimiter=delimiter,
        header=header,
        encoding=encoding,
        support_multi_line=support_multi_line,
        csv_options=csv_options,
        include_path_column=include_path_column,
        **unknown,
    )
    if is_collection(data):
        refuse_own_loop(current_client())  # it is to compute the partitions
    with working_directory():
        source = open_source(data, options.reading())
    return Plan(source)
