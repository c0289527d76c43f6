"""How delimited text is described in SDK v1, in the words of `daskprs.parallel_run`."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError
from daskprs.inputs.mltable.form import ENCODINGS

if TYPE_CHECKING:
    from collections.abc import Mapping


YEAR_FIRST = re.compile("%Y[-/.]?%m")
"""A format that is found by looking at the values."""


class PromoteHeadersBehavior(Enum):
    """Which files have a header line."""

    NO_HEADERS = "no_header"
    ONLY_FIRST_FILE_HAS_HEADERS = "from_first_file"
    COMBINE_ALL_FILES_HEADERS = "all_files_different_headers"
    ALL_FILES_HAVE_SAME_HEADERS = "all_files_same_headers"


class DataType:
    """The type of a column: made by its class methods."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"DataType({self.dtype!r})"

    @classmethod
    def to_string(cls) -> DataType:
        """Return text."""
        return cls("str")

    @classmethod
    def to_long(cls) -> DataType:
        """Return whole numbers."""
        return cls("int64")

    @classmethod
    def to_float(cls, decimal_mark: str = ".") -> DataType:
        """Return numbers."""
        if decimal_mark != ".":
            msg = f"to_float(decimal_mark={decimal_mark!r}): numbers are read with a point."
            raise UsageError(msg)
        return cls("float64")

    @classmethod
    def to_bool(cls) -> DataType:
        """Return truth values."""
        return cls("bool")

    @classmethod
    def to_datetime(cls, formats: Any = None) -> DataType:
        """Return points in time, written as ISO 8601 has it: the year first, then the month."""
        given = [formats] if isinstance(formats, str) else formats or ()
        if not all(YEAR_FIRST.match(one) for one in given):
            msg = (
                f"to_datetime(formats={formats!r}): dates are read with the year first. In an "
                "MLTable file they may have formats: convert_column_types."
            )
            raise UsageError(msg)
        has_zone = any(one.endswith(("Z", "%z")) for one in given)
        return cls("datetime64[ns, UTC]" if has_zone else "datetime64[ns]")


def dtypes_of(types: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return types of columns as `daskprs.parallel_run` takes them."""
    return {
        name: one.dtype if isinstance(one, DataType) else one for name, one in (types or {}).items()
    }


def refuse_types_of_parquet(types: Mapping[str, Any] | None) -> None:
    """Refuse other types for the columns of Parquet.

    Raises
    ------
    UsageError
        When there are some.

    """
    if types:
        msg = (
            "set_column_types: Parquet has types of its own. In an MLTable file they can be "
            "changed: convert_column_types."
        )
        raise UsageError(msg)


def encoding_of(name: str) -> str:
    """Return the name that Python has for an encoding of SDK v1."""
    return ENCODINGS.get(name, name)


def delimited_reading(
    separator: str, header: Any, encoding: str, *, include_path: bool
) -> dict[str, Any]:
    """Return options that say how delimited text is written."""
    if isinstance(header, bool):
        header = PromoteHeadersBehavior(f"{'all_files_same_headers' if header else 'no_header'}")
    return {
        "delimiter": separator,
        "header": header.value if isinstance(header, PromoteHeadersBehavior) else header,
        "encoding": encoding_of(encoding),
        "include_path_column": include_path,
    }
