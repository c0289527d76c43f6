"""One schema for many Parquet files, from their footers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs.errors import InputError, Option
from daskprs.inputs.input_file import open_binary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.input_file import InputFile

UNNAMED_INDEX = "__index_level_"


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
    """Puts the schemas of files together as they are met."""

    def __init__(self) -> None:
        self._first: str = ""
        self._schemas: list[pa.Schema] = []
        self._with_nulls: set[str] = set()

    def meet(self, file: InputFile, metadata: pq.FileMetaData) -> None:
        """Take a file.

        Raises
        ------
        InputError
            When its columns are not those of the files before.

        """
        schema = plain(metadata.schema.to_arrow_schema())
        if not self._schemas:
            self._first = file.path
        else:
            _compare_names(self._first, self._schemas[0], file.path, schema)
        if schema not in self._schemas:
            self._schemas.append(schema)
        self._note_nulls(metadata, schema)

    def result(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the one schema, of the selected columns.

        Integers that are null anywhere are floats everywhere, and such booleans strings of
        objects, as pandas has it when it reads all files as one.
        """
        try:
            schema = pa.unify_schemas(self._schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            msg = f"the files disagree on the type of a column: {error}"
            raise InputError(msg) from error
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        nullable = _nullable_in_pandas(schema)
        for place, field in enumerate(schema):
            if field.name in self._with_nulls and field.name not in nullable:
                schema = schema.set(place, pa.field(field.name, pa.float64()))
        return schema

    def _note_nulls(self, metadata: pq.FileMetaData, schema: pa.Schema) -> None:
        """Note integer columns with nulls; without statistics there may be some."""
        places = {
            metadata.schema.column(place).path: place for place in range(metadata.num_columns)
        }
        for field in schema:
            place = places.get(field.name)
            if not pa.types.is_integer(field.type) or place is None:
                continue
            if metadata.schema.column(place).max_definition_level == 0:
                continue
            for group in range(metadata.num_row_groups):
                if metadata.row_group(group).num_rows == 0:
                    continue
                statistics = metadata.row_group(group).column(place).statistics
                if statistics is None or not statistics.has_null_count or statistics.null_count:
                    self._with_nulls.add(field.name)
                    break


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries, without an unnamed index, and with no index at all.

    A category of one row group is not one of another: values are given, as all files can.
    """
    fields = [
        pa.field(field.name, field.type.value_type)
        if pa.types.is_dictionary(field.type)
        else pa.field(field.name, field.type)
        for field in schema
        if not field.name.startswith(UNNAMED_INDEX)
    ]
    return pa.schema(fields, _metadata_without_index(schema, {field.name for field in fields}))


def _metadata_without_index(schema: pa.Schema, names: set[str]) -> dict[bytes, bytes] | None:
    told = (schema.metadata or {}).get(b"pandas")
    if told is None:
        return None
    pandas = json.loads(told)
    pandas["index_columns"] = []
    pandas["columns"] = [
        column
        for column in pandas["columns"]
        if column["name"] in names and column["pandas_type"] != "categorical"
    ]
    return {b"pandas": json.dumps(pandas).encode()}


def _nullable_in_pandas(schema: pa.Schema) -> set[str]:
    """Return the integer columns that pandas wrote from a nullable type, which stays."""
    told = (schema.metadata or {}).get(b"pandas")
    if told is None:
        return set()
    columns = json.loads(told)["columns"]
    return {column["name"] for column in columns if column["numpy_type"][:1] in ("I", "U")}


def _compare_names(one: str, first: pa.Schema, other: str, second: pa.Schema) -> None:
    missing = sorted(set(first.names) - set(second.names))
    more = sorted(set(second.names) - set(first.names))
    if missing or more:
        parts = [f"{', '.join(missing)} only in {one}"] if missing else []
        parts += [f"{', '.join(more)} only in {other}"] if more else []
        told = f"the files disagree on their columns: {'; '.join(parts)}. Name those in both by "
        raise InputError(told, Option("columns"), ".")
