"""Sources of tables that lie in files, by the kind of these files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._inputs.files.suffixes import TableKind
from daskprs._system.interrupts import held_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._inputs.delimited.source import DelimitedSource
    from daskprs._inputs.parquet import ParquetSource
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.text.json_lines import JsonLinesSource


def open_table(
    kind: TableKind, files: Sequence[InputFile], reading: ReadOptions
) -> DelimitedSource | JsonLinesSource | ParquetSource:
    """Return the source of a table.

    Raise `InputError` when a file cannot be read, or files disagree, and `OptionError` when a
    reading option does not suit them.
    """
    match kind:
        case TableKind.PARQUET:
            with held_back():
                from daskprs._inputs.parquet import ParquetSource

            return ParquetSource(files, reading)
        case TableKind.DELIMITED:
            with held_back():
                from daskprs._inputs.delimited.source import DelimitedSource

            return DelimitedSource(files, reading)
        case TableKind.JSON_LINES:
            with held_back():
                from daskprs._inputs.text.json_lines import JsonLinesSource

            return JsonLinesSource(files, reading)
