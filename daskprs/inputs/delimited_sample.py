"""Samples of delimited text: from them the types of its columns are fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from pandas.errors import ParserError, ParserWarning

from daskprs.errors import InputError, LoadError
from daskprs.inputs.delimited_parse import read_csv
from daskprs.inputs.text_file import TextFile, encoding_of_bytes, size_of
from daskprs.inputs.text_records import TextRecords, delimited_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs.inputs.delimited_header import HeaderOfFile
    from daskprs.inputs.input_file import InputFile

WHOLE_BYTES = 4 << 20
"""An input up to this size is its own sample."""
FILES = 8
PART_BYTES = 256 << 10
"""So much is read at the beginning of a file, in its middle and at its end."""


def sampled(
    files: Sequence[InputFile], headers: Sequence[HeaderOfFile], delimiter: str, encoding: str
) -> tuple[pd.DataFrame, bool]:
    """Return rows of some files, and whether these are all there are.

    Raises
    ------
    InputError
        When the samples cannot be parsed.

    """
    sizes = [size_of(file, encoding) for file in files]
    complete = all(size is not None for size in sizes) and sum(filter(None, sizes)) <= WHOLE_BYTES
    names = list(dict.fromkeys(name for header in headers for name in header.names))
    places = range(len(files)) if complete else _spread(len(files))
    by_names: dict[tuple[str, ...], list[bytes]] = {}
    for place in places:
        text = TextFile(files[place].path, encoding)
        try:
            records = TextRecords(text, headers[place].begin, delimited_scan(delimiter))
            size = sizes[place]
            parts = _parts(text, records, headers[place].begin, size, complete=complete)
            by_names.setdefault(headers[place].names, []).extend(parts)
        except LoadError as error:
            raise InputError(str(error)) from error
        finally:
            text.close()
    frames = [_parsed(parts, own, delimiter, encoding) for own, parts in by_names.items() if own]
    if not frames:
        return pd.DataFrame(columns=names), complete
    whole = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    return whole.reindex(columns=names), complete


def _spread(count: int) -> list[int]:
    """Return the places of some files: the first, the last, and some between."""
    if count <= FILES:
        return list(range(count))
    return sorted({round(step * (count - 1) / (FILES - 1)) for step in range(FILES)})


def _parts(
    text: TextFile, records: TextRecords, begin: int, size: int | None, *, complete: bool
) -> Iterator[bytes]:
    """Yield whole records from some places of a file, each part with a line break at its end."""
    if complete and size is not None:
        yield _closed(text.read(begin, size - begin))
        return
    yield _closed(records.starting_in(begin, begin + PART_BYTES).body)
    if size is None:
        return
    for start in (size // 2, size - PART_BYTES):
        if start > begin + PART_BYTES:
            part = text.read(start, PART_BYTES)
            # A line break may lie inside quotes: a part is taken only where there are none.
            if b'"' not in part and b"\n" in part:
                yield part[part.index(b"\n") + 1 : part.rindex(b"\n") + 1]


def _closed(part: bytes) -> bytes:
    return part if not part or part.endswith((b"\n", b"\r")) else part + b"\n"


def _parsed(
    parts: list[bytes],
    names: tuple[str, ...],
    delimiter: str,
    encoding: str,
) -> pd.DataFrame:
    try:
        return read_csv(b"".join(parts), names, delimiter, encoding_of_bytes(encoding))
    except (ValueError, ParserError, ParserWarning, OverflowError):
        # Which line it is will be said by the mini-batch that it lies in; columns and types are
        # taken from the lines that can be read.
        return read_csv(
            b"".join(parts),
            names,
            delimiter,
            encoding_of_bytes(encoding),
            strict=False,
            on_bad_lines="skip",
            encoding_errors="replace",
        )
