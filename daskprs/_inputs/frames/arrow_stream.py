"""Tables that come once, batch by batch: Arrow streams and lazy frames of polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from daskprs._arrow.arrow_pandas import (
    AsArrow,
    ToPandas,
    cast,
    one_type,
    without_index,
)
from daskprs._arrow.arrow_polars import arrow_table
from daskprs._arrow.sizes import size_bytes
from daskprs._inputs.frames.caller_frame import MappedFrame, write_arrow
from daskprs._inputs.source.batch_format import not_in_arrow
from daskprs._inputs.source.columns import check_columns, check_different
from daskprs._inputs.source.given_types import with_dtypes
from daskprs.errors import InputError, LoadError, class_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pandas as pd

    from daskprs._arrow.arrow_pandas import OneType
    from daskprs._inputs.source.read_options import ReadOptions

ROWS_AT_ONCE = 8_192
"""Rows of a batch in the file: the same rows make the same file, however they have come."""


class StreamSource(MappedFrame):
    """Writes a stream to the file that agents map, a batch at a time, and cuts that.

    The stream is opened once. Dictionaries become their values, since each batch of a stream may
    have its own.
    """

    kind = "stream"

    def __init__(
        self,
        schema: pa.Schema,
        open_batches: Callable[[], Iterable[pa.RecordBatch]],
        reading: ReadOptions,
    ) -> None:
        super().__init__(0, 1)
        if not schema.names:
            msg = "data: the stream has no columns, so that its rows would be lost."
            raise InputError(msg)
        check_different(schema.names, schema.names, "data")
        kept = without_index(schema).names
        if reading.columns is not None:
            check_columns(reading.columns, kept, "columns")
            kept = list(reading.columns)
        check_columns(list(reading.dtypes), kept, "dtypes")
        fields = [schema.field(name) for name in kept]
        self.schema = pa.schema([pa.field(one.name, _value_type(one.type)) for one in fields])
        with_dtypes(self.schema, reading.dtypes, ())  # refuses a type that does not exist
        self._open = open_batches
        self._size = reading.size  # refuses a size of files, before the stream is read
        self._reading = reading
        self._nulls = dict.fromkeys(kept, 0)
        self._bytes = 0
        self.form = AsArrow(self.schema)

    def write(self, path: Path) -> None:
        """Consume the stream; an error in it is a `LoadError` that says how far it came."""
        self._total = self._bytes = 0
        written = write_arrow(path, self.schema, self._counted())
        self._path = path
        rows = max(1, self._total)
        self._rows = self._size.rows_of(rows, self._bytes)
        self._row_bytes = self._bytes / rows
        self.form = self._form_of_all()
        self.digest = self._digest_of(written)

    def _form_of_all(self) -> Fitted:
        given = self._reading.dtypes
        with_nulls = [name for name, count in self._nulls.items() if count]
        typed = with_dtypes(self.schema, given, with_nulls)
        types = one_type(typed, with_nulls, given, as_arrow=self._reading.as_arrow)
        if self._reading.as_arrow:
            return Fitted(types, AsArrow(typed))
        return Fitted(types, ToPandas(types.schema.empty_table(), types.objects))

    def _counted(self) -> Iterator[pa.RecordBatch]:
        for batch in _of_even_size(self._plain_batches()):
            for name, column in zip(self._nulls, batch.columns, strict=True):
                self._nulls[name] += column.null_count
            self._total += batch.num_rows
            self._bytes += size_bytes(batch)
            self.how_far = f"{self._total:,} rows of the stream are read"
            yield batch

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._open():
                columns = [batch.column(name) for name in self.schema.names]
                plain = [
                    one.dictionary_decode() if pa.types.is_dictionary(one.type) else one
                    for one in columns
                ]
                yield pa.record_batch(plain, schema=self.schema)
        except Exception as error:  # whatever the library behind the stream raises
            msg = (
                f"data: the stream ended with an error after {self._total:,} rows: "
                f"{type(error).__name__}: {error}"
            )
            raise LoadError(msg) from error


class Fitted(NamedTuple):
    """Gives slices of a table the types of all before they take their form."""

    types: OneType
    form: ToPandas | AsArrow

    def frame(self, table: pa.Table) -> pd.DataFrame | pa.Table:
        """Return the rows of a slice."""
        return self.form.frame(cast(table, self.types, "data", LoadError))

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows."""
        return self.form.meta()

    def described(self) -> list[str]:
        """Return the columns and their types as text."""
        return self.form.described()


def _value_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _of_even_size(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `ROWS_AT_ONCE`, and the rest."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, ROWS_AT_ONCE - rows)
            start += piece.num_rows
            rows += piece.num_rows
            waiting.append(piece)
            if rows == ROWS_AT_ONCE:
                yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
                waiting, rows = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def open_stream(data: Any, reading: ReadOptions) -> StreamSource:
    """Return the source of an object that exports an Arrow stream, which is consumed once.

    Raise `InputError` when it gives no rows with columns.
    """
    if isinstance(data, pa.RecordBatchReader):
        return StreamSource(data.schema, lambda: data, reading)
    try:
        stream = pa.RecordBatchReader.from_stream(data)
    except Exception as error:  # the same
        msg = (
            f"data: the stream of this {class_name(type(data))} cannot be opened as rows with "
            f"columns: {type(error).__name__}: {error}"
        )
        raise InputError(msg) from error
    return StreamSource(stream.schema, lambda: stream, reading)


def open_lazy(data: Any, reading: ReadOptions) -> StreamSource:
    """Return the source of a lazy frame of polars, which computes it batch by batch.

    Raise `InputError` when the plan of the frame is not valid.
    """
    import polars as pl

    try:
        schema = arrow_table(pl.DataFrame(schema=data.collect_schema())).schema
    except pl.exceptions.PolarsError as error:
        msg = f"data: the lazy frame cannot be computed: {type(error).__name__}: {error}"
        raise InputError(msg) from error
    except TypeError as error:
        raise not_in_arrow(error) from error
    return StreamSource(schema, lambda: _computed(data), reading)


def _computed(lazy: Any) -> Iterator[pa.RecordBatch]:
    for frame in lazy.collect_batches():
        yield from frame.to_arrow().to_batches()
