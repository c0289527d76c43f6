"""The form of an MLTable: its keys, its transformations and their options."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, model_validator

from daskprs.azure._yaml_files.form import (
    BY_SHAPE,
    MAPPING,
    PLAIN,
    Form,
    refused,
    without_effect,
    works,
)

Header = Literal[
    "no_header", "from_first_file", "all_files_different_headers", "all_files_same_headers"
]
TypeName = Literal["int", "float", "string", "boolean", "datetime", "stream_info"]
Count = Annotated[int, Field(strict=True, ge=0)]
EncodingName = Literal[
    "utf8", "utf8bom", "ascii", "latin1", "iso88591", "utf16", "utf32", "windows1252"
]
ENCODINGS = {"utf8bom": "utf-8-sig", "iso88591": "latin-1", "windows1252": "cp1252"}
"""Azure's encoding names whose Python names differ."""
FIELD = re.compile(r"\{[^{}]+\}")


def _plain_encoding(value: Any) -> Any:
    return value.lower().replace("-", "") if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_mapping(value: Any) -> Any:
    """Return what ``- read_parquet`` means: a transformation without options."""
    return {value: None} if isinstance(value, str) else value


def _format(value: Any) -> Any:
    """Return a partition format, however YAML has understood it.

    ``{date:yyyy/MM/dd}`` without quotes is a mapping to YAML, with one key and no value.
    """
    if isinstance(value, dict) and len(value) == 1 and "partition_format" not in value:
        name, rest = next(iter(value.items()))
        value = f"{{{name}}}" if rest is None else f"{{{name}:{rest}}}"
    return value


def _is_saved_format(value: Any) -> bool:
    return isinstance(value, ExtractColumns) or (
        isinstance(value, dict) and "partition_format" in value
    )


def _with_fields(value: str) -> str:
    if not FIELD.search(value):
        msg = f"it must hold fields such as {{year}} or {{date:yyyy/MM/dd}}, and {value!r} does not"
        raise ValueError(msg)
    return value


Encoding = Annotated[EncodingName, BeforeValidator(_plain_encoding)]
Names = Annotated[list[str], BeforeValidator(_listed)]
FormatText = Annotated[str, BeforeValidator(_format), AfterValidator(_with_fields)]


def _delimiter(value: str) -> str:
    value = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(value) != 1 or not value.isascii() or value == "\0":
        msg = f"it must be a single ASCII character, not {value!r}"
        raise ValueError(msg)
    return value


class PathEntry(Form):
    """One entry of `paths`."""

    file: str | None = works(None)
    folder: str | None = works(None, "with all files below it")
    pattern: str | None = works(None, "with `*`, `?`, `[abc]`, and `**` for any folders")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            msg = f"say what it is: file, folder or pattern, as in `file: {value}`"
            raise ValueError(msg)  # noqa: TRY004 - pydantic tells it as a mistake
        return value

    @model_validator(mode="after")
    def _one(self) -> PathEntry:
        if sum(value is not None for value in (self.file, self.folder, self.pattern)) != 1:
            msg = "it takes one of file, folder and pattern"
            raise ValueError(msg)
        return self

    @property
    def path(self) -> str:
        """The path or the pattern, as it is written."""
        return self.file or self.folder or self.pattern or ""


class BooleanType(Form):
    """The conversion of values to booleans."""

    true_values: Names | None = works(None)
    false_values: Names | None = works(None)
    mismatch_as: Literal["error", "true", "false"] | None = works(
        None, "default `error`; the value never becomes a null"
    )

    @model_validator(mode="after")
    def _both(self) -> BooleanType:
        if bool(self.true_values) != bool(self.false_values):
            msg = "true_values and false_values go together"
            raise ValueError(msg)
        if both := set(self.true_values or ()) & set(self.false_values or ()):
            msg = f"{min(both)!r} is in true_values and in false_values"
            raise ValueError(msg)
        return self


class DatetimeType(Form):
    """The conversion of values to dates."""

    formats: Names = works(min_length=1)
    date_constant: str | None = works(
        None, "the date of values that have only a time", pattern=r"^\d{4}-\d{2}-\d{2}$"
    )


class ColumnType(Form):
    """A type with options."""

    boolean: BooleanType | None = works(None)
    datetime: DatetimeType | None = works(None)

    @model_validator(mode="after")
    def _one(self) -> ColumnType:
        if (self.boolean is None) == (self.datetime is None):
            msg = "it takes one of boolean and datetime, or the name of a type"
            raise ValueError(msg)
        return self


AnyType = Annotated[Annotated[TypeName, PLAIN] | Annotated[ColumnType, MAPPING], BY_SHAPE]


class ConvertEntry(Form):
    """Columns, and what they become."""

    columns: Names = works()
    column_type: AnyType = works()


class Inference(Form):
    """The inference of types from the values."""

    sample_size: int | None = without_effect("samples come from the whole input")
    column_type_overrides: dict[str, AnyType] = works(default_factory=dict)


class ReadDelimited(Form):
    """Options of delimited text."""

    delimiter: Annotated[str, AfterValidator(_delimiter)] = works(",")
    header: Header = works("all_files_same_headers")
    encoding: Encoding = works("utf8")
    support_multi_line: bool = works(False, "with `False`, a quoted line break is an error")
    empty_as_string: bool = works(False)
    infer_column_types: Annotated[
        Annotated[bool, PLAIN] | Annotated[Inference, MAPPING], BY_SHAPE
    ] = works(True)
    include_path_column: bool = works(False)
    path_column: str = works("Path", "the name of that column")
    partition_size: int = works(20 << 20, "bytes of a partition for `select_partitions`", gt=0)

    @property
    def overrides(self) -> dict[str, AnyType]:
        """The types of columns that are given, not found."""
        inference = self.infer_column_types
        return inference.column_type_overrides if isinstance(inference, Inference) else {}


class ReadParquet(Form):
    """Options of Parquet."""

    include_path_column: bool = works(False)
    path_column: str = works("Path", "the name of that column")


class ReadJsonLines(Form):
    """Options of JSON lines."""

    encoding: Encoding = works("utf8")
    invalid_lines: Literal["error", "drop"] = works("error")
    include_path_column: bool = works(False)
    path_column: str = works("Path", "the name of that column")
    partition_size: int = works(20 << 20, "bytes of a partition for `select_partitions`", gt=0)


class ReadDeltaLake(Form):
    """Options of a Delta table."""

    version_as_of: Count | None = works(
        None, "without it and `timestamp_as_of`: the latest version"
    )
    timestamp_as_of: str | None = works(None)
    include_path_column: bool | None = refused("a Delta table has no paths of its own")

    @model_validator(mode="after")
    def _one(self) -> ReadDeltaLake:
        if self.version_as_of is not None and self.timestamp_as_of is not None:
            msg = "version_as_of and timestamp_as_of say the same thing: leave out one"
            raise ValueError(msg)
        return self


ReadForm = ReadDelimited | ReadParquet | ReadJsonLines | ReadDeltaLake
READS: dict[str, type[ReadForm]] = {
    "read_delimited": ReadDelimited,
    "read_parquet": ReadParquet,
    "read_json_lines": ReadJsonLines,
    "read_delta_lake": ReadDeltaLake,
}


class ExtractColumns(Form):
    """A partition format, as the `mltable` package writes it."""

    partition_format: FormatText = works()
    path_column: str | None = without_effect("the paths are known without such a column")
    ignore_errors: bool = without_effect("a path that does not match is an error", False)


AnyFormat = Annotated[
    Annotated[FormatText, PLAIN] | Annotated[ExtractColumns, MAPPING],
    Discriminator(lambda value: "mapping" if _is_saved_format(value) else "plain"),
    AfterValidator(lambda one: one.partition_format if isinstance(one, ExtractColumns) else one),
]
"""The format itself, however it was written."""


class TakeRandomSample(Form):
    """A part of the rows."""

    probability: float = works(ge=0, le=1)
    seed: int | None = works(None, "default 0; each run draws the same rows")


class Transformation(Form):
    """One item of `transformations`: exactly one of these."""

    read_delimited: ReadDelimited | None = works(None)
    read_parquet: ReadParquet | None = works(None)
    read_json_lines: ReadJsonLines | None = works(None)
    read_delta_lake: ReadDeltaLake | None = works(None, "needs the package `deltalake`")
    extract_columns_from_partition_format: AnyFormat | None = works(None)
    convert_column_types: list[ConvertEntry] | None = works(None)
    keep_columns: Names | None = works(None)
    drop_columns: Names | None = works(None)
    filter: str | None = works(None)
    take: Count | None = works(None)
    skip: Count | None = works(None)
    take_random_sample: TakeRandomSample | None = works(None)
    select_partitions: list[Count] | None = works(None, min_length=1)

    @model_validator(mode="after")
    def _one(self) -> Transformation:
        if len(self.model_fields_set) != 1:
            msg = "each item of transformations is one transformation: begin each with a dash"
            raise ValueError(msg)
        if self.value is None and self.name not in READS:
            msg = f"{self.name} needs a value"
            raise ValueError(msg)
        return self

    @property
    def name(self) -> str:
        """The name of the step."""
        return next(iter(self.model_fields_set))

    @property
    def value(self) -> Any:
        """Its options; None of a `read_…` without."""
        return getattr(self, self.name)


class Traits(Form):
    """The purposes of columns."""

    index_columns: Names | None = without_effect("a mini-batch has an index of its own")
    timestamp_column: str | None = without_effect("for other consumers of the table")


class MLTableForm(Form):
    """The keys of an MLTable."""

    schema_: str | None = works(None, "says what kind of file this is", alias="$schema")
    type: Literal["mltable"] = works("mltable")
    paths: list[PathEntry] = works(min_length=1)
    transformations: list[Annotated[Transformation, BeforeValidator(_as_mapping)]] | None = works(
        None
    )
    metadata: Any = without_effect("for other consumers of the table")
    traits: Traits | None = without_effect("for other consumers of the table")


FORMAT = "extract_columns_from_partition_format"
