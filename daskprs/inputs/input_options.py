"""Which options mean something for which kind of input: the others are refused, not ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.errors import Option, OptionError
from daskprs.inputs.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

_DELIMITED = ("delimiter", "header", "support_multi_line")
_TEXT = (*_DELIMITED, "dtypes", "encoding")
_WRITTEN = (*_DELIMITED, "encoding")
"""What only text has."""
_TABLE = ("columns", "include_path_column")
UNFIT: Mapping[str, tuple[str, ...]] = {
    "frame": (*_WRITTEN, "partition_format", "include_path_column"),
    "bag": (*_TEXT, *_TABLE),
    "files": (*_TEXT, *_TABLE),
    "parquet": _WRITTEN,
    "json_lines": _DELIMITED,
    "delimited": (),
    "mltable": (*_TEXT, "partition_format", "include_path_column"),
    "mltable_files": (*_TEXT, *_TABLE, "partition_format"),
}
_CALLED = {
    "frame": "a frame, which is a table with types of its own",
    "bag": "a Bag of paths",
    "files": "lists of files",
    "parquet": "Parquet, which has types of its own",
    "json_lines": "JSON lines",
    "mltable": "an MLTable, which says it itself",
    "mltable_files": "an MLTable that is a list of files",
}


def check_options(reading: Reading, kind: str) -> None:
    """Refuse options that say nothing about a kind of input.

    Raises
    ------
    OptionError
        With the option and the kind.

    """
    untouched = Reading()
    for option in UNFIT[kind]:
        if getattr(reading, option) != getattr(untouched, option):
            given = Option(option, getattr(reading, option))
            raise OptionError(given, f": not for {_CALLED[kind]}.")
    if kind == "frame" and reading.input_type == "files":
        raise OptionError(Option("input_type", "files"), ": a frame is a table.")
