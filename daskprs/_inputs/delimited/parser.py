"""Records of delimited text as a frame: by Arrow where it reads as pandas does, else by pandas.

Arrow reads text several times as fast, and short numbers as fast. It is tried first, with all types
given. Text that it rejects, and the few forms that it reads differently from pandas, are left to
pandas, which then decides what is an error. A property test compares the two.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.errors import ParserError
from pyarrow import csv as arrow_csv

from daskprs._arrow.arrow_pandas import EXACT
from daskprs._inputs.delimited.null_words import DEFAULT, EMPTY, NULLS, NullWords
from daskprs._inputs.delimited.schema import BOOL_OR_NULL, TEXT, integer_in
from daskprs._inputs.source.given_types import beside_nulls, way_to_type
from daskprs._inputs.text.records import CR, LF, RecordScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daskprs._inputs.delimited.schema import Schema, TextColumn
    from daskprs._inputs.text.records import Positions, Records

REFUSALS = (ValueError, TypeError, OverflowError)
"""Errors of pandas for text that does not fit its types (`ParserError` is a `ValueError`)."""
IS_PANDAS_2 = pd.__version__ < "3"
ROUND_TRIP: dict[str, Any] = {"float_precision": "round_trip"} if IS_PANDAS_2 else {}
"""Every number is read as the float that is nearest to it, as later versions do by default."""
BOOLEANS = {True: ["True", "TRUE", "true"], False: ["False", "FALSE", "false"]}
HOLDS_ARROW_TEXT = isinstance(pd.Series(["text"]).dtype, pd.StringDtype)
"""From pandas 3 on, text is a type of its own; before, it was Python objects."""
SHOWN = 200


class Dialect(NamedTuple):
    """The syntax of delimited text."""

    delimiter: str
    encoding: str
    multi_line: bool
    empty_as_string: bool = False
    """Whether no cell of a column of text is null."""
    null_words: NullWords = DEFAULT
    decimal: str = "."
    thousands: str | None = None

    @property
    def is_known_to_arrow(self) -> bool:
        """Whether Arrow reads numbers and nulls of this dialect as pandas does."""
        return not self.null_words.has_own and self.decimal == "." and self.thousands is None

    def new_scan(self) -> RecordScan:
        """Return a scan that finds record ends, from a record start."""
        return RecordScan(self.delimiter.encode()[0] if self.multi_line else None)

    def starts_of_rows(self, body: bytes) -> list[int]:
        """Return where in records each row begins."""
        ends = self.new_scan().ends(body).tolist()
        bounds = pairwise([0, *ends, len(body)])
        return [start for start, stop in bounds if not self.is_blank(body[start:stop])]

    def nulls(self, columns: Iterable[TextColumn]) -> dict[str, Any]:
        """Return pandas' options for nulls, where its default words must not apply."""
        if not self.empty_as_string:
            return self.null_words.options(column.name for column in columns)
        words = {column.name: list(NULLS) for column in columns if not column.is_text}
        return {"keep_default_na": False, "na_values": words}

    def is_blank(self, record: bytes) -> bool:
        """Say whether pandas leaves a line out."""
        return not record.strip(self.blanks)

    @property
    def blanks(self) -> bytes:
        """The bytes of the lines that pandas leaves out."""
        return b" \t\r\n".replace(self.delimiter.encode(), b"")


class DelimitedParser:
    """Parses bodies of whole records.

    The schema has the types of all columns. The values of columns that are not `selected` do not
    matter.
    """

    def __init__(self, dialect: Dialect, schema: Schema, selected: list[str]) -> None:
        self.dialect = dialect
        self.schema = schema
        self.selected = selected
        self._are_selected = frozenset(selected)
        delimiter = dialect.delimiter
        self._quoted = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._unquoted = arrow_csv.ParseOptions(delimiter=delimiter, quote_char=False)
        is_utf8 = codecs.lookup(dialect.encoding).name == "utf-8"
        self._decode = None if is_utf8 else dialect.encoding

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the options of Arrow: a copy of them calls a handler that is not there."""
        return DelimitedParser, (self.dialect, self.schema, self.selected)

    def parse(self, body: bytes, names: Sequence[str], *, is_open: bool = False) -> pd.DataFrame:
        """Return a frame with the wanted columns among those that these records have.

        Text that does not fit raises one of `REFUSALS`, as do records that end inside quotes
        (`is_open`): `find_bad_record` says which record it is.
        """
        if not names:
            return pd.DataFrame()  # all files are blank
        if body.startswith(codecs.BOM_UTF8):
            body = b"\n" + body  # a mark has a meaning only at the beginning of a file
        wanted = [self.schema[name] for name in names if name in self._are_selected]
        frame = None if is_open else self.by_arrow(body, names, wanted)
        return self.by_pandas(body, names, wanted) if frame is None else frame

    def by_arrow(
        self, body: bytes, names: Sequence[str], wanted: Sequence[TextColumn]
    ) -> pd.DataFrame | None:
        """Return a frame with the wanted columns, or None where pandas has to read them."""
        types = {column.name: _arrow_type(column) for column in wanted}
        # A line of a single column may be blank, which pandas leaves out.
        is_odd = not wanted or None in types.values() or len(names) == 1
        if is_odd or not HOLDS_ARROW_TEXT or not self.dialect.is_known_to_arrow:
            return None
        if any(map(pa.types.is_integer, types.values())) and _may_hold_hexadecimal(body):
            return None
        try:
            table = self._table(body, names, types)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        is_odd = any(table[one.name].null_count for one in wanted if not one.takes_null)
        if is_odd or (may_hold_nulls(body) and any(_has_nan(cells) for cells in table.columns)):
            return None
        frame: pd.DataFrame = table.to_pandas(use_threads=False)
        if any(column.is_whole and column.may_be_rounded(frame[column.name]) for column in wanted):
            return None
        for column in wanted:
            if column.final is not None or column.is_parsed_as(BOOL_OR_NULL):
                frame[column.name] = column.fit(frame[column.name])
        return frame

    def by_pandas(
        self, body: bytes, names: Sequence[str], wanted: Sequence[TextColumn]
    ) -> pd.DataFrame:
        """Return the same frame for any text, whether or not Arrow can read it."""
        given = {column.name: column.parser_type for column in wanted}
        given = {name: dtype for name, dtype in given.items() if dtype is not None}
        nulls = self.dialect.nulls(wanted)
        frame = read_records(body, names, self.dialect, dtype=given, **nulls)
        floats = {one.name: one.parsed for one in wanted if _are_unseen_floats(one, frame, body)}
        if floats:
            frame = read_records(body, names, self.dialect, dtype=given | floats, **nulls)
        for column in wanted:
            if column.may_be_rounded(frame[column.name]):
                as_text = given | {column.name: TEXT}
                cells = read_records(body, names, self.dialect, dtype=as_text, **nulls)
                column.check_written(cells[column.name], self.dialect.thousands)
        fitted = {column.name: column.fit(frame[column.name]) for column in wanted}
        return pd.DataFrame(fitted, index=frame.index)

    def _table(self, body: bytes, names: Sequence[str], types: dict[str, pa.DataType]) -> pa.Table:
        text = body if self._decode is None else body.decode(self._decode).encode()
        nulls = self.dialect.null_words
        texts = [name for name, type_ in types.items() if type_ == pa.large_string()]
        has_own = any(nulls.of(name) != nulls.default for name in texts)
        words = EMPTY if nulls.default == NULLS and not may_hold_nulls(body) else nulls.default
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(
                column_names=list(names), use_threads=False, block_size=len(text) + 1
            ),
            parse_options=self._quoted if b'"' in body else self._unquoted,
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(types),
                column_types=types,
                null_values=words,
                true_values=BOOLEANS[True],
                false_values=BOOLEANS[False],
                strings_can_be_null=not (self.dialect.empty_as_string or has_own),
            ),
        )
        for name in texts if has_own else ():
            place = table.column_names.index(name)
            table = table.set_column(place, name, _with_nulls(table[name], nulls.of(name)))
        return table


def _arrow_type(column: TextColumn) -> pa.DataType | None:
    """Return the type that Arrow reads a column as; None where it cannot."""
    if column.is_parsed_as(TEXT):
        return pa.large_string()
    if column.is_parsed_as(BOOL_OR_NULL):
        return pa.bool_()
    if isinstance(column.parsed, np.dtype) and column.parsed.kind in "iub":
        return pa.from_numpy_dtype(column.parsed)
    return pa.float64() if column.parsed == np.float64 else None


def _may_hold_hexadecimal(body: bytes) -> bool:
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


def _with_nulls(cells: pa.ChunkedArray, words: Sequence[str]) -> pa.ChunkedArray:
    """Return text with nulls for these words."""
    is_null = pc.is_in(cells, pa.array(words, cells.type))
    return pc.if_else(is_null, pa.scalar(None, cells.type), cells)


def _has_nan(cells: pa.ChunkedArray) -> bool:
    """Say whether Arrow has read a NaN, which pandas has for null."""
    return pa.types.is_floating(cells.type) and bool(pc.any(pc.is_nan(cells)).as_py())


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
    unsafe = _unsafe_numbers(dialect, options.get("dtype", {}))
    if unsafe:
        options["dtype"] = options["dtype"] | dict.fromkeys(unsafe, TEXT)
    frame: pd.DataFrame = pd.read_csv(
        io.BytesIO(body),
        header=None,
        names=list(names),
        sep=dialect.delimiter,
        encoding=dialect.encoding,
        decimal=dialect.decimal,
        thousands=dialect.thousands,
        low_memory=False,
        **ROUND_TRIP,
        **options,
    )
    for name, dtype in unsafe.items():
        frame[name] = _as_numbers(frame[name], dialect, dtype)
    return frame


def _unsafe_numbers(dialect: Dialect, dtypes: dict[str, Any]) -> dict[str, Any]:
    """Return the types of nullable numbers that pandas does not read by itself.

    With a mark for thousands, pandas 3 takes 1.000 for 1 where the type has 8 bits; pandas 2
    refuses marks, and takes 300 for 44 there.
    """
    is_marked = dialect.decimal != "." or dialect.thousands is not None
    kinds = "iuf" if is_marked else "iu" if IS_PANDAS_2 else ""
    known = {name: pd.api.types.pandas_dtype(dtype) for name, dtype in dtypes.items()}
    return {
        name: dtype
        for name, dtype in known.items()
        if not isinstance(dtype, np.dtype) and dtype.kind in kinds
    }


def _as_numbers(cells: pd.Series, dialect: Dialect, dtype: Any) -> pd.Series:
    """Return text as nullable numbers, as pandas 3 reads it without marks."""
    texts = cells.map(lambda text: _without_marks(text, dialect), na_action="ignore")
    values = texts.to_numpy(object)  # nulls alone would be floats
    numbers = pd.Series(pd.to_numeric(values, dtype_backend="numpy_nullable"))
    if dtype.kind in "iu" and numbers.dtype.kind in "iu" and numbers.count():
        limits = np.iinfo(dtype.numpy_dtype)
        if numbers.min() < limits.min or numbers.max() > limits.max:
            msg = f"beyond {dtype}"
            raise ValueError(msg)
    kind = dtype.construct_array_type()
    return pd.Series(kind._from_sequence(numbers.array, dtype=dtype), cells.index)  # noqa: SLF001 - it refuses fractions


def _without_marks(text: str, dialect: Dialect) -> str:
    """Return the text of a number without the marks that a dialect has in it."""
    whole, mark, rest = text.partition(dialect.decimal)
    if dialect.thousands is not None:
        whole = re.sub(f"(?<=[0-9]){re.escape(dialect.thousands)}+", "", whole)
    return f"{whole}.{rest}" if mark else whole


def read_records(
    body: bytes, names: Sequence[str], dialect: Dialect, **options: Any
) -> pd.DataFrame:
    """Parse records; another number of fields than of names is a `ParserError`."""
    delimiter = dialect.delimiter.encode()[0]
    ends = RecordScan(delimiter).ends(body)
    places = RecordScan(delimiter).outside_quotes(body, delimiter)
    bounds = np.concatenate([[0], ends, [len(body)]])
    fields = np.diff(np.searchsorted(places, bounds)) + 1
    # pandas fills up a short record with nulls, and takes a long one, where it is the first, for a
    # sign that the first column is an index.
    for place in np.flatnonzero(fields != len(names)):
        if not dialect.is_blank(body[bounds[place] : bounds[place + 1]]):
            msg = _fields(fields[place], names)
            raise ParserError(msg)
    return read_csv(_with_line_feeds(body, ends), names, dialect, **options)


def _fields(count: int, names: Sequence[str]) -> str:
    """Say that a record has another number of fields than there are columns."""
    fields = "1 field" if count == 1 else f"{count} fields"
    return f"{fields} where {len(names)} {'is' if len(names) == 1 else 'are'} expected"


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


# ---- records that do not fit ----


def find_bad_record(
    parser: DelimitedParser, records: Records, names: Sequence[str]
) -> tuple[int, str]:
    """Return the offset of the first rejected record, and what is wrong with it."""
    body = records.body

    def error_of(start: int, stop: int) -> Exception | None:
        try:
            parser.parse(body[start:stop], names, is_open=records.is_open and stop == len(body))
        except REFUSALS as error:
            return error
        return None

    bounds = sorted({0, *parser.dialect.new_scan().ends(body).tolist(), len(body)})
    low, high = 0, len(bounds) - 1  # records before low fit, those before high do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error_of(0, bounds[middle]) else (middle, high)
    start, stop = bounds[low], bounds[high]
    return start, _what_is_wrong(parser, body[start:stop], names, error_of(start, stop))


def _what_is_wrong(
    parser: DelimitedParser, record: bytes, names: Sequence[str], error: Exception | None
) -> str:
    dialect = parser.dialect
    try:
        text = record.decode(dialect.encoding)
    except UnicodeDecodeError as undecoded:
        return (
            f"{record[:SHOWN]!r} is not in the encoding {dialect.encoding}: "
            f"{undecoded.reason} at byte {undecoded.start} of it. Say encoding= if it is "
            "another one."
        )
    shown = text.strip("\r\n")[:SHOWN]
    scan = RecordScan(dialect.delimiter.encode()[0])
    scan.skip(record)
    if scan.is_quoted:
        return f"a quoted field of this record is never closed: {shown!r}."
    cells = _cells(text, dialect.delimiter)
    if len(cells) not in (0, len(names)):
        return f"{_fields(len(cells), names)}: {shown!r}."
    bad_cell = _bad_cell(parser, cells, names)
    return bad_cell or f"{shown!r} does not fit: {error or 'its types differ from those before'}."


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:  # a field longer than the module allows
        return []


def _bad_cell(parser: DelimitedParser, cells: list[str], names: Sequence[str]) -> str | None:
    """Say which cell of a record does not fit; None where each of them fits alone."""
    dialect = parser.dialect._replace(encoding="utf-8")
    alone = DelimitedParser(dialect, parser.schema, parser.selected)
    for value, name in zip(cells, names, strict=False):
        quoted = '"' + value.replace('"', '""') + '"'
        try:
            alone.parse(f"{quoted}\n".encode(), [name])
        except REFUSALS:
            shown = repr(value[:SHOWN]) if value else "nothing"
            number = integer_in(value[:SHOWN], dialect.thousands) or 0
            if parser.schema[name].is_whole and abs(number) > EXACT:
                return f"column {name!r} holds {shown}. {beside_nulls(name, number)}"
            return (
                f"column {name!r} holds {shown}, which does not fit {parser.schema[name].kind}. "
                f"The types are fixed by samples before the start: say {way_to_type(name)} if it "
                "is another one."
            )
    return None
