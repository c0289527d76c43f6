"""Samples of delimited text: from them the types of its columns are fixed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from daskprs._inputs.delimited.parser import REFUSALS, Dialect, read_csv, read_records
from daskprs._inputs.delimited.schema import TEXT, are_integers
from daskprs._inputs.text.file import WHOLE_BYTES, EndsEarly, is_small, opened_to_sample
from daskprs._inputs.text.records import RecordScan, TextRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daskprs._inputs.delimited.header import HeaderOfFile
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.text.file import TextFile

FILES = 8
PART_BYTES = 256 << 10
"""Bytes that are read at the beginning of a file, in its middle and at its end."""
PARTS = 3
"""The number of these parts; as many bytes are read at the beginning of a compressed file."""


class SampledRows(NamedTuple):
    """Rows of an input."""

    rows: pd.DataFrame
    is_complete: bool
    """Whether these are all there are."""
    whole: frozenset[str] = frozenset()
    """Columns in which all cells are null or written as integers."""


class Sampler:
    """Reads some rows of an input, or all rows of a small one.

    The `encoding` is that of the files, and `dtypes` are the types that the parser is given.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        headers: Sequence[HeaderOfFile],
        dialect: Dialect,
        encoding: str,
        dtypes: dict[str, Any],
    ) -> None:
        self._files = files
        self._headers = headers
        self._dialect = dialect
        self._encoding = encoding
        self._dtypes = dtypes
        self._is_small = is_small(files, encoding)

    def sample(self) -> SampledRows:
        """Return rows, with all columns in order of first appearance."""
        bodies: dict[tuple[str, ...], list[bytes]] = {}
        places = self._places()
        is_complete = len(places) == len(self._files)
        for place in places:
            parts, is_whole = self._parts_of(place)
            bodies.setdefault(self._headers[place].names, []).extend(map(_closed, parts))
            is_complete &= is_whole
        bodies.pop((), None)
        frames = [self._parsed(parts, own, self._dtypes) for own, parts in bodies.items()]
        filled = [frame for frame in frames if len(frame)] or frames[:1]
        names = list(dict.fromkeys(name for header in self._headers for name in header.names))
        if not filled:
            return SampledRows(pd.DataFrame(columns=names), is_complete)
        odd = {
            name
            for (own, parts), frame in zip(bodies.items(), frames, strict=True)
            for name in self._not_of_integers(frame, parts, own)
        }
        rows = pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0]
        whole = frozenset(names) - odd
        return SampledRows(rows.reindex(columns=names), is_complete, whole)

    def _not_of_integers(
        self, frame: pd.DataFrame, parts: list[bytes], names: tuple[str, ...]
    ) -> Iterator[str]:
        """Yield the columns with cells that are neither null nor written as integers.

        Beside nulls, integers have become floats. Only if these are whole are the cells read again.
        """
        doubtful = {}
        for name, dtype in frame.dtypes.items():
            values = frame[name].dropna()
            if not len(values) or (isinstance(dtype, np.dtype) and dtype.kind in "iu"):
                continue
            if dtype == np.float64 and len(values) < len(frame) and (values % 1 == 0).all():
                doubtful[str(name)] = TEXT
            else:
                yield str(name)
        cells = self._parsed(parts, names, self._dtypes | doubtful) if doubtful else frame
        for name in doubtful:
            if not are_integers(cells[name], self._dialect.thousands):
                yield name

    def _places(self) -> list[int]:
        """Return the places of the files that are read: the first, the last, and some between."""
        count = len(self._files)
        if self._is_small or count <= FILES:
            return list(range(count))
        return sorted({round(step * (count - 1) / (FILES - 1)) for step in range(FILES)})

    def _parts_of(self, place: int) -> tuple[list[bytes], bool]:
        """Return whole records from some places of a file, and whether these are all of them."""
        begin = self._headers[place].begin
        with opened_to_sample(self._files[place], self._encoding) as text:
            records = TextRecords(text, begin, self._dialect.new_scan)
            # Of a stream, the middle and the end cost all that is before them.
            part_bytes = PARTS * PART_BYTES if text.is_stream else PART_BYTES
            try:
                head = records.starting_in(
                    begin, begin + (WHOLE_BYTES if self._is_small else part_bytes)
                )
                behind = begin + len(head.body)
                is_whole = not text.read(behind, 1)
                return [head.body, *self._further_parts(text, behind)], is_whole
            except EndsEarly as short:
                return [records.ended_before(short.end)], False

    def _further_parts(self, text: TextFile, behind: int) -> Iterator[bytes]:
        """Yield records of the middle and the end of a file that need not be read up to there."""
        size = text.size_bytes or 0
        for start in (size // 2, size - PART_BYTES):
            if start > behind:
                part = text.read(start, PART_BYTES)
                # A line break may lie inside quotes: a part is taken only where there are none.
                if b'"' not in part and b"\n" in part:
                    yield part[part.index(b"\n") + 1 : part.rindex(b"\n") + 1]

    def _parsed(
        self, parts: list[bytes], names: tuple[str, ...], dtypes: Mapping[str, Any]
    ) -> pd.DataFrame:
        dtypes = {name: dtype for name, dtype in dtypes.items() if name in names}
        nulls = self._dialect.null_words.options(names)
        try:
            return read_records(b"".join(parts), names, self._dialect, dtype=dtypes, **nulls)
        except REFUSALS:
            # The mini-batch of the bad line will name it; columns and types are taken from the
            # lines that can be read.
            body = b"".join(map(self._without_open_quote, parts))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more fields than names are left out
            return read_csv(
                body,
                names,
                self._dialect,
                dtype=dtypes,
                on_bad_lines="skip",
                encoding_errors="replace",
                index_col=False,
                **nulls,
            )

    def _without_open_quote(self, part: bytes) -> bytes:
        """Return records up to one whose quotes are never closed."""
        scan = RecordScan(self._dialect.delimiter.encode()[0])
        ends = scan.ends(part)
        return part[: int(ends[-1]) if len(ends) else 0] if scan.is_quoted else part


def _closed(part: bytes) -> bytes:
    return part if not part or part.endswith((b"\n", b"\r")) else part + b"\n"
