"""Header lines: the column names of each file, and where its rows begin."""

from __future__ import annotations

import codecs
import io
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from daskprs._inputs.source.input_file import of_each_file
from daskprs._inputs.text.file import EndsEarly, opened_to_sample, size_of
from daskprs._inputs.text.records import TextRecords
from daskprs.errors import InputError, Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._inputs.delimited.parser import Dialect
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import Header, ReadOptions

HEAD_BYTES = 1 << 14
SHOWN = 200


class HeaderOfFile(NamedTuple):
    """The columns of a file, and where its rows begin."""

    names: tuple[str, ...]
    """The columns of its rows."""
    begin: int
    """The first byte of its rows, behind a byte order mark, and a header line if it has one."""


def headers_of(
    files: Sequence[InputFile],
    dialect: Dialect,
    reading: ReadOptions,
    mode: Header,
) -> list[HeaderOfFile]:
    """Return the header of each file, as the option `header` says they are.

    Files that are empty take the columns of the others. Headers that differ where they ought to be
    the same are an `InputError`.
    """
    encoding = reading.encoding
    are_streams = size_of(files[0], encoding) is None  # each is read ahead by tens of megabytes
    requests = 1 if are_streams else reading.store_requests
    first_of = partial(_first_of, dialect=dialect, encoding=encoding)
    with closing(of_each_file(first_of, files, requests)) as found:
        firsts = list(found)
    filled = [place for place, first in enumerate(firsts) if first.record]
    if not filled:
        short = next((first.short for first in firsts if first.short is not None), None)
        if short is not None:
            raise InputError(str(short)) from short
        return [HeaderOfFile((), first.begin) for first in firsts]
    known: dict[bytes, tuple[str, ...]] = {}
    lead_place = filled[0]
    lead = _names(firsts[lead_place].record, dialect, files[lead_place].path, known)
    if mode == "no_header":
        lead = tuple(f"Column{number}" for number in range(1, len(lead) + 1))
    headers = []
    for place, (file, first) in enumerate(zip(files, firsts, strict=True)):
        is_without = mode == "from_first_file" and place != lead_place
        if mode == "no_header" or is_without or not first.record:
            headers.append(HeaderOfFile(lead, first.begin))
            continue
        own = _names(first.record, dialect, file.path, known)
        if mode == "all_files_same_headers" and own != lead:
            raise _difference(file.path, own, files[lead_place].path, lead)
        headers.append(HeaderOfFile(own, first.end))
    return headers


class _First(NamedTuple):
    """The first record of a file that is not blank, and where it begins and ends."""

    record: bytes
    begin: int
    end: int
    short: EndsEarly | None = None
    """The reason for an empty record, if the file is cut short before its first one."""


def _first_of(file: InputFile, dialect: Dialect, encoding: str) -> _First:
    begin = 0
    with opened_to_sample(file, encoding) as text:
        try:
            begin = 3 if text.read(0, 3) == codecs.BOM_UTF8 else 0
            records = TextRecords(text, begin, dialect.new_scan)
            for start, stop in records.cut(1, HEAD_BYTES):
                record = text.read(start, stop - start)
                if not dialect.is_blank(record):
                    return _First(record, begin, stop)
        except EndsEarly as short:
            return _First(b"", begin, begin, short)
    return _First(b"", begin, begin)


def _names(
    record: bytes, dialect: Dialect, path: str, known: dict[bytes, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the names in a header line, made different as pandas does it."""
    if record in known:
        return known[record]
    try:
        header = pd.read_csv(
            io.BytesIO(record), sep=dialect.delimiter, encoding=dialect.encoding, nrows=0
        )
    except ValueError as error:
        msg = f"{path}: the header {record[:SHOWN]!r} cannot be read: {error}"
        raise InputError(msg) from error
    known[record] = tuple(map(str, header.columns))
    return known[record]


def _difference(
    path: str, own: tuple[str, ...], lead_path: str, lead: tuple[str, ...]
) -> InputError:
    missing = [name for name in lead if name not in own]
    more = [name for name in own if name not in lead]
    differ = f"missing: {missing}, more: {more}" if missing or more else "another order"
    return InputError(
        f"the header of {path} is not that of {lead_path} ({differ}). Say "
        f"{Option('header', 'all_files_different_headers')} to put columns together by name, or "
        f"{Option('header', 'no_header')} if there is none."
    )
