"""Records of delimited text as a frame; what does not fit is named by file, line and column."""

from __future__ import annotations

import csv
import io
import warnings
from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.errors import ParserError, ParserWarning

from daskprs.inputs.text_records import TextRecords, delimited_scan
from daskprs.inputs.text_schema import BOOL_OR_NULL, TextSchema

if TYPE_CHECKING:
    from collections.abc import Sequence


BLANK = b" \t\r\n"
SHOWN = 200


class DelimitedParser:
    """Parses bodies of whole records.

    Parameters
    ----------
    delimiter, encoding
        Of the text.
    schema
        Types of all columns.

    """

    def __init__(self, delimiter: str, encoding: str, schema: TextSchema) -> None:
        self._delimiter = delimiter
        self._encoding = encoding
        self._schema = schema

    def parse(self, body: bytes, names: Sequence[str]) -> pd.DataFrame:
        """Return a frame with the columns that these records have, in their order.

        Raises
        ------
        ValueError
            Of pandas, when something does not fit; `Misfit` finds out what.

        """
        frame = read_csv(
            body,
            names,
            self._delimiter,
            self._encoding,
            dtype=self._schema.parsed_as(list(names)),
        )
        for name in names:
            if self._schema.dtypes[name] == BOOL_OR_NULL:
                frame[name] = _bool_or_null(frame[name])
            elif name in self._schema.dates:
                frame[name] = _dates(frame[name], self._schema.dates[name])
        return frame

    def in_utf8(self) -> DelimitedParser:
        """Return the parser for text that is in UTF-8."""
        return DelimitedParser(self._delimiter, "utf-8", self._schema)

    def kind(self, name: str) -> str:
        """Return the type of a column, for people."""
        return str(self._schema.dates.get(name, self._schema.dtypes[name]))


def read_csv(
    body: bytes,
    names: Sequence[str],
    delimiter: str,
    encoding: str,
    *,
    strict: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """Parse records that have no header, as pandas does by default.

    With `strict`, more fields than names are an error; else they are dropped.
    """
    if not body.strip(BLANK):
        body = b""
    with warnings.catch_warnings():
        # More fields than names would be dropped with no more than a warning.
        warnings.simplefilter("error" if strict else "ignore", ParserWarning)
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(body),
            header=None,
            names=list(names),
            sep=delimiter,
            encoding=encoding,
            index_col=False,
            low_memory=False,
            **options,
        )
    return frame


def _bool_or_null(column: pd.Series) -> pd.Series:
    if not all(isinstance(value, bool) for value in column.dropna()):
        msg = "neither a boolean nor null"
        raise ValueError(msg)
    return column.astype(object)


def _dates(column: pd.Series, dtype: Any) -> pd.Series:
    utc = getattr(dtype, "tz", None) is not None
    return pd.to_datetime(column, utc=utc).astype(dtype)


def records_of(body: bytes, delimiter: str) -> list[tuple[int, bytes]]:
    """Return each record with its offset."""
    whole = TextRecords(_InMemory(body), 0, delimited_scan(delimiter))  # type: ignore[arg-type]
    return [(start, body[start:stop]) for start, stop in whole.cut(1)]


def rows_in(body: bytes, delimiter: str) -> int:
    """Return how many rows pandas would make of records, whether or not they fit."""
    return sum(bool(record.strip(BLANK)) for _, record in records_of(body, delimiter))


class Misfit:
    """Finds the first record that does not fit, once pandas has refused a body."""

    def __init__(self, parser: DelimitedParser, delimiter: str) -> None:
        self._parser = parser
        self._delimiter = delimiter

    def find(self, body: bytes, names: Sequence[str]) -> tuple[int, str] | None:
        """Return the offset of the record, and what is wrong with it.

        By halves: of two, the first that is refused holds the first record that is.
        """
        records = records_of(body, self._delimiter)
        while len(records) > 1:
            half = len(records) // 2
            first = b"".join(record for _, record in records[:half])
            records = records[:half] if self._told(first, names) else records[half:]
        for offset, record in records:
            told = self._told(record, names)
            if told is not None:
                return offset, told
        return None

    def _told(self, record: bytes, names: Sequence[str]) -> str | None:
        """Say what is wrong with one record; None if nothing is, taken by itself."""
        try:
            self._parser.parse(record, names)
        except UnicodeDecodeError as error:
            return f"{record[:SHOWN]!r} is not in the encoding {error.encoding}: {error.reason}."
        except (ValueError, ParserError, ParserWarning, OverflowError) as error:
            return self._cell(record, names) or f"{error}"
        return None

    def _cell(self, record: bytes, names: Sequence[str]) -> str | None:
        text = record.decode("utf-8", "replace")
        cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter), [])
        if len(cells) > len(names):
            return f"{len(cells)} fields where {len(names)} are expected: {text.strip()[:SHOWN]!r}."
        for place, name in enumerate(names):
            alone = self._parser.in_utf8()
            value = cells[place] if place < len(cells) else ""
            quoted = '"' + value.replace('"', '""') + '"' if value else '""'
            try:
                alone.parse(f"{quoted}\n".encode(), [name])
            except (ValueError, OverflowError):
                shown = repr(value[:SHOWN]) if value else "nothing"
                kind = self._parser.kind(name)
                return (
                    f"column {name!r} holds {shown}, which is no {kind}. The types are fixed by "
                    f"samples before the start: say dtypes={{{name!r}: ...}} if it is another one."
                )
        return None


class _InMemory:
    """Bytes, read like a file."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read(self, start: int, length: int) -> bytes:
        return self._body[start : start + length]
