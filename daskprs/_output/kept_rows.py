"""The typed rows of a job, for every process that sees the job folder: in pieces, in input order.

Nothing here holds the rows of more than the mini-batches that were asked for. A worker that reads
one part of a result reads the journal once, and its part.
"""

from __future__ import annotations

import socket
from contextlib import closing
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import ToPandas, noted_by, pandas_metadata, with_null_types
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import begun_epochs, epochs_of
from daskprs._output.journal.history import History
from daskprs._output.read_rows import frame_of_each, no_rows, pieces_of, pieces_of_each
from daskprs._output.rows.given_schema import schema_of
from daskprs._output.rows.result_tables import table_of, tables_of
from daskprs._output.rows.row_schema import RowSchema
from daskprs.errors import JobFolderError, Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from daskprs._output.rows.typed_rows import TypedPiece
    from daskprs._system.seal import SealKey

JournalState = tuple[tuple[int, int, int], ...]
"""The number, size and time of each journal."""
MOST_READ = 8
"""Most job folders whose journals a process keeps in memory."""


class KeptPart(NamedTuple):
    """The mini-batches from `first` to `stop` of a job, without `stop`."""

    first: int
    stop: int


class KeptRows:
    """The typed rows of a job, by the state of its journals when this was made.

    Raise `JobFolderError` when this process does not see the folder.
    """

    def __init__(self, folder: JobFolder, state: JournalState) -> None:
        history = History(folder)
        if not history.epoch:
            raise unseen(folder)
        self.folder = folder
        self.state = state
        """The journals when they were read: the rows change only with them."""
        self.has_types = bool(epochs_of(folder, folder.typed_spools))
        """Whether the job has kept rows with their types."""
        self.were_kept = bool(history.forms.get("typed"))
        """Whether the journals say so."""
        self._given = None if history.schema is None else schema_of(history.schema)
        self._commits = history.commits
        rows = history.standing()
        self._rows = rows[self._commits.column("typed_length")[rows] > 0]
        self._numbers = self._commits.column("index")[self._rows]
        self.plans = history.plans
        """The number of plans that have numbered the mini-batches."""

    @staticmethod
    def of(folder: JobFolder) -> KeptRows:
        """Return the rows of a job folder; its journals are read again if they have changed."""
        stats = [(epoch, folder.journal(epoch).stat()) for epoch in begun_epochs(folder)]
        state = tuple((epoch, stat.st_size, stat.st_mtime_ns) for epoch, stat in stats)
        return _kept(str(folder), folder.key, folder.is_trusted, state)

    def parts(self, most_bytes: int) -> list[KeptPart]:
        """Return all mini-batches with rows as parts of at most `most_bytes`, one at least each."""
        lengths = self._commits.column("typed_length")[self._rows].tolist()
        parts: list[KeptPart] = []
        size = 0
        for number, length in zip(self._numbers.tolist(), lengths, strict=True):
            size += length
            if not parts or size > most_bytes:
                parts.append(KeptPart(number, number + 1))
                size = length
            else:
                parts[-1] = KeptPart(parts[-1].first, number + 1)
        return parts

    @property
    def stop(self) -> int:
        """The number after that of the last mini-batch with rows."""
        return int(self._numbers[-1]) + 1 if len(self._numbers) else 0

    def pieces(self, part: KeptPart) -> Generator[tuple[int, TypedPiece]]:
        """Yield the pieces of a part as they were kept, each with the number of its mini-batch."""
        return pieces_of(self.folder, self._commits, self._within(part))

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of each mini-batch as a frame, as `to_pandas` makes it."""
        with closing(self._pieces(None)) as found:
            yield from frame_of_each(found)

    def tables(
        self, part: KeptPart | None = None, columns: Sequence[str] | None = None
    ) -> Generator[tuple[int, pa.Table]]:
        """Yield the rows of mini-batches in the schema of all, with the number of the mini-batch.

        A mini-batch has a table for each of its pieces. Raise `ReturnTypeError` when rows do not
        fit into the schema.
        """
        rows = self.settled.rows if columns is None else self.settled.rows.select(columns)
        with closing(self._tables(part, columns)) as found:
            for mini_batch, tables in found:
                for table in tables:
                    if table.num_rows:
                        yield mini_batch, rows.cast(table, mini_batch)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows of each mini-batch as one table, in the schema of all."""
        rows = self.settled.rows
        with closing(self._tables(None)) as found:
            for mini_batch, tables in found:
                some = [rows.cast(table, mini_batch) for table in tables if table.num_rows]
                if some:
                    yield pa.concat_tables(some)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all rows, with the notes of pandas if the first rows were a frame."""
        return self.settled.noted

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow, which reads a mini-batch when it is asked for."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for _, table in self.tables():
            yield from table.replace_schema_metadata(self.schema.metadata).to_batches()

    @cached_property
    def frame_form(self) -> FrameForm:
        """The form that makes frames of tables, with one type for each column."""
        return FrameForm(self.schema)

    def frame(self, part: KeptPart, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of the rows of a part as a frame, with the types of all parts."""
        if not columns:
            every = (table for _, some in self._tables(part) for table in some)
            return pd.DataFrame(index=range(sum(table.num_rows for table in every)))
        form = self.frame_form
        tables = []
        for mini_batch, table in self.tables(part, columns):
            form.check(table, mini_batch)
            tables.append(table)
        empty = pa.schema([self.schema.field(name) for name in columns]).empty_table()
        return form.frame(pa.concat_tables(tables) if tables else empty)

    def _tables(
        self, part: KeptPart | None, columns: Sequence[str] | None = None
    ) -> Generator[tuple[int, Iterator[pa.Table]]]:
        """Yield the pieces of each mini-batch as tables, in schemas of their own."""
        with closing(self._pieces(part)) as found:
            for mini_batch, pieces in found:
                yield mini_batch, map(partial(_selected, columns), tables_of(pieces, mini_batch))

    def _pieces(self, part: KeptPart | None) -> Generator[tuple[int, Iterator[TypedPiece]]]:
        return pieces_of_each(self.folder, self._commits, self._within(part))

    def _within(self, part: KeptPart | None) -> np.ndarray[Any, Any]:
        if part is None:
            return self._rows
        first, stop = np.searchsorted(self._numbers, list(part))
        return self._rows[first:stop]

    @cached_property
    def settled(self) -> SettledSchema:
        """The schema of all rows.

        Rows are read for it until every column has a type: all rows where one has only nulls. So
        whoever knows the schema sets it.
        """
        if self._given is not None:
            return SettledSchema(RowSchema(self._given), self._given)
        rows = RowSchema()
        shown: pa.Table | None = None
        with closing(self._tables(None)) as found:
            for mini_batch, table in ((one, table) for one, some in found for table in some):
                if table.num_rows:
                    rows.add(table.schema, mini_batch)
                if shown is None or (table.num_rows and not shown.num_rows):
                    shown = table
                if rows.is_settled:
                    break
        if shown is None:
            shown = table_of(no_rows(), 0)
        if rows.schema is None:
            rows.add(shown.schema, 0)
        settled: pa.Schema = rows.schema
        return SettledSchema(
            rows, noted_by([shown.schema], settled.with_metadata(shown.schema.metadata))
        )


def _selected(columns: Sequence[str] | None, table: pa.Table) -> pa.Table:
    """Return some columns; `RowSchema.cast` says which of them are missing."""
    if columns is None:
        return table
    wanted = {*columns}
    return table.select([at for at, name in enumerate(table.column_names) if name in wanted])


class SettledSchema(NamedTuple):
    """The schema of a result: for casts, and with notes."""

    rows: RowSchema
    noted: pa.Schema


@lru_cache(maxsize=MOST_READ)
def _kept(path: str, key: SealKey, is_trusted: bool, state: JournalState) -> KeptRows:  # noqa: FBT001 - of the cache
    return KeptRows(JobFolder(path, key, is_trusted=is_trusted), state)


def rows_removed(folder: JobFolder) -> JobFolderError:
    """Return the error for rows that the journals have and the disk has not."""
    msg = (
        f"the rows that the job in {folder} kept with their types are gone: they were removed from "
        "the folder, or moved. Put them back, or run the job again with "
        f"{Option('resume', value=True)}: what is missing is done again."
    )
    return JobFolderError(msg)


def unseen(folder: JobFolder) -> JobFolderError:
    """Return the error for a job folder that is gone, or that this process does not see."""
    host = socket.gethostname()
    if not folder.path.exists():
        msg = (
            f"the job folder {folder} is gone, or {host} does not see it, and the job has kept its "
            "rows there. If the folder was removed, as by daskprs clean, run the job again. "
            "Workers need a job_dir that all of them see."
        )
        return JobFolderError(msg)
    msg = (
        f"{folder} holds no job with a journal on {host}, so that this "
        "process cannot read the rows. Run the job with a job_dir that every worker sees. Or read "
        "the rows where the folder is: by to_arrow(), to_pandas() or iter_batches()."
    )
    return JobFolderError(msg)


class FrameForm:
    """Turns tables of one schema into frames, whatever values a table holds.

    Integers and booleans that were objects, or no columns of a pandas frame, get types of pandas
    that have a null: rows that are not read yet may have one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        schema = _nullable(schema)
        for field in schema:
            try:
                pa.schema([field]).empty_table().to_pandas()
            except (pa.ArrowException, TypeError) as error:
                msg = (
                    f"the column {field.name!r} is {field.type}, which pandas cannot hold: {error}."
                    " Read the rows by to_arrow() or to_polars()."
                )
                raise ReturnTypeError(msg) from error
        self._to_pandas = ToPandas(schema.empty_table())
        self.meta = self._to_pandas.meta()
        """The frame without rows."""
        self._without_null = {
            name: dtype
            for name, dtype in self.meta.dtypes.items()
            if isinstance(dtype, np.dtype) and dtype.kind in "iub"
        }

    def check(self, table: pa.Table, mini_batch: int) -> None:
        """Refuse a null where the types of pandas have none."""
        for name in table.column_names:
            if name in self._without_null and table.column(name).null_count:
                msg = (
                    f"column {name!r} has a null in mini-batch {mini_batch}, and the rows before "
                    f"are {self._without_null[name]}, which has none in pandas. Return 'Int64' or "
                    f"'boolean' for every mini-batch, or give the type by {Option('schema')}."
                )
                raise ReturnTypeError(msg)

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return the rows of a table, which has some of the columns or all of them."""
        return self._to_pandas.frame(table)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema with types of pandas that have a null, for objects and where none is noted.

    Objects that are integers or booleans may have a null in rows that are not read yet.
    """
    pandas = pandas_metadata(schema)
    if pandas is None:
        return with_null_types(schema)
    objects = {one["field_name"] for one in pandas["columns"] if one["numpy_type"] == "object"}
    return with_null_types(schema, objects)
