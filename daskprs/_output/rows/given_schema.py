"""The schema that the caller gives for what `run` returns: as text, and for the rows of an agent.

As text, a schema is a JSON object of types by column: it stands in the saved call of a job, and
in what a resume compares. Types that no name says are written as Arrow writes a schema itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import frame_of
from daskprs._arrow.exact_casts import MISFITS, OF_VIEWS, normal
from daskprs._arrow.object_times import as_times
from daskprs._output.rows.arrow_rows import first_unfit
from daskprs._output.rows.row_schema import RowSchema
from daskprs.errors import Option, ReturnTypeError, class_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from daskprs._output.rows.blocks import Block

is_dictionary = pa.types.is_dictionary
ERROR = "_error"
"""The column that ``on_error="null"`` adds: the error of a row of nulls."""
WRITTEN = " arrow:"
"""Stands between the name of a type, for people, and the type as Arrow writes it."""
OF_PYTHON = {"float": "float64", "bytes": "binary"}
"""Names of types that mean something else in Arrow than in Python, or nothing."""


# ---- as text ----


def schema_text(given: Any) -> str:
    """Return an Arrow schema, a mapping of names to types or an empty frame as text.

    Such text is returned in the same form. Raise `ValueError` or `TypeError` for anything else.
    """
    if isinstance(given, str) and given.startswith("{"):
        given = json.loads(given)
    if isinstance(given, pa.Schema):
        columns = [(field.name, field) for field in given]
    elif isinstance(given, pd.DataFrame):
        if len(given):
            msg = f"the frame has {len(given)} row{'' if len(given) == 1 else 's'}"
            raise ValueError(msg)
        columns = list(given.dtypes.items())
    elif isinstance(given, Mapping):
        columns = list(given.items())
    else:
        msg = f"the class {class_name(type(given))} is none of these"
        raise TypeError(msg)
    names = [name for name, _ in columns]
    are_texts = all(isinstance(name, str) and name for name in names)
    if not names or len(set(names)) < len(names) or not are_texts:
        msg = f"the names of the columns have to be texts that differ, got {names}"
        raise ValueError(msg)
    text = json.dumps({name: _type_text(name, type_) for name, type_ in columns})
    schema_of(text)
    return text


@lru_cache
def schema_of(text: str) -> pa.Schema:
    """Return the schema of a text, with notes of the columns that have types of pandas."""
    types = {name: _type_of(name, one) for name, one in json.loads(text).items()}
    of_pandas = {
        name: pd.Series(dtype=one) for name, one in types.items() if not isinstance(one, pa.Field)
    }
    noted = pa.Schema.from_pandas(pd.DataFrame(of_pandas), preserve_index=False)
    fields = [
        _without_views(one) if isinstance(one, pa.Field) else _of_values(noted.field(name))
        for name, one in types.items()
    ]
    return pa.schema(fields, noted.metadata if of_pandas else None)


def unfit_for_nulls(text: str, included: Collection[str]) -> str | None:
    """Return why rows of nulls with an error do not fit a schema, and what to change, if so.

    The columns of the input that are `included` are filled in these rows.
    """
    schema = schema_of(text)
    known = schema.field(ERROR).type if ERROR in schema.names else None
    if known is None or not (pa.types.is_string(known) or pa.types.is_large_string(known)):
        has = "lacks that column" if known is None else f"says that it is {known}"
        return (
            f"all rows have a column {ERROR!r}, as text, and the schema {has}. Beside the other "
            f"columns, add {Option('schema', {ERROR: 'string'})}, or to an Arrow schema "
            f"pa.field({ERROR!r}, pa.string())"
        )
    full = [one.name for one in schema if not one.nullable and one.name not in included]
    if not full:
        return None
    return f"the schema allows no nulls in {full}. Allow them: pa.field(name, type, nullable=True)"


def _type_text(name: str, given: Any) -> str:
    if given is None:  # which is a number for NumPy
        msg = f"the column {name!r} has no type"
        raise TypeError(msg)
    if isinstance(given, type) and given.__module__ == "builtins":
        given = given.__name__
    if isinstance(given, str):
        return given
    if isinstance(given, pa.DataType):
        given = pa.field(name, given)
    if not isinstance(given, pa.Field):
        dtype = pd.api.types.pandas_dtype(given)
        if _is_same(name, str(dtype), dtype):
            return str(dtype)
        given = _of_values(pa.Schema.from_pandas(pd.DataFrame({name: pd.Series(dtype=dtype)}))[0])
    given = given.remove_metadata()
    names = [str(given.type)]
    with suppress(NotImplementedError, TypeError):
        names.append(str(pd.api.types.pandas_dtype(given.type.to_pandas_dtype())))
    for text in names:
        if _is_same(name, text, given):
            return text
    written = pa.schema([given]).serialize().to_pybytes()
    return f"{names[0]}{WRITTEN}{base64.b64encode(written).decode()}"


def _is_same(name: str, text: str, given: Any) -> bool:
    """Say whether text says the type of a column."""
    with suppress(TypeError, ValueError):
        return bool(_type_of(name, text) == given)
    return False


def _type_of(name: str, text: str) -> Any:
    """Return the type that a text says: a field of Arrow, else a type of pandas or NumPy."""
    _, is_written, written = text.partition(WRITTEN)
    if is_written:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))[0]
    text = OF_PYTHON.get(text, text)
    if not (text[:1].isupper() or text == "boolean"):  # pandas writes types with a null so
        with suppress(ValueError):
            return pa.field(name, pa.type_for_alias(text))
        with suppress(NotImplementedError, TypeError):  # pandas reads zones, too
            known: Any = pd.ArrowDtype.construct_from_string(f"{text}[pyarrow]")
            return pa.field(name, known.pyarrow_dtype)
    try:
        return pd.api.types.pandas_dtype(text)
    except (NotImplementedError, TypeError, ValueError):
        msg = f"{text!r}, given for the column {name!r}, is not a type of Arrow, NumPy or pandas"
        raise ValueError(msg) from None


def _without_views(field: pa.Field) -> pa.Field:
    """Return a field without a dictionary of views, as `normal` has it."""
    is_of_views = is_dictionary(field.type) and field.type.value_type in OF_VIEWS
    return field.with_type(normal(field.type)) if is_of_views else field


def _of_values(field: pa.Field) -> pa.Field:
    """Return the field of a type of pandas, if this says which values it holds."""
    type_ = values = field.type
    if is_dictionary(type_):
        values = type_.value_type
        type_ = pa.dictionary(pa.int32(), values, type_.ordered)
    if pa.types.is_null(values):
        msg = (
            f"the type of the column {field.name!r} does not say which values it holds: give an "
            "Arrow type, a pd.CategoricalDtype with its categories, or a frame without rows"
        )
        raise ValueError(msg)
    return pa.field(field.name, type_)


# ---- in an agent ----


class GivenSchema:
    """Brings the rows of one mini-batch, by whose number errors name it, into a given schema."""

    def __init__(self, text: str, mini_batch: int) -> None:
        self._rows = RowSchema(schema_of(text))
        self._mini_batch = mini_batch
        self._count = 0
        """Rows of the mini-batch so far."""

    def table(self, block: Block) -> pa.Table:
        """Return rows in the schema.

        Raise `ReturnTypeError` when the columns are others, or a value would be lost.
        """
        table = self._as_arrow(block) if isinstance(block, pd.DataFrame) else block
        columns = [
            pa.chunked_array([pa.nulls(len(one))]) if one.null_count == len(one) else one
            for one in table.columns
        ]
        table = pa.table(columns, names=table.column_names)
        cast = self._rows.cast(table, self._mini_batch, self._count)
        self._count += len(block)
        return cast

    def _as_arrow(self, frame: pd.DataFrame) -> pa.Table:
        names = [str(name) for name in frame.columns]
        arrays = [self._array(name, frame.iloc[:, at]) for at, name in enumerate(names)]
        return pa.table(arrays, names=names)

    def _array(self, name: str, column: pd.Series[Any]) -> pa.Array | pa.ChunkedArray:
        try:
            return pa.array(as_times(column), from_pandas=True)
        except MISFITS as error:
            row = first_unfit(column)
            raise self._of_several_types(name, column, row, str(error)) from error

    def _of_several_types(
        self, name: str, column: pd.Series[Any], row: int, why: str
    ) -> ReturnTypeError:
        value = column.iloc[row]
        schema = self._rows.schema or pa.schema([])
        says = schema.field(name).type if name in schema.names else "nothing of it"
        return ReturnTypeError(
            f"column {name!r} has no one type in mini-batch {self._mini_batch}, as row "
            f"{self._count + row} shows, a {class_name(type(value))}: {value!r} ({why}). "
            f"{Option('schema')} says {says}: return values of that type."
        )


def framed(table: pa.Table, index: pd.Index) -> pd.DataFrame:
    """Return a table as a frame with this index; integers beside nulls stay integers."""
    frame = frame_of(table)
    frame.index = index
    return frame
