"""What is wrong with delimited text that pandas has refused: which record, column and value."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from daskprs.inputs.delimited.parser import REFUSALS, DelimitedParser
from daskprs.inputs.text.record_scan import RecordScan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.text.records import Records

SHOWN = 200


class BadRecord:
    """Finds the first record that does not fit.

    Parameters
    ----------
    parser
        The parser that has rejected the records.
    records, names
        The rejected records, and their columns.

    """

    def __init__(self, parser: DelimitedParser, records: Records, names: Sequence[str]) -> None:
        self._parser = parser
        self._body = records.body
        self._is_open = records.is_open
        self._names = names

    def find(self) -> tuple[int, str]:
        """Return the offset of the record, and what is wrong with it."""
        bounds = self._bounds()
        low, high = 0, len(bounds) - 1  # records before low fit, those before high do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._error(0, bounds[middle]) else (middle, high)
        start, stop = bounds[low], bounds[high]
        return start, self._told(self._body[start:stop], self._error(start, stop))

    def _bounds(self) -> list[int]:
        """Return where records begin, and where the last one ends."""
        ends = self._parser.dialect.new_scan().ends(self._body).tolist()
        return [0, *ends] if ends and ends[-1] == len(self._body) else [0, *ends, len(self._body)]

    def _error(self, start: int, stop: int) -> Exception | None:
        try:
            is_open = self._is_open and stop == len(self._body)
            self._parser.parse(self._body[start:stop], self._names, is_open=is_open)
        except REFUSALS as error:
            return error
        return None

    def _told(self, record: bytes, error: Exception | None) -> str:
        """Say what is wrong with a record."""
        dialect = self._parser.dialect
        try:
            text = record.decode(dialect.encoding)
        except UnicodeDecodeError as undecoded:
            return (
                f"{record[:SHOWN]!r} is not in the encoding {dialect.encoding}: "
                f"{undecoded.reason} at byte {undecoded.start} of it. Say encoding= if it is "
                "another one."
            )
        scan = RecordScan(dialect.delimiter.encode()[0])
        scan.skip(record)
        shown = text.strip("\r\n")[:SHOWN]
        if scan.is_quoted:
            return f"a quoted field of this record is never closed: {shown!r}."
        told = self._count(text) or self._cell(text)
        return told or f"{shown!r} does not fit: {error or 'its types differ from those before'}."

    def _cells(self, text: str) -> list[str]:
        lines = io.StringIO(text, newline="")
        try:
            return next(csv.reader(lines, delimiter=self._parser.dialect.delimiter), [])
        except csv.Error:  # a field longer than the module allows
            return []

    def _count(self, text: str) -> str | None:
        """Say that there are too many fields or too few."""
        count, want = len(self._cells(text)), len(self._names)
        if count in (0, want):
            return None
        shown = text.strip("\r\n")[:SHOWN]
        fields = "1 field" if count == 1 else f"{count} fields"
        return f"{fields} where {want} are expected: {shown!r}."

    def _cell(self, text: str) -> str | None:
        """Say which cell of a record does not fit; None where it is none of them alone."""
        schema = self._parser.schema
        dialect = self._parser.dialect._replace(encoding="utf-8")
        alone = DelimitedParser(dialect, schema, self._parser.selected)
        for value, name in zip(self._cells(text), self._names, strict=False):
            quoted = '"' + value.replace('"', '""') + '"'
            try:
                alone.parse(f"{quoted}\n".encode(), [name])
            except REFUSALS:
                shown = repr(value[:SHOWN]) if value else "nothing"
                return (
                    f"column {name!r} holds {shown}, which is no {schema[name].kind}. The types "
                    f"are fixed by samples before the start: say dtypes={{{name!r}: ...}} if it is "
                    "another one."
                )
        return None
