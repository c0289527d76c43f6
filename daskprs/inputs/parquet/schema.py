"""One schema for many Parquet files, from their footers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs.errors import InputError, Option
from daskprs.inputs.source.arrow_pandas import (
    OneType,
    noted_by,
    one_type,
    with_dtypes,
    without_categories,
    without_index,
)
from daskprs.inputs.source.columns import check_columns
from daskprs.inputs.source.input_file import open_binary

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from daskprs.inputs.source.input_file import InputFile


def footer(file: InputFile) -> pq.FileMetaData:
    """Return the footer of a file.

    Raises
    ------
    InputError
        When the file is no Parquet file, or is cut short.

    """
    try:
        with open_binary(file.path) as opened:
            return pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        msg = f"{file.path} is not a whole Parquet file: {error}"
        raise InputError(msg) from error


class SchemaOfAll:
    """Puts the schemas of files together as they are met.

    Parameters
    ----------
    columns
        The wanted columns, if not all: files may disagree on the rest.
    dtypes
        Types of columns that are asked for.

    """

    def __init__(
        self, columns: Sequence[str] | None, dtypes: Mapping[str, Any] | None = None
    ) -> None:
        self._columns = columns
        self._dtypes = dtypes or {}
        self._first: str = ""
        self._schemas: list[pa.Schema] = []
        self._with_nulls: set[str] = set()

    def meet(self, file: InputFile, metadata: pq.FileMetaData) -> None:
        """Take a file.

        Raises
        ------
        InputError
            When the file lacks columns of earlier files, or has two of the same name.

        """
        schema = plain(metadata.schema.to_arrow_schema())
        _refuse_doubles(file.path, schema.names)
        if self._columns is not None:
            self._check_wanted(file, schema)
            schema = _selected(schema, self._columns)
        if not self._schemas:
            self._first = file.path
        else:
            _compare_names(self._first, self._schemas[0], file.path, schema)
        if not any(schema.equals(known, check_metadata=True) for known in self._schemas):
            self._schemas.append(schema)
        self._with_nulls |= nulls_of(metadata, schema, known=self._with_nulls)

    def result(self) -> OneType:
        """Return the one schema, in which integers that are null anywhere are floats.

        Pandas does the same when it reads all files as one. Columns of the option `dtypes` have the
        requested types.
        """
        try:
            schema = pa.unify_schemas(self._schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            msg = f"the files disagree on the type of a column: {error}"
            raise InputError(msg) from error
        schema = with_dtypes(noted_by(self._schemas, schema), self._dtypes, self._with_nulls)
        return one_type(schema, self._with_nulls, self._dtypes)

    def _check_wanted(self, file: InputFile, schema: pa.Schema) -> None:
        wanted = self._columns or ()
        if not self._schemas:
            check_columns(wanted, schema.names, "columns")
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            msg = f"{file.path} lacks columns that {self._first} has: {', '.join(missing)}."
            raise InputError(msg)


def nulls_of(metadata: pq.FileMetaData, schema: pa.Schema, known: Collection[str] = ()) -> set[str]:
    """Return the integers and booleans with nulls; without statistics there may be some.

    Columns that are `known` to have some are not looked at.
    """
    leaves = _leaves(metadata.schema.to_arrow_schema())
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    groups = [group for group in groups if group.num_rows > 0]
    found = set()
    for field in schema:
        if field.name in known or not groups:
            continue
        if pa.types.is_null(field.type):
            found.add(field.name)
        if not (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
            continue
        place = leaves[field.name]
        if metadata.schema.column(place).max_definition_level == 0:
            continue
        if any(_may_have_nulls(group.column(place).statistics) for group in groups):
            found.add(field.name)
    return found


def _may_have_nulls(statistics: pq.Statistics | None) -> bool:
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _leaves(schema: pa.Schema) -> dict[str, int]:
    """Return the first of the columns that Parquet stores for each field."""
    places, place = {}, 0
    for field in schema:
        places[field.name] = place
        place += _count_leaves(field.type)
    return places


def _count_leaves(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return sum(map(_count_leaves, inner)) if inner else 1


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries, without an unnamed index, and with no index at all.

    A category of one row group is not one of another: values are given, as all files can.
    """
    schema = without_index(schema)
    for place, field in enumerate(schema):
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        schema = schema.set(place, pa.field(field.name, type_))
    return without_categories(schema)


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns], schema.metadata)


def _refuse_doubles(path: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        msg = f"{path} has more than one column {twice[0]!r}: rename them."
        raise InputError(msg)


def _compare_names(one: str, first: pa.Schema, other: str, second: pa.Schema) -> None:
    missing = sorted(set(first.names) - set(second.names))
    more = sorted(set(second.names) - set(first.names))
    if missing or more:
        parts = [f"{', '.join(missing)} only in {one}"] if missing else []
        parts += [f"{', '.join(more)} only in {other}"] if more else []
        told = f"the files disagree on their columns: {'; '.join(parts)}. Name the common ones by "
        raise InputError(told, Option("columns"), ".")
