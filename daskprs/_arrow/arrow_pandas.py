"""From Arrow to pandas, with the same types for every slice of a table.

The type that pandas gives to an Arrow column depends on its nulls: integers become floats, booleans
become objects. Slices with and without a null would differ, so the types are settled for the whole
table first.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_large_list_view, is_list_view, is_nested

from daskprs._arrow.arrow_polars import contains
from daskprs._arrow.exact_casts import MISFITS, Asked, checked_cast
from daskprs._arrow.sizes import size_bytes
from daskprs.errors import LoadError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pandas as pd

    from daskprs.errors import DaskprsError

UNNAMED_INDEX = "__index_level_"
NO_NOTES: dict[str, Any] = {"index_columns": [], "column_indexes": [], "columns": []}
THREADS_BYTES = 1 << 20
"""Bytes of a table above which several threads make its frame sooner than one."""
EXACT = 1 << 53
"""Bound up to which floats represent all integers exactly."""


class OneType(NamedTuple):
    """One type for each column of a table."""

    schema: pa.Schema
    objects: frozenset[str]
    """Columns of booleans that are objects, since some are null."""
    given: frozenset[str] = frozenset()
    """Columns whose types the option `dtypes` gives."""


def one_type(
    schema: pa.Schema,
    with_nulls: Collection[str],
    given: Collection[str] = (),
    *,
    as_arrow: bool = False,
) -> OneType:
    """Settle the types of a table by the names of the columns that hold a null somewhere.

    Nullable types that pandas wrote stay as they are, and with `as_arrow`, all types do. `given`
    names the columns of `dtypes`.
    """
    if as_arrow:
        return OneType(schema, frozenset(), frozenset(given))
    nullable = _nullable_in_pandas(schema)
    objects = set()
    fields = list(schema)  # `Schema.set` copies all of them
    for place, field in enumerate(fields):
        if field.name not in with_nulls or field.name in nullable:
            continue
        if pa.types.is_integer(field.type):
            fields[place] = pa.field(field.name, pa.float64())
        elif pa.types.is_boolean(field.type):
            objects.add(field.name)
    schema = pa.schema(fields, schema.metadata)
    return OneType(schema, frozenset(objects), frozenset(given))


def cast(table: pa.Table, types: OneType, where: str, error_class: type[DaskprsError]) -> pa.Table:
    """Give a table the types of all, and name the column of a value that does not fit.

    In a column of `dtypes`, the casts are those of `exact_casts`.
    """
    columns = []
    for column, field in zip(table.columns, types.schema, strict=True):
        is_given = field.name in types.given
        try:
            columns.append(_cast(column, field.type, is_given=is_given))
        except pa.ArrowException as misfit:
            advice = _advice(column, field, is_given=is_given)
            msg = f"{where}, column {field.name!r} as {field.type}: {misfit}.{advice}"
            raise error_class(msg) from misfit
    return pa.table(columns, schema=types.schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType, *, is_given: bool) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    return checked_cast(column, type_, Asked.DTYPES) if is_given else column.cast(type_)


def _advice(column: pa.ChunkedArray, field: pa.Field, *, is_given: bool) -> str:
    if is_given:
        return f" Leave {field.name!r} out of dtypes, and convert the column in run()."
    if not (pa.types.is_integer(column.type) and pa.types.is_floating(field.type)):
        return ""
    fitting = "UInt64" if pa.types.is_unsigned_integer(column.type) else "Int64"
    return (
        " Where integers are null, pandas has floats, which cannot hold all of them exactly. Store "
        f"the column as text, without nulls, or say dtypes={{{field.name!r}: {fitting!r}}}."
    )


class SliceForm(Protocol):
    """Makes a value, such as a frame, of each slice of a table."""

    def frame(self, table: pa.Table) -> Any:
        """Return the rows of a slice."""
        ...


class TableForm(SliceForm, Protocol):
    """Makes a value of each slice of one table, whose columns and types are known."""

    def meta(self) -> pd.DataFrame:
        """Return the frame of no rows."""
        ...

    def described(self) -> list[str]:
        """Return the columns and their types as text: rows of other types are other rows."""
        ...


class ToPandas:
    """Turns slices of one table into frames.

    The metadata of the `empty` table note the types of pandas, and `objects` are columns of
    booleans that are objects. The frames have the `labels` as columns, or else those of the table.
    """

    def __init__(
        self,
        empty: pa.Table,
        objects: frozenset[str] = frozenset(),
        labels: pd.Index | None = None,
    ) -> None:
        self._empty = empty
        self._objects = objects
        self._labels = labels
        self._unnamed = unnamed_types(empty.schema)
        self._has_nested = any(is_nested(one.type) for one in empty.schema)
        noted = empty.cast(_without_notes_of(empty.schema, self._unnamed))
        self._metadata = self._needed(noted)

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return the rows of a slice, with an index from 0."""
        threads = size_bytes(table) > THREADS_BYTES
        noted = table.replace_schema_metadata(self._metadata)
        wide = False
        if self._has_nested:
            noted = readable(noted)
            # Within lists and structs, pandas makes floats of integers beside nulls, and rounds
            # them. The table may have some of the columns only.
            nested = (column for column in table.columns if is_nested(column.type))
            wide = any(_is_wide(chunk) for column in nested for chunk in column.chunks)
        try:
            frame = _frame(noted, self._unnamed, use_threads=threads, integer_object_nulls=wide)
        except MISFITS as error:
            msg = (
                f"{not_in_pandas(table, error)} Use batch_format='pyarrow' for an input, and "
                "to_arrow() for a result."
            )
            raise LoadError(msg) from error
        if self._objects:
            for place, name in enumerate(table.column_names):
                if name in self._objects and frame.dtypes.iloc[place].kind == "b":
                    frame.isetitem(place, frame.iloc[:, place].to_numpy(object))
        if self._labels is not None:
            frame.columns = self._labels
        return frame

    def meta(self) -> pd.DataFrame:
        """Return the frame of no rows."""
        return self.frame(self._empty)

    def described(self) -> list[str]:
        """Return the columns and their types as text: rows of other types are other rows."""
        meta = self.meta()
        return [f"{name!r}: {dtype}" for name, dtype in zip(meta, meta.dtypes, strict=True)]

    def _needed(self, empty: pa.Table) -> dict[bytes, bytes] | None:
        """Return the metadata that pandas needs; reading it takes longer than a small slice."""
        if not empty.schema.metadata:
            return None
        try:
            noted = empty.to_pandas()
        except ValueError:  # labels that were numbers, and beside them a name
            empty = empty.cast(without_labels(empty.schema))
            noted = empty.to_pandas()
        plain = empty.replace_schema_metadata(None).to_pandas()
        same_labels = self._labels is not None or noted.columns.identical(plain.columns)
        same = same_labels and list(noted.dtypes) == list(plain.dtypes)
        return None if same else dict(empty.schema.metadata)


def not_in_pandas(table: pa.Table, error: Exception) -> str:
    """Return which column has values that pandas cannot hold, and why."""
    for place, field in enumerate(table.schema):
        try:
            table.select([place]).to_pandas(ignore_metadata=True)
        except MISFITS as misfit:
            return (
                f"the column {field.name!r} is {field.type}, and pandas cannot hold its values: "
                f"{misfit}."
            )
    return f"pandas cannot hold the table: {error}."


def _is_wide(array: pa.Array) -> bool:
    """Say whether an array has, at any depth, an integer that a float may not hold."""
    type_ = array.type
    if pa.types.is_struct(type_):
        return any(map(_is_wide, array.flatten()))
    if pa.types.is_map(type_):  # `keys` and `items` of a slice are those of the whole array
        first, last = (array.offsets[place].as_py() for place in (0, -1))
        return any(_is_wide(part.slice(first, last - first)) for part in (array.keys, array.items))
    if is_nested(type_):
        return hasattr(array, "flatten") and _is_wide(array.flatten())
    if type_ not in {pa.int64(), pa.uint64()}:
        return False
    least, most = (one.as_py() or 0 for one in pc.min_max(array).values())
    return bool(most > EXACT or least < -EXACT)


class AsArrow:
    """Leaves slices of one table as they are."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def frame(self, table: pa.Table) -> pa.Table:
        """Return the rows of a slice, with the notes of pandas if there were any."""
        return table.replace_schema_metadata(self._schema.metadata)

    def meta(self) -> pd.DataFrame:
        """Return the frame of no rows that pandas makes of such a table."""
        frame: pd.DataFrame = self._schema.empty_table().to_pandas()
        return frame

    def described(self) -> list[str]:
        """Return the columns and their types as text."""
        return [f"{field.name!r}: {field.type}" for field in self._schema]


def readable(table: pa.Table) -> pa.Table:
    """Copy the slices of views of lists in a table: Arrow makes wrong rows of them."""
    for place, field in enumerate(table.schema):
        if is_nested(field.type) and contains(field.type, is_list_view, is_large_list_view):
            copied = [pa.concat_arrays([chunk]) for chunk in table.column(place).chunks]
            table = table.set_column(place, field, pa.chunked_array(copied, field.type))
    return table


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return rows of a result as the frame that pandas has noted.

    Integers beside nulls stay integers: large ones would change as floats.
    """
    table = readable(table)
    unnamed = unnamed_types(table.schema)
    # A cast to the schema would refuse slices with lists of nulls.
    noted = table.replace_schema_metadata(_without_notes_of(table.schema, unnamed).metadata)
    try:
        return _frame(noted, unnamed, integer_object_nulls=True)
    except MISFITS as error:
        msg = (
            f"{not_in_pandas(table, error)} Read the rows by to_arrow() or to_polars(), or return "
            "another type."
        )
        raise ReturnTypeError(msg) from error


def _frame(table: pa.Table, unnamed: Collection[str], **options: Any) -> pd.DataFrame:
    """Return a table as a frame, in which the columns with `unnamed_types` have Arrow's type."""
    names = table.column_names
    places = [place for place, name in enumerate(names) if name in unnamed]
    if not places:
        frame: pd.DataFrame = table.to_pandas(**options)
        return frame
    import pandas as pd

    rest = table.select([place for place in range(len(names)) if place not in places])
    frame = rest.to_pandas(**options) if rest.num_columns else pd.DataFrame(index=range(len(table)))
    for place in places:
        column = pd.Series(pd.arrays.ArrowExtensionArray(table.column(place)), frame.index)
        frame.insert(place, names[place], column, allow_duplicates=True)
    return frame


def without_rows(table: pa.Table) -> pa.Table:
    """Return a table of no rows, with its categories, that does not hold the memory of the rows."""
    columns = [
        pa.DictionaryArray.from_arrays(
            pa.array([], column.type.index_type),
            column.chunk(0).dictionary,
            ordered=column.type.ordered,
        )
        if pa.types.is_dictionary(column.type) and column.num_chunks
        else pa.array([], column.type)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


# ---- notes of pandas in a schema ----


def pandas_metadata(schema: pa.Schema) -> dict[str, Any] | None:
    """Return the notes of pandas about its columns; None where they cannot be read."""
    try:
        notes = json.loads((schema.metadata or {})[b"pandas"])
        known = {"field_name", "pandas_type", "numpy_type"}
        return notes if all(known <= set(column) for column in notes["columns"]) else None
    except (KeyError, TypeError, ValueError):
        return None


def column_notes(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the notes of pandas about each column, if there are any that can be read."""
    notes: list[dict[str, Any]] = (pandas_metadata(schema) or NO_NOTES)["columns"]
    return notes


def without_index(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which an index with a name is a column like any other.

    One without a name is left out, and so are notes on types that pandas itself cannot read back
    (lists of its Arrow types, say).
    """
    schema = pa.schema(
        [field for field in schema if not field.name.startswith(UNNAMED_INDEX)], schema.metadata
    )
    return _noted(schema, lambda column: _is_known(column["numpy_type"]))


def unnamed_types(schema: pa.Schema) -> frozenset[str]:
    """Return the columns with a type of Arrow in pandas that pandas cannot make of its name.

    These are lists, structs, maps and dictionaries: Arrow fails where it reads such a note.
    """
    return frozenset(
        column["field_name"]
        for column in column_notes(schema)
        if column["numpy_type"].endswith("[pyarrow]") and not _is_known(column["numpy_type"])
    )


def _without_notes_of(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    pandas = pandas_metadata(schema)
    if pandas is None or not names:
        return schema
    kept = [column for column in pandas["columns"] if column["field_name"] not in names]
    return schema.with_metadata(
        schema.metadata | with_notes(schema, pandas | {"columns": kept}).metadata
    )


def without_categories(schema: pa.Schema) -> pa.Schema:
    """Return a schema without notes that columns were categories."""
    return _noted(schema, lambda column: column["pandas_type"] != "categorical")


def without_labels(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose names are the labels, whatever type the labels had in pandas."""
    pandas = pandas_metadata(schema) or {"columns": []}
    return with_notes(schema, pandas | {"column_indexes": []})


def noted_by(schemas: Sequence[pa.Schema], unified: pa.Schema) -> pa.Schema:
    """Return the unified schema with pandas' notes on columns that already had these types.

    One file's note on nullable integers does not apply to the floats of another file.
    """
    pandas = pandas_metadata(unified)
    if pandas is None:
        return unified
    notes: dict[str, Any] = {}
    names = set(unified.names)
    for schema in schemas:
        for column in column_notes(schema):
            name = column["field_name"]
            if name in names and schema.field(name).type == unified.field(name).type:
                notes.setdefault(name, column)
    return with_notes(unified, pandas | {"columns": list(notes.values())})


def note(name: str, dtype: Any) -> dict[str, Any]:
    """Return a note of pandas on the type of a column."""
    named = {"name": name, "field_name": name, "metadata": None}
    return named | {"pandas_type": str(dtype), "numpy_type": str(dtype)}


def with_notes(schema: pa.Schema, pandas: dict[str, Any]) -> pa.Schema:
    """Return a schema with these notes of pandas in place of all metadata."""
    return schema.with_metadata({b"pandas": json.dumps(pandas).encode()})


def with_null_types(
    schema: pa.Schema, names: Collection[str] | None = None, texts: Collection[str] = ()
) -> pa.Schema:
    """Return a schema with notes of types of pandas that hold nulls.

    They are for the integers and booleans among the `names`, or among all, and for the `texts`.
    Nullable types that pandas wrote stay as they are.
    """
    known = pandas_metadata(schema) or NO_NOTES
    notes = {one["field_name"]: one for one in known["columns"]}
    nullable = _nullable_in_pandas(schema)
    for field in schema:
        if field.name in nullable or (names is not None and field.name not in names):
            continue
        if pa.types.is_boolean(field.type):
            dtype = "boolean"
        elif pa.types.is_integer(field.type):
            dtype = str(field.type).replace("ui", "UI").replace("int", "Int")
        elif field.name in texts:
            dtype = "string"
        else:
            continue
        notes[field.name] = note(field.name, dtype)
    written = json.dumps(known | {"columns": [*notes.values()]}).encode()
    return schema.with_metadata({**(schema.metadata or {}), b"pandas": written})


def _noted(schema: pa.Schema, keeps: Callable[[dict[str, Any]], bool]) -> pa.Schema:
    """Return a schema with some of the notes of pandas about its columns, and without an index."""
    pandas = pandas_metadata(schema)
    if pandas is None:
        return schema.remove_metadata()
    names = set(schema.names)  # which Arrow makes anew each time
    there = [column for column in pandas["columns"] if column["field_name"] in names]
    kept = [column for column in there if keeps(column)]
    return with_notes(schema, pandas | {"index_columns": [], "columns": kept})


def _is_known(dtype: str) -> bool:
    """Say whether NumPy or pandas has a type of this name."""
    with suppress(TypeError, ValueError):  # a comma makes it a list of types, for NumPy
        np.dtype(dtype)
        return True
    # Its import takes a third of a second in the driver, which cuts other Parquet without it.
    import pandas as pd

    with suppress(TypeError, ValueError, NotImplementedError):
        pd.api.types.pandas_dtype(dtype)
        return True
    return False


def _nullable_in_pandas(schema: pa.Schema) -> set[str]:
    """Return the integers and booleans that pandas wrote from a type that has nulls."""
    return {
        column["field_name"]
        for column in column_notes(schema)
        if column["numpy_type"][:1] in ("I", "U")
        or column["numpy_type"] == "boolean"
        or column["numpy_type"].endswith("[pyarrow]")
    }
