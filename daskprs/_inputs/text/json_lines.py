"""JSON lines: one object on each line, plain or compressed."""

from __future__ import annotations

import codecs
import json
import math
import re
from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import EXACT
from daskprs._arrow.exact_casts import MISFITS, Asked, is_text
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.given_types import (
    arrow_type_of,
    beside_nulls,
    converted,
    converted_text,
    is_moment,
    pandas_type,
    way_to_type,
)
from daskprs._inputs.text.file import (
    WHOLE_BYTES,
    EndsEarly,
    encoding_of_bytes,
    is_small,
    opened_to_sample,
)
from daskprs._inputs.text.records import LineScan, TextRecords
from daskprs._inputs.text.source import TextFiles, TextReader, TextSource
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.text.records import Records

PART_BYTES = 512 << 10
FILES = 8
SHOWN = 100
SURROGATE = re.compile("[\ud800-\udfff]")
OBJECT = "object"
FITTING: dict[Any, set[type]] = {
    "int64": {int},
    "uint64": {int},
    "bool": {bool},
    "str": {str, type(None)},
    "float64": {float, int, type(None)},
}
"""Types of JSON values that fit each column type that a sample suggests."""
DECODER = json.JSONDecoder()
BLANKS = b" \t\n\r\x0b\f"
TOO_DEEP = "nested too deeply to be read:"


class JsonLinesSource(TextSource):
    """Cuts JSON lines.

    Columns and their types come from samples: keys in order of first appearance, integers that
    are missing or null somewhere as floats, nested values as Python objects. A key that the options
    `columns` and `dtypes` both name is a column even if no sample has it.
    """

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        super().__init__(files, reading, [0] * len(files), LineScan, BLANKS)
        rows = _sampled(files, reading.encoding)
        sample = pd.DataFrame(rows)
        wanted = self._paths.of_files
        names = list(map(str, sample.columns))
        names += [name for name in wanted or () if name in reading.dtypes and name not in names]
        check_columns(list(reading.dtypes), names, "dtypes")
        check_columns(wanted or (), names, "columns")
        given = {name: pandas_type(name, dtype) for name, dtype in reading.dtypes.items()}
        self._dtypes = {
            name: given[name] if name in given else _dtype_of(sample[name]) for name in names
        }
        self._given = frozenset(given)
        self._whole = _of_integers(rows, self._dtypes) - self._given
        self._selected = list(wanted or names)
        self._takes_all = wanted is None
        self._drops_invalid = reading.drop_invalid_lines
        self.columns = self._paths.names_with(self._selected)
        texts = [name for name in self._selected if _is_text(self._dtypes[name])]
        self.object_types = self._paths.text_columns | dict.fromkeys(texts, pa.large_string())

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        types = {name: str(dtype) for name, dtype in self._dtypes.items()}
        return self._fingerprint("json lines", types)

    def reader(self) -> JsonLinesReader:
        """Return the reader for the agents."""
        return JsonLinesReader(
            self._text,
            self._dtypes,
            self._selected,
            self._given,
            self._whole,
            takes_all=self._takes_all,
            drops_invalid=self._drops_invalid,
        )


class JsonLinesReader(TextReader):
    """Parses the lines of a range; leaves out lines that are not JSON, if it `drops_invalid`.

    With `takes_all`, a key that is not a column is an error. Columns that are `whole` have floats
    only because integers are null: they hold no integer beyond `EXACT`.
    """

    def __init__(
        self,
        text: TextFiles,
        dtypes: dict[str, Any],
        selected: list[str],
        given: frozenset[str],
        whole: frozenset[str],
        *,
        takes_all: bool,
        drops_invalid: bool,
    ) -> None:
        super().__init__(text)
        self._takes_all = takes_all
        self._encoding = encoding_of_bytes(text.encoding)
        self._dtypes = dtypes
        self._selected = selected
        self._given = given
        self._whole = whole
        self._drops_invalid = drops_invalid

    def _frame(self, records: Records) -> pd.DataFrame:
        rows = clean_rows(records.body, self._encoding, self._dtypes.keys())
        if rows is None:
            rows = [self._row(line, at) for at, line in self._lines_of_rows(records)]
        try:
            typed = {
                name: self._column(name, [row.get(name) for row in rows]) for name in self._selected
            }
        except MISFITS as error:
            raise self._misfit(records, error) from None
        # Without columns, only an index counts the rows: `{}` is one, too.
        index = None if typed else range(len(rows))
        return pd.DataFrame(typed, index, self._selected)

    def _column(self, name: str, values: list[Any]) -> pd.Series:
        column = _column(values, self._dtypes[name])
        if name in self._whole and (column.abs() >= EXACT).any():
            large = next((one for one in values if type(one) is int and abs(one) > EXACT), None)
            if large is not None:
                raise ValueError(beside_nulls(name, large))
        return column

    def _starts(self, records: Records) -> list[int]:
        return [at for at, _ in self._lines_of_rows(records)]

    def _lines_of_rows(self, records: Records) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are rows, and where they begin; blank lines are none.

        A line that is nested too deeply is JSON all the same: it is refused as a row.
        """
        at = records.start
        for line in records.body.split(b"\n"):
            if line.strip():
                row = parsed(line, self._encoding) if self._drops_invalid else {}
                if isinstance(row, dict) or row == TOO_DEEP:
                    yield at, line
            at += len(line) + 1

    def _row(self, line: bytes, at: int) -> dict[str, Any]:
        row = parsed(line, self._encoding)
        if not isinstance(row, dict):
            msg = f"{self._line_at(at)}: {row} {line[:SHOWN]!r}"
            raise LoadError(msg)
        unknown = [name for name in row if name not in self._dtypes]
        if unknown and self._takes_all:
            msg = (
                f"{self._line_at(at)}: the key {unknown[0]!r} was in no sample, so that it is not "
                "a column. Name the wanted keys by columns=, and the type of one that no sample "
                f"has by {way_to_type(unknown[0])}."
            )
            raise LoadError(msg)
        return row

    def _misfit(self, records: Records, cause: Exception) -> LoadError:
        lines = [*self._lines_of_rows(records)]
        rows = [parsed(line, self._encoding) for _, line in lines]
        columns = {
            name: [row.get(name) if isinstance(row, dict) else None for row in rows]
            for name in self._selected
        }
        found = [
            (self._first_misfit(name, values), name)
            for name, values in columns.items()
            if not self._fits(name, values)
        ]
        if not found:
            return LoadError(f"{self._line_at(records.start)} or after it: {cause}")
        place, name = min(found, key=itemgetter(0))
        value = columns[name][place]
        where = f"{self._line_at(lines[place][0])}: column {name!r} holds {value!r}"
        if name in self._whole and type(value) is int:
            return LoadError(f"{where}. {beside_nulls(name, value)}")
        advice = (
            f"Give it another type in dtypes, or say {way_to_type(name, OBJECT)} and "
            "convert the column in run()."
            if name in self._given
            else f"Say {way_to_type(name)} if it is another type."
        )
        return LoadError(f"{where}, which does not fit {self._dtypes[name]}. {advice}")

    def _first_misfit(self, name: str, values: list[Any]) -> int:
        """Return the first value that does not fit, alone or beside those before it."""
        places = range(len(values) - 1)
        return bisect_left(places, True, key=lambda at: not self._fits(name, values[: at + 1]))

    def _fits(self, name: str, values: list[Any]) -> bool:
        try:
            self._column(name, values)
        except MISFITS:
            return False
        return True


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
    """Return the object on a line, or the reason why there is none."""
    try:
        row = json.loads(line.removeprefix(codecs.BOM_UTF8).decode(encoding))
    except UnicodeDecodeError as error:
        return f"not in the encoding {encoding} ({error.reason}):"
    except ValueError as error:
        return f"not JSON ({error}):"
    except RecursionError:
        return TOO_DEEP
    try:
        is_halved = b"\\u" in line and SURROGATE.search(json.dumps(row, ensure_ascii=False))
    except RecursionError:
        return TOO_DEEP
    if is_halved:
        return "half a surrogate pair, which is not a character:"
    return row if isinstance(row, dict) else "not a JSON object:"


def _sampled(files: Sequence[InputFile], encoding: str) -> list[dict[str, Any]]:
    """Return rows from the beginnings of files, or all rows of a small input."""
    whole = is_small(files, encoding)
    step = 1 if whole else max(1, len(files) // FILES)
    rows: list[dict[str, Any]] = []
    for file in files[::step]:
        with opened_to_sample(file, encoding) as text:
            records = TextRecords(text, 0, LineScan)
            try:
                body = records.starting_in(0, WHOLE_BYTES if whole else PART_BYTES).body
            except EndsEarly as short:
                body = records.ended_before(short.end)
        rows.extend(
            row
            for line in body.split(b"\n")
            if line.strip() and isinstance(row := parsed(line, encoding_of_bytes(encoding)), dict)
        )
    return rows


def _of_integers(rows: list[dict[str, Any]], dtypes: dict[str, Any]) -> frozenset[str]:
    """Return the columns of floats in which all values of a sample are integers or null."""
    floats = [name for name, dtype in dtypes.items() if dtype == "float64"]
    kinds = {name: {type(row.get(name)) for row in rows} for name in floats}
    return frozenset(name for name in floats if kinds[name] <= {int, type(None)})


def _dtype_of(column: pd.Series) -> str:
    if column.dtype == object:  # before pandas 3, text is so, too
        return "str" if set(map(type, column.dropna())) == {str} else OBJECT
    return "str" if isinstance(column.dtype, pd.StringDtype) else str(column.dtype)


def _is_text(dtype: Any) -> bool:
    type_ = arrow_type_of(pd.api.types.pandas_dtype(dtype))
    return type_ is not None and is_text(type_)


def _column(values: list[Any], dtype: Any) -> pd.Series:
    """Return values as a column; reject values that the type would change.

    The type is text where a sample suggests it, and one of pandas where `dtypes` gives it.
    """
    if dtype == OBJECT:
        return pd.Series(values, dtype=object)
    if isinstance(dtype, str) and dtype in FITTING:
        _check_classes(values, FITTING[dtype], dtype)
        inferred: pd.Series = pd.Series(values, dtype=dtype)
        return inferred
    known = pd.api.types.pandas_dtype(dtype)
    if is_moment(known) or known.kind == "m":  # a number would say neither unit nor beginning
        _check_classes(values, {str, type(None)}, dtype)
        parse: Any = pd.to_datetime if is_moment(known) else pd.to_timedelta
        return converted(parse(pd.Series(values, dtype=object)), known, Asked.DTYPES)
    wanted = arrow_type_of(known)
    if _is_text(known):
        _check_classes(values, {str, int, float, bool, type(None)}, dtype)
        text: pd.Series = pd.Series(values, dtype=dtype)
        return text
    if wanted is not None and pa.types.is_nested(wanted):
        return _nested(values, wanted)
    return _as_written(values, known)


def _as_written(values: list[Any], known: Any) -> pd.Series:
    """Return text as the value that it writes, and other values as equal ones."""
    if isinstance(known, pd.SparseDtype):  # Arrow has no such types, and pandas no checks for them
        return _column(values, known.subtype).astype(known)
    if known.kind == "c":
        _check_classes(values, {int, float, type(None)}, known)
        parts = np.dtype("float32" if known == np.complex64 else "float64")
        return _as_written(values, parts).astype(known)
    if isinstance(known, pd.PeriodDtype):  # a number would be a year
        _check_classes(values, {str, type(None)}, known)
    cells: pd.Series = pd.Series(values, dtype=object)
    kinds = [*map(type, values)]
    is_open = isinstance(known, pd.CategoricalDtype) and known.categories is None
    # Whether a value fits does not depend on those beside it; but they are its categories.
    if len({*kinds} - {type(None)}) > 1 and not is_open:
        groups = [cells[[one is kind for one in kinds]] for kind in dict.fromkeys(kinds)]
        column: pd.Series = pd.concat([_of_kind(group, known) for group in groups]).sort_index()
        return column
    return _of_kind(cells, known)


def _of_kind(cells: pd.Series, known: Any) -> pd.Series:
    """Convert values of one kind, and nulls."""
    is_text_alone = set(map(type, cells)) <= {str, type(None)}
    return converted_text(cells, known) if is_text_alone else converted(cells, known, Asked.DTYPES)


def _nested(values: list[Any], type_: pa.DataType) -> pd.Series:
    made = None if any(_has_list_for_map(one, type_) for one in values) else pa.array(values, type_)
    if made is None or not all(map(_is_held, values, made.to_pylist())):
        msg = f"a value would change as {type_}"
        raise ValueError(msg)
    return pd.Series(pd.array(made, dtype=pd.ArrowDtype(type_)))


def _has_list_for_map(value: Any, type_: pa.DataType) -> bool:
    """Say whether a list stands for a map: with a null in it, Arrow would end the process."""
    if isinstance(value, dict) and pa.types.is_struct(type_):
        return any(_has_list_for_map(value.get(one.name), one.type) for one in type_)
    if isinstance(value, dict) and pa.types.is_map(type_):
        return any(_has_list_for_map(one, type_.item_type) for one in value.values())
    if isinstance(value, list) and pa.types.is_nested(type_):
        inner = getattr(type_, "value_type", None)
        return pa.types.is_map(type_) or (
            inner is not None and any(_has_list_for_map(one, inner) for one in value)
        )
    return False


def _is_held(value: Any, made: Any) -> bool:
    """Say whether a nested value of Arrow is a value of JSON, without the keys that are unknown."""
    if isinstance(value, dict) and isinstance(made, dict):
        return all(_is_held(value.get(key), inner) for key, inner in made.items())
    if isinstance(value, dict) and isinstance(made, list):  # a map
        return list(value.items()) == made
    if isinstance(value, list) and isinstance(made, list):
        return len(value) == len(made) and all(map(_is_held, value, made))
    if isinstance(value, float) and isinstance(made, float):  # which may be a shorter one
        return value == made or math.isclose(value, made, rel_tol=1e-3, abs_tol=1e-7)
    return bool(value == made)


def _check_classes(values: list[Any], fitting: set[type], dtype: Any) -> None:
    if not set(map(type, values)) <= fitting:
        msg = f"a value does not fit {dtype}"
        raise ValueError(msg)
