"""Columns of the input that stand beside what `run` returns: the option `include_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._inputs.source.columns import check_columns, check_different
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._inputs.source.source import Source

PATH, ROW_NUMBER = "path", "row_number"
"""The names that may mean something else than a column of the input."""
ROW = "daskprs_row"
"""The name that the index of a mini-batch has for `include_columns`."""
PATH_ASIDE = "daskprs_path"
"""The column of paths that a table from files has for `include_columns`. `run` does not get it."""


class Included(NamedTuple):
    """The wanted columns, as agents find them."""

    names: tuple[str, ...]
    """All of them, in the order of the output."""
    columns: frozenset[str]
    """The names that are columns of a mini-batch."""
    path_aside: bool
    """Whether mini-batches have the column `PATH_ASIDE`."""


def included_columns(
    source: Source, names: Sequence[str] | None, *, may_grow: bool = False
) -> Included | None:
    """Return the columns of `include_columns`; None if the option is not given.

    `may_grow` says whether committed rows stay where the input has others before them. Raise
    `OptionError` when the input has no such column, or does not know paths or row numbers.
    """
    if names is None:
        return None
    there = _columns_of(source)
    if there is None:
        message = (
            ": the input has no columns that are known before the start. A list of Delayed objects "
            "or futures announces its columns by "
        )
        raise OptionError(Option("include_columns", names), message, Option("meta"), ".")
    if ROW in there:
        message = f": the input has a column {ROW!r}, the name of the index for this option. Rename"
        raise OptionError(Option("include_columns", names), message, " the column.")
    columns = [name for name in names if name in there]
    check_different(columns, there, "include_columns")
    for name in names:
        if name == PATH and name not in there:
            _check_path(source, there, names)
        elif name == ROW_NUMBER and name not in there:
            _check_row_number(source, names, may_grow=may_grow)
        else:
            check_columns([name], there, "include_columns")
    return Included(tuple(names), frozenset(columns), PATH_ASIDE in there)


def _columns_of(source: Any) -> list[Any] | None:
    """Return the columns of a mini-batch: none for a list of files, None if they are not known."""
    if source.unit == "file":
        return []
    meta = source.meta()
    return None if meta is None else list(meta.columns)


def _check_path(source: Source, there: Sequence[Any], names: Sequence[str]) -> None:
    if source.unit != "file" and PATH_ASIDE not in there:
        message = (
            ": the rows of this input have no path. Files have one, and tables that are read from "
            "files. In an MLTable, write include_path_column: true, and include its column 'Path'."
        )
        raise OptionError(Option("include_columns", names), message)


def _check_row_number(source: Source, names: Sequence[str], *, may_grow: bool) -> None:
    if may_grow:
        message = (
            ": the input may have other rows than before, and committed rows would keep numbers "
            "that are wrong by now. Begin a new job in another "
        )
        raise OptionError(Option("include_columns", names), message, Option("job_dir"), ".")
    if not source.numbers_rows:
        message = (
            ": the plan does not know the numbers of rows in this input. They are known for "
            "frames, Parquet and lists of files, without partition_keys. Add a column of numbers "
            "to the input instead, and include that."
        )
        raise OptionError(Option("include_columns", names), message)
