"""Delimited text: CSV, TSV, any delimiter, plain, compressed or in another encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from pandas.errors import ParserError, ParserWarning

from daskprs.errors import LoadError
from daskprs.inputs.columns import check_columns
from daskprs.inputs.delimited_header import headers_of
from daskprs.inputs.delimited_parse import DelimitedParser, Misfit, rows_in
from daskprs.inputs.delimited_sample import sampled
from daskprs.inputs.record_scan import RecordScan
from daskprs.inputs.text_file import encoding_of_bytes
from daskprs.inputs.text_records import Records
from daskprs.inputs.text_schema import TextSchema, schema_of
from daskprs.inputs.text_source import OpenText, TextFiles, TextSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.path_columns import PathValues
    from daskprs.inputs.reading import Reading

REFUSALS = (ValueError, ParserError, ParserWarning, OverflowError)


class DelimitedSource(TextSource):
    """Cuts delimited text.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Delimiter, header, encoding, size, types.

    """

    def __init__(self, files: Sequence[InputFile], reading: Reading) -> None:
        super().__init__(files, reading)
        delimiter = reading.delimiter or ("\t" if ".tsv" in files[0].name.lower() else ",")
        headers = headers_of(files, delimiter, reading)
        sample, complete = sampled(files, headers, delimiter, reading.encoding)
        schema = schema_of(sample, reading.dtypes, complete=complete)
        check_columns(reading.columns or (), schema.names, "columns")
        self._text = TextFiles(
            [file.path for file in files],
            [header.begin for header in headers],
            reading.encoding,
            delimiter,
        )
        self._rows = Rows(
            [header.names for header in headers],
            [self._paths.of_file(file.path) for file in files],
            schema,
            list(reading.columns or schema.names),
            reading.support_multi_line,
        )
        self.columns = self._paths.names_with(self._rows.selected)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        schema = self._rows.schema
        types = {name: str(schema.dates.get(name, schema.dtypes[name])) for name in schema.names}
        return self._fingerprint("delimited", types)

    def reader(self) -> DelimitedReader:
        """Return the reader for the agents."""
        return DelimitedReader(self._text, self._rows)

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().frame_of(Records(b"", 0), 0)


class Rows(NamedTuple):
    """How records become rows."""

    names: list[tuple[str, ...]]
    """The columns of each file."""
    carried: list[PathValues]
    """What the path of each file carries."""
    schema: TextSchema
    selected: list[str]
    multi_line: bool


class DelimitedReader:
    """Parses the records of a range with the types of the whole input."""

    def __init__(self, text: TextFiles, rows: Rows) -> None:
        self._open = OpenText(text)
        self._delimiter = text.delimiter or ","
        self._rows = rows
        encoding = encoding_of_bytes(text.encoding)
        self._parser = DelimitedParser(self._delimiter, encoding, rows.schema)

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index."""
        place, start, stop = mini_batch.piece
        return self.frame_of(self._open.records(place).starting_in(start, stop), place)

    def frame_of(self, records: Records, place: int) -> pd.DataFrame:
        """Return records of a file as rows."""
        try:
            if not self._rows.multi_line:
                self._refuse_quoted_line_breaks(records, place)
            frame = self._parsed(records, place)
        except LoadError as error:
            error.items = rows_in(records.body, self._delimiter)
            raise
        frame = self._complete(frame)[self._rows.selected]
        return self._rows.carried[place].put_on_frame(frame)

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def _parsed(self, records: Records, place: int) -> pd.DataFrame:
        names = self._rows.names[place]
        try:
            return self._parser.parse(records.body, names)
        except REFUSALS as error:
            found = Misfit(self._parser, self._delimiter).find(records.body, names)
            offset, told = found or (0, f"in the records from here: {error}")
            where = self._open.line_at(place, records.start + offset)
            msg = f"{where}: {told}"
            raise LoadError(msg) from None

    def _complete(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that this file lacks and others have, as nulls."""
        schema = self._rows.schema
        for name in schema.names:
            if name not in frame.columns:
                dtype = schema.dates.get(name, schema.dtypes[name])
                frame[name] = pd.Series([None] * len(frame), dtype=dtype)
        return frame

    def _refuse_quoted_line_breaks(self, records: Records, place: int) -> None:
        scan = RecordScan(self._delimiter.encode()[0])
        scan.ends(records.body)
        if scan.quoted_line_break:
            where = self._open.line_at(place, records.start)
            msg = (
                f"{where} or after it: a quoted field goes on after its line. Say by "
                "support_multi_line that fields may hold line breaks."
            )
            raise LoadError(msg)
