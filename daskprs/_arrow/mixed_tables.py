"""Tables whose columns differ in their types, as one: what has no common type becomes text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from daskprs._arrow.exact_casts import MISFITS

if TYPE_CHECKING:
    from collections.abc import Iterable


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema with all columns, in the order in which they appear first."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema.remove_metadata():
            known = fields.get(field.name)
            fields[field.name] = field if known is None else _common(known, field)
    return pa.schema(list(fields.values()))


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a common schema; those that it lacks are null."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [
        _in_type(table.column(field.name), field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def as_text(values: Iterable[Any]) -> pa.Array:
    """Return values as text, but for nulls."""
    texts = [None if one is None else in_utf8(str(one)) for one in values]
    return pa.array(texts, pa.string())


def in_utf8(text: str) -> str:
    """Return text with escapes for what UTF-8 does not have: bytes of file names, say."""
    return text.encode("utf-8", "backslashreplace").decode()


def _common(one: pa.Field, other: pa.Field) -> pa.Field:
    if one.type == other.type:
        return one
    try:
        both = pa.unify_schemas(
            [pa.schema([one]), pa.schema([other])], promote_options="permissive"
        )
    except MISFITS:
        return pa.field(one.name, pa.string())
    return both.field(0)


def _in_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if column.type == kind:
        return column
    return (
        as_text(column.to_pylist()) if pa.types.is_string(kind) else column.cast(kind, safe=False)
    )
