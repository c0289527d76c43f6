"""Header lines: which files have one, what their columns are called, where their rows begin."""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from daskprs.errors import InputError, LoadError, Option
from daskprs.inputs.text_file import TextFile, encoding_of_bytes
from daskprs.inputs.text_records import TextRecords, delimited_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading

BLANK = b" \t\r\n"


class HeaderOfFile(NamedTuple):
    """What a reader has to know of the beginning of a file."""

    names: tuple[str, ...]
    """The columns of its rows."""
    begin: int
    """Where its rows begin: behind a byte order mark, and a header line if it has one."""


def headers_of(files: Sequence[InputFile], delimiter: str, reading: Reading) -> list[HeaderOfFile]:
    """Return the header of each file, as the option `header` says they are.

    Files that are empty take the columns of the others.

    Raises
    ------
    InputError
        When headers differ that ought to be the same, or a file cannot be read.

    """
    mode = reading.header or "all_files_same_headers"
    firsts = [_first_record(file, delimiter, reading.encoding) for file in files]
    filled = [place for place, first in enumerate(firsts) if first.record]
    if not filled:
        return [HeaderOfFile((), first.begin) for first in firsts]
    encoding = encoding_of_bytes(reading.encoding)
    parsed = {place: _names(firsts[place].record, delimiter, encoding) for place in filled}
    lead = parsed[filled[0]]
    if mode == "no_header":
        lead = tuple(f"Column{number}" for number in range(1, len(lead) + 1))
        return [HeaderOfFile(lead, first.begin) for first in firsts]
    if mode == "all_files_same_headers":
        _compare(files, parsed, filled)
    headers = []
    for place, first in enumerate(firsts):
        has_one = place in parsed and (mode != "from_first_file" or place == filled[0])
        own = parsed.get(place, lead) if mode == "all_files_different_headers" else lead
        headers.append(HeaderOfFile(own, first.end if has_one else first.begin))
    return headers


class _First(NamedTuple):
    record: bytes
    begin: int
    end: int


def _first_record(file: InputFile, delimiter: str, encoding: str) -> _First:
    """Return the first record that is not blank, and where it begins and ends."""
    text = TextFile(file.path, encoding)
    try:
        begin = 3 if text.read(0, 3) == codecs.BOM_UTF8 else 0
        records = TextRecords(text, begin, delimited_scan(delimiter))
        for start, stop in records.cut(1):
            record = text.read(start, stop - start)
            if record.strip(BLANK):
                return _First(record, begin, stop)
    except (LoadError, OSError) as error:
        raise InputError(str(error)) from error
    finally:
        text.close()
    return _First(b"", begin, begin)


def _names(record: bytes, delimiter: str, encoding: str) -> tuple[str, ...]:
    """Return the names in a header line, made different as pandas does it."""
    try:
        header = pd.read_csv(io.BytesIO(record), sep=delimiter, encoding=encoding, nrows=0)
    except (ValueError, UnicodeDecodeError) as error:
        msg = f"the header {record[:200]!r} cannot be read: {error}"
        raise InputError(msg) from error
    return tuple(map(str, header.columns))


def _compare(
    files: Sequence[InputFile], parsed: dict[int, tuple[str, ...]], filled: list[int]
) -> None:
    first = filled[0]
    for place in filled[1:]:
        if parsed[place] != parsed[first]:
            only = [name for name in parsed[first] if name not in parsed[place]]
            more = [name for name in parsed[place] if name not in parsed[first]]
            differ = f"missing: {only}, more: {more}" if only or more else "another order"
            told = f"the header of {files[place].path} is not that of {files[first].path}"
            raise InputError(
                told,
                f" ({differ}). Say ",
                Option("header", "all_files_different_headers"),
                " to put columns together by name, or ",
                Option("header", "no_header"),
                " if there is none.",
            )
