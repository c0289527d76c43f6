"""The types of the columns of text, fixed before the first mini-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from daskprs.errors import OptionError
from daskprs.inputs.columns import check_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOL_OR_NULL = "bool or null"
TEXT = "str"


class TextSchema(NamedTuple):
    """Types by column, in the order of the columns."""

    names: tuple[str, ...]
    """All columns of a file."""
    dtypes: dict[str, Any]
    """What pandas parses each as; `BOOL_OR_NULL` for booleans among nulls."""
    dates: dict[str, Any]
    """Columns that become timestamps after they were parsed as text."""

    def parsed_as(self, columns: list[str]) -> dict[str, Any]:
        """Return the types that the parser is told."""
        return {
            name: dtype
            for name, dtype in self.dtypes.items()
            if name in columns and dtype != BOOL_OR_NULL
        }


def schema_of(sample: pd.DataFrame, given: Mapping[str, Any], *, complete: bool) -> TextSchema:
    """Return the types that a sample suggests, and those that were given.

    Parameters
    ----------
    sample
        Rows as pandas reads them.
    given
        The option `dtypes`.
    complete
        The sample is the whole input: its types are what pandas makes of it.

    Raises
    ------
    OptionError
        For a column that is not there, or a type that pandas does not know.

    """
    check_columns(list(given), list(sample.columns), "dtypes")
    dtypes: dict[str, Any] = {}
    dates: dict[str, Any] = {}
    for name in sample.columns:
        if name not in given:
            dtypes[name] = _suggested(sample[name], complete=complete)
        elif _is_date(given[name]):
            dtypes[name], dates[name] = TEXT, pd.api.types.pandas_dtype(given[name])
        else:
            dtypes[name] = _known(name, given[name])
    return TextSchema(tuple(sample.columns), dtypes, dates)


def _suggested(column: pd.Series, *, complete: bool) -> Any:
    if column.empty and complete:
        return "object"
    if column.isna().all():
        return "float64" if complete else TEXT
    if column.dtype == object:
        values = set(map(type, column.dropna()))
        return BOOL_OR_NULL if values == {bool} else TEXT
    if isinstance(column.dtype, pd.StringDtype):
        return TEXT
    return str(column.dtype)


def _is_date(dtype: Any) -> bool:
    try:
        return pd.api.types.is_datetime64_any_dtype(pd.api.types.pandas_dtype(dtype))
    except TypeError:
        return False


def _known(name: str, dtype: Any) -> Any:
    try:
        pd.api.types.pandas_dtype(dtype)
    except TypeError as error:
        msg = f"dtypes: {dtype!r}, given for the column {name!r}, is no type of pandas: {error}."
        raise OptionError(msg) from error
    return dtype
