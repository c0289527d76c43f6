"""JSON lines: one object on each line, plain or compressed."""

from __future__ import annotations

import codecs
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs.core.mini_batch import MiniBatch
from daskprs.errors import InputError, LoadError
from daskprs.inputs.columns import check_columns
from daskprs.inputs.path_columns import PathColumns, PathValues
from daskprs.inputs.sizes import bytes_per_mini_batch
from daskprs.inputs.text_file import TextFile, size_of
from daskprs.inputs.text_records import LineScan, TextRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading
    from daskprs.inputs.source import Unit

WHOLE_BYTES = 4 << 20
"""An input up to this size is its own sample."""
PART_BYTES = 512 << 10
FILES = 8
SHOWN = 100
OBJECT = "object"


class JsonLinesSource:
    """Cuts JSON lines into byte ranges; a row belongs to the range that it starts in.

    Columns and their types come from samples: keys in order of first appearance, integers that
    are missing or null somewhere as floats, nested values as Python objects.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, columns, types, encoding.

    """

    unit: Unit = "row"

    def __init__(self, files: Sequence[InputFile], reading: Reading) -> None:
        self._files = files
        self._encoding = reading.encoding
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        self._paths = PathColumns(files, reading)
        sample = pd.DataFrame(_sampled(files, reading.encoding))
        check_columns(list(reading.dtypes), list(sample.columns), "dtypes")
        check_columns(reading.columns or (), list(sample.columns), "columns")
        self._dtypes = {
            name: reading.dtypes.get(name, _dtype_of(sample[name])) for name in sample.columns
        }
        self._selected = list(reading.columns or sample.columns)
        self.columns = list(self.meta().columns)

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield byte ranges; of a compressed file, as it is read."""
        index = 0
        for place, file in enumerate(self._files):
            for start, stop in self._ranges(file):
                yield MiniBatch(
                    index=index,
                    piece=(place, start, stop),
                    identity=f"{file.identity}|{start}-{stop}",
                    size_bytes=stop - start,
                    label=f"{file.name}, bytes {start}-{stop}",
                )
                index += 1

    def count(self) -> int | None:
        """Return how many ranges there are; None where a stream has to be read for it."""
        sizes = [size_of(file, self._encoding) for file in self._files]
        known = [size for size in sizes if size is not None]
        return sum(-(-size // self._size) for size in known) if len(known) == len(sizes) else None

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(file.identity.encode("utf-8", "surrogateescape") + b"\n")
        return {
            "kind": "json lines",
            "files": digest.hexdigest(),
            "size": self._size,
            "schema": {name: str(dtype) for name, dtype in self._dtypes.items()},
        }

    def reader(self) -> JsonLinesReader:
        """Return the reader for the agents."""
        return JsonLinesReader(
            [file.path for file in self._files],
            [self._paths.of_file(file.path) for file in self._files],
            self._encoding,
            self._dtypes,
            self._selected,
        )

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().frame_of([], 0)

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return what the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def _ranges(self, file: InputFile) -> Iterator[tuple[int, int]]:
        size = size_of(file, self._encoding)
        if size is not None:
            for start in range(0, size, self._size):
                yield start, min(start + self._size, size)
            return
        text = TextFile(file.path, self._encoding)
        try:
            yield from TextRecords(text, 0, LineScan).cut(self._size)
        finally:
            text.close()


class JsonLinesReader:
    """Parses the lines of a range."""

    def __init__(
        self,
        paths: list[str],
        values: list[PathValues],
        encoding: str,
        dtypes: dict[str, Any],
        selected: list[str],
    ) -> None:
        self._paths = paths
        self._values = values
        self._encoding = encoding
        self._dtypes = dtypes
        self._selected = selected
        self._place = -1
        self._file: TextFile | None = None
        self._records: TextRecords | None = None

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index."""
        place, start, stop = mini_batch.piece
        records = self._records_of(place).starting_in(start, stop)
        rows = []
        at = records.start
        for line in records.body.split(b"\n"):
            if line.strip():
                rows.append(self._row(line, at))
            at += len(line) + 1
        try:
            return self.frame_of(rows, place)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._misfit(records.body, records.start, error) from None

    def frame_of(self, rows: list[dict[str, Any]], place: int) -> pd.DataFrame:
        """Return rows as a frame with the columns and types of the whole input."""
        typed = {
            name: _column([row.get(name) for row in rows], self._dtypes[name])
            for name in self._selected
        }
        frame = pd.DataFrame(typed, columns=self._selected)
        return self._values[place].put_on_frame(frame) if self._values else frame

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = self._records = None

    def _records_of(self, place: int) -> TextRecords:
        if self._records is None or place != self._place:
            self.close()
            self._file = TextFile(self._paths[place], self._encoding)
            self._records = TextRecords(self._file, 0, LineScan)
            self._place = place
        return self._records

    def _row(self, line: bytes, at: int) -> dict[str, Any]:
        row = parsed(line, self._encoding)
        if not isinstance(row, dict):
            msg = f"{self._where(at)}: {row} {line[:SHOWN]!r}"
            raise LoadError(msg)
        unknown = [name for name in row if name not in self._dtypes]
        if unknown:
            msg = (
                f"{self._where(at)}: the key {unknown[0]!r} was in no sample, so that it is no "
                f"column. Say dtypes={{{unknown[0]!r}: ...}} after it has come up early, or name "
                "the wanted keys by columns=."
            )
            if unknown[0] in self._selected or len(self._selected) == len(self._dtypes):
                raise LoadError(msg)
        return row

    def _misfit(self, body: bytes, start: int, cause: Exception) -> LoadError:
        at = start
        for line in body.split(b"\n"):
            row = parsed(line, self._encoding) if line.strip() else ""
            name = self._first_misfit(row) if isinstance(row, dict) else None
            if name is not None and isinstance(row, dict):
                return LoadError(
                    f"{self._where(at)}: column {name!r} holds {row.get(name)!r}, which is no "
                    f"{self._dtypes[name]}. Say dtypes={{{name!r}: ...}} if it is another type."
                )
            at += len(line) + 1
        return LoadError(f"{self._paths[self._place]}, from byte {start}: {cause}")

    def _first_misfit(self, row: dict[str, Any]) -> str | None:
        for name in self._selected:
            try:
                _column([row.get(name)], self._dtypes[name])
            except (ValueError, TypeError, OverflowError):
                return name
        return None

    def _where(self, at: int) -> str:
        line = 1 if self._file is None else self._file.read(0, at).count(b"\n") + 1
        return f"{self._paths[self._place]}, line {line}"


def parsed(line: bytes, encoding: str) -> dict[str, Any] | str:
    """Return the object on a line, or what is wrong with it."""
    try:
        row = json.loads(line.removeprefix(codecs.BOM_UTF8).decode(encoding))
    except UnicodeDecodeError as error:
        return f"not in the encoding {encoding} ({error.reason}):"
    except ValueError as error:
        return f"no JSON ({error}):"
    return row if isinstance(row, dict) else "no JSON object:"


def _sampled(files: Sequence[InputFile], encoding: str) -> list[dict[str, Any]]:
    """Return rows from the beginnings of files, or all rows of a small input."""
    sizes = [size_of(file, encoding) for file in files]
    whole = all(size is not None for size in sizes) and sum(filter(None, sizes)) <= WHOLE_BYTES
    step = 1 if whole else max(1, len(files) // FILES)
    rows: list[dict[str, Any]] = []
    for file in files[::step]:
        text = TextFile(file.path, encoding)
        try:
            stop = WHOLE_BYTES if whole else PART_BYTES
            body = TextRecords(text, 0, LineScan).starting_in(0, stop).body
        except (LoadError, OSError) as error:
            raise InputError(str(error)) from error
        finally:
            text.close()
        rows.extend(
            row
            for line in body.split(b"\n")
            if line.strip() and isinstance(row := parsed(line, encoding), dict)
        )
    return rows


def _dtype_of(column: pd.Series) -> str:
    if column.dtype == object:
        return OBJECT
    return "str" if isinstance(column.dtype, pd.StringDtype) else str(column.dtype)


def _column(values: list[Any], dtype: Any) -> pd.Series:
    """Return values as a column; what would be changed by it is refused."""
    if dtype == OBJECT:
        return pd.Series(values, dtype=object)
    if dtype in ("int64", "bool"):
        kind = int if dtype == "int64" else bool
        for value in values:
            if type(value) is not kind:
                msg = f"{value!r} is no {dtype}"
                raise ValueError(msg)
    if dtype == "str" and not all(value is None or isinstance(value, str) for value in values):
        msg = "a value is no text"
        raise ValueError(msg)
    if dtype == "float64" and any(isinstance(value, (str, bool)) for value in values):
        msg = "a value is no number"
        raise ValueError(msg)
    if str(dtype).startswith("datetime64"):
        dates: pd.Series = pd.to_datetime(pd.Series(values, dtype=object)).astype(dtype)
        return dates
    column: pd.Series = pd.Series(values, dtype=dtype)
    return column
