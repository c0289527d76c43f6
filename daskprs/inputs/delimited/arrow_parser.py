"""Delimited text read by Arrow, where it reads what pandas would.

Arrow reads text several times as fast, and short numbers as fast. It is tried first, with all types
given. Text that it rejects, and the few forms that it reads differently from pandas, are left to
pandas, which then decides what is an error. A property test compares the two.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from daskprs.inputs.delimited.column import TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.delimited.column import TextColumn

NULLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""What `pandas.read_csv` takes for null by default."""
EMPTY = ("",)
"""The null words that are left in text without an `N`."""
BOOLEANS = {True: ["True", "TRUE", "true"], False: ["False", "FALSE", "false"]}
HOLDS_ARROW_TEXT = isinstance(pd.Series(["text"]).dtype, pd.StringDtype)
"""From pandas 3 on, text is a type of its own; before, it was Python objects."""


class ArrowParser:
    """Parses bodies of whole records, where Arrow reads them as pandas does.

    Parameters
    ----------
    delimiter, encoding
        Delimiter and encoding of the text.
    text_is_null
        Whether a word for null is also null in a column of text.

    """

    def __init__(self, delimiter: str, encoding: str, *, text_is_null: bool = True) -> None:
        self._text_is_null = text_is_null
        self._quoted = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._unquoted = csv.ParseOptions(delimiter=delimiter, quote_char=False)
        self._decode = None if codecs.lookup(encoding).name == "utf-8" else encoding

    def parse(
        self, body: bytes, names: Sequence[str], wanted: Sequence[TextColumn]
    ) -> pd.DataFrame | None:
        """Return a frame with the wanted columns, or None where pandas has to read them."""
        types = {column.name: arrow_type(column) for column in wanted}
        # A line of a single column may be blank, which pandas leaves out.
        if not HOLDS_ARROW_TEXT or not wanted or None in types.values() or len(names) == 1:
            return None
        if any(map(pa.types.is_integer, types.values())) and may_hold_hexadecimal(body):
            return None
        try:
            table = self._table(body, names, types)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if may_hold_nulls(body) and any(_has_nan(cells) for cells in table.columns):
            return None
        if any(table[one.name].null_count for one in wanted if not one.takes_null):
            return None
        frame: pd.DataFrame = table.to_pandas(use_threads=False)
        for column in wanted:
            if column.final is not None or column.is_bool_or_null:
                frame[column.name] = column.fit(frame[column.name])
        return frame

    def _table(self, body: bytes, names: Sequence[str], types: dict[str, pa.DataType]) -> pa.Table:
        text = body if self._decode is None else body.decode(self._decode).encode()
        return csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(
                column_names=list(names), use_threads=False, block_size=len(text) + 1
            ),
            parse_options=self._quoted if b'"' in body else self._unquoted,
            convert_options=csv.ConvertOptions(
                include_columns=list(types),
                column_types=types,
                null_values=NULLS if may_hold_nulls(body) else EMPTY,
                true_values=BOOLEANS[True],
                false_values=BOOLEANS[False],
                strings_can_be_null=self._text_is_null,
            ),
        )


def arrow_type(column: TextColumn) -> pa.DataType | None:
    """Return the type that Arrow reads a column as; None where it cannot."""
    if isinstance(column.parsed, str) and column.parsed == TEXT:
        return pa.large_string()
    if column.is_bool_or_null:
        return pa.bool_()
    if isinstance(column.parsed, np.dtype) and column.parsed.kind in "iub":
        return pa.from_numpy_dtype(column.parsed)
    return pa.float64() if column.parsed == np.float64 else None


def may_hold_hexadecimal(body: bytes) -> bool:
    """Say whether there is a ``0x``: Arrow reads integers that are written so, pandas does not."""
    cells = np.frombuffer(body, np.uint8)
    for letter in (b"x", b"X"):
        # Many times as fast as a search for both characters.
        if letter in body and (cells[np.flatnonzero(cells == letter[0]) - 1] == b"0"[0]).any():
            return True
    return False


def may_hold_nulls(body: bytes) -> bool:
    """Say whether a word for null, or a NaN, may be there: all have that letter."""
    return b"n" in body or b"N" in body


def _has_nan(cells: pa.ChunkedArray) -> bool:
    """Say whether Arrow has read a NaN, which pandas has for null."""
    return pa.types.is_floating(cells.type) and bool(pc.any(pc.is_nan(cells)).as_py())
