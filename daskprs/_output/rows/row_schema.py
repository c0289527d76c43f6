"""The one schema of rows from many mini-batches, and the casts that bring them into it.

The first mini-batch in input order that has rows fixes the schema. So the schema does not depend
on which mini-batch is done first. A column of nulls takes the first type that comes. The rows of
later mini-batches are cast, within a family of types and without the loss of any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from daskprs._arrow.exact_casts import (
    Asked,
    cast_exactly,
    first_changed_row,
    has_null_type,
    normal,
    settled_type,
)
from daskprs.errors import Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence


class RowSchema:
    """The schema that mini-batches have in common; they settle it unless the caller gives one."""

    def __init__(self, given: pa.Schema | None = None) -> None:
        self._given = given
        self._asked = Asked.NOT if given is None else Asked.SCHEMA
        self._fields: dict[str, pa.Field] | None = None
        self._origins: dict[str, str] = {}
        """By column: where its type comes from."""
        if given is not None:
            _check_names(given, "schema")
            self._fields = {field.name: field for field in given}
            self._origins = dict.fromkeys(self._fields, "schema")

    @property
    def schema(self) -> pa.Schema | None:
        """The schema; None before the first mini-batch with columns."""
        if self._given is not None:
            return self._given
        return None if self._fields is None else pa.schema(list(self._fields.values()))

    @property
    def is_settled(self) -> bool:
        """Whether no later mini-batch changes the schema: no type of it is null."""
        return self._given is not None or (
            self._fields is not None
            and not any(has_null_type(field.type) for field in self._fields.values())
        )

    def select(self, names: Sequence[str]) -> RowSchema:
        """Return the schema of some columns."""
        some = RowSchema()
        some._fields = {name: (self._fields or {})[name] for name in names}
        some._origins = {name: self._origins[name] for name in names}
        if self._given is not None:
            some._given = pa.schema(list(some._fields.values()))
            some._asked = self._asked
        return some

    def add(self, schema: pa.Schema, mini_batch: int) -> None:
        """Take the schema of the next mini-batch in input order.

        A schema without rows behind it counts, too: leave those out while others may come. Raise
        `ReturnTypeError` when no cast leads from these types to those that are settled.
        """
        where = f"mini-batch {mini_batch}"
        _check_names(schema, where)
        if self._fields is None:
            self._fields = {one.name: pa.field(one.name, normal(one.type)) for one in schema}
            self._origins = dict.fromkeys(self._fields, where)
            return
        self._check_columns(schema, where)
        for name, known in self._fields.items():
            new = schema.field(name).type
            settled = settled_type(known.type, new, self._asked)
            if settled is None:
                raise self._misfit(name, where, new, "the types have no common family")
            if self._given is None and settled != known.type:
                self._fields[name] = pa.field(name, settled)
                self._origins[name] = where if pa.types.is_null(known.type) else self._origins[name]

    def cast(self, table: pa.Table, mini_batch: int, first_row: int = 0) -> pa.Table:
        """Return rows of a mini-batch in the schema, with its order of columns.

        Raise `ReturnTypeError` when a column is missing or unknown, or a value would be lost. It
        names the mini-batch and the row; `first_row` is the number of the first of these rows.
        """
        where = f"mini-batch {mini_batch}"
        _check_names(table.schema, where)
        if self._fields is None:
            self.add(table.schema, mini_batch)
        self._check_columns(table.schema, where)
        columns = [
            self._cast_column(table.column(name), field, where, first_row)
            for name, field in (self._fields or {}).items()
        ]
        return pa.table(columns, schema=self.schema)

    def _cast_column(
        self, column: pa.ChunkedArray, field: pa.Field, where: str, first_row: int
    ) -> pa.ChunkedArray:
        if settled_type(field.type, column.type, self._asked) is None:
            row = max(0, pc.index(column.is_valid(), value=True).as_py())
            value = f", as row {first_row + row} shows: {column[row]!s}" if len(column) else ""
            why = f"the types have no common family{value}"
            raise self._misfit(field.name, where, column.type, why)
        if not field.nullable and column.null_count:
            row = first_row + pc.index(column.is_null(), value=True).as_py()
            raise self._misfit(field.name, where, column.type, f"row {row} is null")
        try:
            return cast_exactly(column, field.type, self._asked)
        except pa.ArrowException as error:
            row = first_changed_row(column, field.type, self._asked)
            value = "" if row is None else f", as row {first_row + row} shows: {column[row]!s}"
            why = f"values would be lost{value} ({error})"
            raise self._misfit(field.name, where, column.type, why) from error

    def _check_columns(self, schema: pa.Schema, where: str) -> None:
        known = self._fields or {}
        there = dict.fromkeys(schema.names)
        missing = [name for name in known if name not in there]
        extra = [name for name in there if name not in known]
        if missing or extra:
            lacks = f" lacks the columns {missing}" if missing else ""
            has = f" has the columns {extra} besides" if extra else ""
            msg = (
                f"the rows of {where} have other columns than those of {self._origin()}: "
                f"{where}{lacks}{' and' if missing and extra else ''}{has}. Return the same "
                f"columns for every mini-batch, with nulls where there is nothing."
            )
            raise ReturnTypeError(msg)

    def _misfit(self, name: str, where: str, new: pa.DataType, why: str) -> ReturnTypeError:
        known = (self._fields or {})[name].type
        origin = self._origins[name]
        if self._given is not None:
            what = f"{Option('schema')} says {known}"
            advice = f"Return {known}, or change the type in {Option('schema')}"
        else:
            what = f"{origin} has {known}"
            advice = (
                "Return one type for every mini-batch: convert the column in run(), or give its "
                f"type by {Option('schema')}"
            )
        msg = f"column {name!r} is {new} in {where}, and {what}: {why}. {advice}."
        return ReturnTypeError(msg)

    def _origin(self) -> str:
        origins = list(self._origins.values())
        if self._given is not None:
            return f"{Option('schema')}"
        return origins[0] if origins else "the mini-batches before"


def _check_names(schema: pa.Schema, where: str) -> None:
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{where} has two columns {twice!r}: columns with types need different names."
        raise ReturnTypeError(msg)
