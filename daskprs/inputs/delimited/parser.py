"""Records of delimited text as a frame: by Arrow where it reads as pandas does, else by pandas."""

from __future__ import annotations

import codecs
import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.errors import ParserError

from daskprs.inputs.delimited.arrow_parser import NULLS, ArrowParser
from daskprs.inputs.text.record_scan import CR, LF, RecordScan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from daskprs.inputs.delimited.column import TextColumn
    from daskprs.inputs.delimited.schema import Schema
    from daskprs.inputs.text.record_scan import Positions

REFUSALS = (ValueError, TypeError, OverflowError)
"""What pandas raises when text is not what it was said to be (`ParserError` is a `ValueError`)."""
ROUND_TRIP: dict[str, Any] = {} if pd.__version__ >= "3" else {"float_precision": "round_trip"}
"""Every number is read as the float that is nearest to it, as later versions do by default."""


class Dialect(NamedTuple):
    """How the bytes of a text are to be understood."""

    delimiter: str
    encoding: str
    multi_line: bool
    empty_as_string: bool = False
    """Whether cells of text are what is written, and never null."""

    def new_scan(self) -> RecordScan:
        """Return a scan that finds record ends, from a record start."""
        return RecordScan(self.delimiter.encode()[0] if self.multi_line else None)

    def rows_in(self, body: bytes) -> int:
        """Return the number of rows in records, whether or not they fit."""
        return len(self.starts_of_rows(body))

    def starts_of_rows(self, body: bytes) -> list[int]:
        """Return where in records each row begins."""
        ends = self.new_scan().ends(body).tolist()
        bounds = pairwise([0, *ends, len(body)])
        return [start for start, stop in bounds if not self.is_blank(body[start:stop])]

    def nulls(self, columns: Iterable[TextColumn]) -> dict[str, Any]:
        """Return pandas' options for nulls, where its default words must not apply."""
        if not self.empty_as_string:
            return {}
        words = {one.name: list(NULLS) for one in columns if not one.is_text}
        return {"keep_default_na": False, "na_values": words}

    def is_blank(self, record: bytes) -> bool:
        """Say whether a line is one that pandas leaves out."""
        return not record.strip(b" \t\r\n".replace(self.delimiter.encode(), b""))


class DelimitedParser:
    """Parses bodies of whole records.

    Parameters
    ----------
    dialect
        The dialect of the text, in the encoding of its bytes.
    schema
        Types of all columns.
    selected
        The wanted columns: the values of other columns do not matter.

    """

    def __init__(self, dialect: Dialect, schema: Schema, selected: Collection[str]) -> None:
        self.dialect = dialect
        self.schema = schema
        self.selected = frozenset(selected)
        self._arrow = ArrowParser(
            dialect.delimiter, dialect.encoding, text_is_null=not dialect.empty_as_string
        )

    def parse(self, body: bytes, names: Sequence[str], *, is_open: bool = False) -> pd.DataFrame:
        """Return a frame with the wanted ones of the columns that these records have.

        Those that end in quotes, `is_open`, are refused.

        Raises
        ------
        ValueError, TypeError, OverflowError
            When something does not fit; `Misfit` finds out what.

        """
        if not names:
            return pd.DataFrame()  # all files are blank
        if body.startswith(codecs.BOM_UTF8):
            body = b"\n" + body  # only at the beginning of a file it means nothing
        wanted = [self.schema[name] for name in names if name in self.selected]
        frame = None if is_open else self._arrow.parse(body, names, wanted)
        return self.by_pandas(body, names, wanted) if frame is None else frame

    def by_pandas(
        self, body: bytes, names: Sequence[str], wanted: Sequence[TextColumn]
    ) -> pd.DataFrame:
        """Return the same, whatever Arrow may make of it."""
        told = {column.name: column.told for column in wanted if column.told is not None}
        nulls = self.dialect.nulls(wanted)
        frame = read_records(body, names, self.dialect, dtype=told, **nulls)
        floats = {one.name: one.parsed for one in wanted if _are_unseen_floats(one, frame, body)}
        if floats:
            frame = read_records(body, names, self.dialect, dtype=told | floats, **nulls)
        fitted = {column.name: column.fit(frame[column.name]) for column in wanted}
        return pd.DataFrame(fitted, index=frame.index)


def _are_unseen_floats(column: TextColumn, frame: pd.DataFrame, body: bytes) -> bool:
    """Say whether floats were lost to integers: by more than 64 bits, or the sign of a zero."""
    if not (column.is_plain and column.parsed.kind == "f"):
        return False
    cells = frame[column.name]
    if not pd.api.types.is_numeric_dtype(cells.dtype):
        return True
    return cells.dtype.kind == "i" and b"-0" in body and bool((cells == 0).any())


def read_csv(body: bytes, names: Sequence[str], dialect: Dialect, **options: Any) -> pd.DataFrame:
    """Parse records that have no header, as pandas does by default."""
    frame: pd.DataFrame = pd.read_csv(
        io.BytesIO(body),
        header=None,
        names=list(names),
        sep=dialect.delimiter,
        encoding=dialect.encoding,
        low_memory=False,
        **ROUND_TRIP,
        **options,
    )
    return frame


def read_records(
    body: bytes, names: Sequence[str], dialect: Dialect, **options: Any
) -> pd.DataFrame:
    """Parse records that all have as many fields as there are names.

    Raises
    ------
    ParserError
        For another number of fields.

    """
    delimiter = dialect.delimiter.encode()[0]
    ends = RecordScan(delimiter).ends(body)
    places = RecordScan(delimiter).outside_quotes(body, delimiter)
    bounds = np.concatenate([[0], ends, [len(body)]])
    fields = np.diff(np.searchsorted(places, bounds)) + 1
    # pandas fills up a short record with nulls, and takes a long one, where it is the first, for a
    # sign that the first column is an index.
    for place in np.flatnonzero(fields != len(names)):
        if not dialect.is_blank(body[bounds[place] : bounds[place + 1]]):
            msg = f"{fields[place]} fields where {len(names)} are expected"
            raise ParserError(msg)
    return read_csv(_with_line_feeds(body, ends), names, dialect, **options)


def _with_line_feeds(body: bytes, ends: Positions) -> bytes:
    """Return records that end in carriage returns alone with line feeds instead.

    Behind an empty line of that kind, pandas overlooks a delimiter.
    """
    if b"\r" not in body:
        return body
    cells = np.frombuffer(body, np.uint8).copy()
    last = ends - 1
    cells[last[cells[last] == CR]] = LF
    return cells.tobytes()
