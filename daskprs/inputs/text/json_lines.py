"""JSON lines: one object on each line, plain or compressed."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from daskprs.errors import InputError, LoadError
from daskprs.inputs.source.columns import check_columns
from daskprs.inputs.text.file import EndsEarly, TextFile, encoding_of_bytes, size_of
from daskprs.inputs.text.records import LineScan, TextRecords
from daskprs.inputs.text.source import OpenText, TextFiles, TextSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.files.path_columns import PathValues
    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.text.records import Records

MISFITS = (ValueError, TypeError, OverflowError)
WHOLE_BYTES = 4 << 20
"""An input up to this size is its own sample."""
PART_BYTES = 512 << 10
FILES = 8
SHOWN = 100
SURROGATE = re.compile("[\ud800-\udfff]")
OBJECT = "object"
FITTING: dict[Any, set[type]] = {
    "int64": {int},
    "bool": {bool},
    "str": {str, type(None)},
    "float64": {float, int, type(None)},
}
"""Types of JSON values that fit each column type."""
DECODER = json.JSONDecoder()
TOO_DEEP = "nested too deeply to be read:"


class JsonLinesSource(TextSource):
    """Cuts JSON lines.

    Columns and their types come from samples: keys in order of first appearance, integers that
    are missing or null somewhere as floats, nested values as Python objects.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, columns, types, encoding.

    """

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        text = TextFiles(list(files), [0] * len(files), reading.encoding, LineScan)
        super().__init__(files, reading, text)
        sample = pd.DataFrame(_sampled(files, reading.encoding))
        check_columns(list(reading.dtypes), list(sample.columns), "dtypes")
        wanted = self._paths.of_files
        check_columns(wanted or (), list(sample.columns), "columns")
        names = list(map(str, sample.columns))
        dtypes = {name: reading.dtypes.get(name, _dtype_of(sample[name])) for name in names}
        self._rows = JsonRowOptions(
            [self._paths.of_file(file.path) for file in files],
            dtypes,
            list(wanted or names),
            reading.drop_invalid_lines,
        )
        self.columns = self._paths.names_with(self._rows.selected)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        types = {name: str(dtype) for name, dtype in self._rows.dtypes.items()}
        return self._fingerprint("json lines", types)

    def reader(self) -> JsonLinesReader:
        """Return the reader for the agents."""
        return JsonLinesReader(self._text, self._rows)

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().frame_of([], 0)


class JsonRowOptions(NamedTuple):
    """How objects become rows."""

    carried: list[PathValues]
    """What the path of each file carries."""
    dtypes: dict[str, Any]
    selected: list[str]
    drops: bool = False
    """Whether lines that are no JSON are left out."""


class JsonLinesReader:
    """Parses the lines of a range."""

    def __init__(self, text: TextFiles, rows: JsonRowOptions) -> None:
        self._open = OpenText(text)
        self._encoding = encoding_of_bytes(text.encoding)
        self._values, self._dtypes, self._selected, self._drops = rows
        self._place = 0

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index."""
        self._place = mini_batch.piece[0]
        records = self._open.load(mini_batch.piece)
        try:
            return self._frame(records)
        except LoadError as error:
            error.items = sum(bool(line.strip()) for line in records.body.split(b"\n"))
            raise

    def frame_of(self, rows: list[dict[str, Any]], place: int) -> pd.DataFrame:
        """Return rows as a frame with the columns and types of the whole input."""
        typed = {
            name: _column([row.get(name) for row in rows], self._dtypes[name])
            for name in self._selected
        }
        return self._values[place].put_on_frame(pd.DataFrame(typed, columns=self._selected))

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def keep_places(self) -> None:
        """Make ready for `offsets` after each mini-batch."""
        self._open.keeps = True

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return where in its file each row of a mini-batch begins."""
        records = self._open.load(mini_batch.piece)
        return [at for at, line in self._lines(records) if self._is_row(line)]

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return the file and line of a row, for people."""
        return self._open.line_at(mini_batch.piece[0], self.offsets(mini_batch)[row])

    def _frame(self, records: Records) -> pd.DataFrame:
        rows = clean_rows(records.body, self._encoding, self._dtypes.keys())
        if rows is None:
            rows = self._rows_one_by_one(records)
        try:
            return self.frame_of(rows, self._place)
        except MISFITS as error:
            raise self._misfit(records, error) from None

    def _rows_one_by_one(self, records: Records) -> list[dict[str, Any]]:
        return [self._row(line, at) for at, line in self._lines(records) if self._is_row(line)]

    def _lines(self, records: Records) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, and where they begin."""
        at = records.start
        for line in records.body.split(b"\n"):
            if line.strip():
                yield at, line
            at += len(line) + 1

    def _is_row(self, line: bytes) -> bool:
        """Say whether a line is a row, or one that is left out.

        A line that is nested too deeply is JSON all the same: it is refused as a row.
        """
        row = parsed(line, self._encoding) if self._drops else {}
        return isinstance(row, dict) or row == TOO_DEEP

    def _row(self, line: bytes, at: int) -> dict[str, Any]:
        row = parsed(line, self._encoding)
        if not isinstance(row, dict):
            msg = f"{self._where(at)}: {row} {line[:SHOWN]!r}"
            raise LoadError(msg)
        unknown = [name for name in row if name not in self._dtypes]
        if unknown and len(self._selected) == len(self._dtypes):
            msg = (
                f"{self._where(at)}: the key {unknown[0]!r} was in no sample, so that it is no "
                f"column. Say dtypes={{{unknown[0]!r}: ...}} after it has come up early, or name "
                "the wanted keys by columns=."
            )
            raise LoadError(msg)
        return row

    def _misfit(self, records: Records, cause: Exception) -> LoadError:
        for at, line in self._lines(records):
            row = parsed(line, self._encoding)
            name = self._first_misfit(row) if isinstance(row, dict) else None
            if name is not None and isinstance(row, dict):
                return LoadError(
                    f"{self._where(at)}: column {name!r} holds {row.get(name)!r}, which is no "
                    f"{self._dtypes[name]}. Say dtypes={{{name!r}: ...}} if it is another type."
                )
        return LoadError(f"{self._where(records.start)} or after it: {cause}")

    def _first_misfit(self, row: dict[str, Any]) -> str | None:
        for name in self._selected:
            try:
                _column([row.get(name)], self._dtypes[name])
            except MISFITS:
                return name
        return None

    def _where(self, at: int) -> str:
        return self._open.line_at(self._place, at)


def clean_rows(body: bytes, encoding: str, known: AbstractSet[str]) -> list[dict[str, Any]] | None:
    """Return the objects on all lines; None if one is odd, so that each needs a check.

    This is twice as fast as `parsed`: beyond JSON itself, each line gets only a few checks.
    """
    if b"\\ud" in body or b"\\uD" in body:
        return None
    rows: list[dict[str, Any]] = []
    try:
        for line in body.decode(encoding).split("\n"):
            text = line.strip(" \t\r")
            if text:
                row, end = DECODER.raw_decode(text)
                if type(row) is not dict or end != len(text) or not row.keys() <= known:
                    return None
                rows.append(row)
    except (ValueError, RecursionError):
        return None
    return rows


def parsed(line: bytes, encoding: str) -> dict[str, Any] | str:
    """Return the object on a line, or what is wrong with it."""
    try:
        row = json.loads(line.removeprefix(codecs.BOM_UTF8).decode(encoding))
    except UnicodeDecodeError as error:
        return f"not in the encoding {encoding} ({error.reason}):"
    except ValueError as error:
        return f"no JSON ({error}):"
    except RecursionError:
        return TOO_DEEP
    try:
        is_halved = b"\\u" in line and SURROGATE.search(json.dumps(row, ensure_ascii=False))
    except RecursionError:
        return TOO_DEEP
    if is_halved:
        return "half a surrogate pair, which is no character:"
    return row if isinstance(row, dict) else "no JSON object:"


def _sampled(files: Sequence[InputFile], encoding: str) -> list[dict[str, Any]]:
    """Return rows from the beginnings of files, or all rows of a small input."""
    sizes = [size_of(file, encoding) for file in files]
    whole = all(size is not None for size in sizes) and sum(filter(None, sizes)) <= WHOLE_BYTES
    step = 1 if whole else max(1, len(files) // FILES)
    rows: list[dict[str, Any]] = []
    for file in files[::step]:
        text = TextFile(file, encoding)
        records = TextRecords(text, 0, LineScan)
        try:
            body = records.starting_in(0, WHOLE_BYTES if whole else PART_BYTES).body
        except EndsEarly as short:
            body = records.ended_before(short.end)
        except (LoadError, OSError) as error:
            raise InputError(str(error)) from error
        finally:
            text.close()
        rows.extend(
            row
            for line in body.split(b"\n")
            if line.strip() and isinstance(row := parsed(line, encoding_of_bytes(encoding)), dict)
        )
    return rows


def _dtype_of(column: pd.Series) -> str:
    if column.dtype == object:  # before pandas 3, text is so, too
        return "str" if set(map(type, column.dropna())) == {str} else OBJECT
    return "str" if isinstance(column.dtype, pd.StringDtype) else str(column.dtype)


def _column(values: list[Any], dtype: Any) -> pd.Series:
    """Return values as a column; reject values that the type would change."""
    if dtype == OBJECT:
        return pd.Series(values, dtype=object)
    if isinstance(dtype, str) and dtype in FITTING and not set(map(type, values)) <= FITTING[dtype]:
        msg = f"a value is no {dtype}"
        raise ValueError(msg)
    if str(dtype).startswith("datetime64"):
        dates: pd.Series = pd.to_datetime(pd.Series(values, dtype=object)).astype(dtype)
        return dates
    column: pd.Series = pd.Series(values, dtype=dtype)
    return column
