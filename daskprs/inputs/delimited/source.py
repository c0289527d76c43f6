"""Delimited text: CSV, TSV, any delimiter, plain, compressed or in another encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.errors import LoadError, Option, OptionError
from daskprs.inputs.delimited.bad_record import BadRecord
from daskprs.inputs.delimited.column import TEXT
from daskprs.inputs.delimited.header import headers_of
from daskprs.inputs.delimited.parser import REFUSALS, DelimitedParser, Dialect
from daskprs.inputs.delimited.sampling import Sampler
from daskprs.inputs.delimited.schema import Schema, kept_as_text, schema_of
from daskprs.inputs.source.columns import check_columns
from daskprs.inputs.text.file import encoding_of_bytes
from daskprs.inputs.text.record_scan import RecordScan
from daskprs.inputs.text.records import Records
from daskprs.inputs.text.source import OpenText, TextFiles, TextSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.files.path_columns import PathValues
    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.read_options import ReadOptions


class DelimitedSource(TextSource):
    """Cuts delimited text.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Delimiter, header, encoding, size, types.

    Raises
    ------
    InputError
        When a file cannot be read, or the headers differ where they should not.
    OptionError
        For a delimiter, a type or a column that cannot be.

    """

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        dialect = _dialect(files, reading)
        mode = reading.header or "all_files_same_headers"
        headers = headers_of(files, dialect, reading.encoding, mode)
        begins = [header.begin for header in headers]
        text = TextFiles(list(files), begins, reading.encoding, dialect.new_scan)
        super().__init__(files, reading, text)
        names = [name for header in headers for name in header.names]
        dtypes = _dtypes(names, reading)
        told = kept_as_text(dtypes)
        sample = Sampler(files, headers, dialect, reading.encoding, told).sample()
        in_all = set[str].intersection(*(set(header.names) for header in headers))
        schema = schema_of(
            sample.rows,
            dtypes,
            complete=sample.is_complete,
            in_all=in_all,
            empty_as_string=reading.empty_as_string,
        )
        wanted = self._paths.of_files
        check_columns(wanted or (), list(schema), "columns")
        self._rows = DelimitedRowOptions(
            [header.names for header in headers],
            [self._paths.of_file(file.path) for file in files],
            schema,
            list(wanted or schema),
            dialect,
        )
        self.columns = self._paths.names_with(self._rows.selected)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        schema = self._rows.schema
        return self._fingerprint("delimited", {name: schema[name].told_apart for name in schema})

    def reader(self) -> DelimitedReader:
        """Return the reader for the agents."""
        return DelimitedReader(self._text, self._rows)

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().frame_of(Records(b"", 0), 0)


def _dialect(files: Sequence[InputFile], reading: ReadOptions) -> Dialect:
    delimiter = reading.delimiter or ("\t" if ".tsv" in files[0].name.lower() else ",")
    if not delimiter.isascii() or delimiter == "\0":
        raise OptionError(Option("delimiter", delimiter), ": must be a single ASCII character.")
    encoding = encoding_of_bytes(reading.encoding)
    return Dialect(delimiter, encoding, reading.support_multi_line, reading.empty_as_string)


def _dtypes(names: Sequence[str], reading: ReadOptions) -> Mapping[str, Any]:
    """Return the types that are given, those of columns that are read as they are written too."""
    if reading.infer_types and not reading.as_written:
        return reading.dtypes
    kept = [name for name in names if not reading.infer_types or name in reading.as_written]
    return {**dict.fromkeys(kept, TEXT), **reading.dtypes}


class DelimitedRowOptions(NamedTuple):
    """How records become rows."""

    names: list[tuple[str, ...]]
    """The columns of each file."""
    carried: list[PathValues]
    """What the path of each file carries."""
    schema: Schema
    selected: list[str]
    dialect: Dialect


class DelimitedReader:
    """Parses the records of a range with the types of the whole input."""

    def __init__(self, text: TextFiles, rows: DelimitedRowOptions) -> None:
        self._text = text
        self._rows = rows
        self._open = OpenText(text)
        self._parser = DelimitedParser(rows.dialect, rows.schema, rows.selected)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what Arrow cannot pickle, and without an open file."""
        return DelimitedReader, (self._text, self._rows)

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index."""
        return self.frame_of(self._open.load(mini_batch.piece), mini_batch.piece[0])

    def frame_of(self, records: Records, place: int) -> pd.DataFrame:
        """Return records of a file as rows."""
        try:
            if not self._rows.dialect.multi_line:
                self._refuse_quoted_line_breaks(records, place)
            frame = self._parsed(records, place)
        except LoadError as error:
            error.items = self._rows.dialect.rows_in(records.body)
            raise
        return self._rows.carried[place].put_on_frame(self._complete(frame))

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def keep_places(self) -> None:
        """Make ready for `offsets` after each mini-batch."""
        self._open.keeps = True

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return where in its file each row of a mini-batch begins."""
        records = self._open.load(mini_batch.piece)
        return [records.start + one for one in self._rows.dialect.starts_of_rows(records.body)]

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return the file and line of a row, for people."""
        return self._open.line_at(mini_batch.piece[0], self.offsets(mini_batch)[row])

    def _parsed(self, records: Records, place: int) -> pd.DataFrame:
        names = self._rows.names[place]
        try:
            return self._parser.parse(records.body, names, is_open=records.is_open)
        except REFUSALS:
            offset, told = BadRecord(self._parser, records, names).find()
            msg = f"{self._open.line_at(place, records.start + offset)}: {told}"
            raise LoadError(msg) from None

    def _complete(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that this file lacks and others have, as nulls; put all in order."""
        for name in self._rows.selected:
            if name not in frame.columns:
                frame[name] = self._rows.schema[name].nulls(len(frame)).set_axis(frame.index)
        same = list(frame.columns) == self._rows.selected
        return frame if same else frame[self._rows.selected]

    def _refuse_quoted_line_breaks(self, records: Records, place: int) -> None:
        scan = RecordScan(self._rows.dialect.delimiter.encode()[0])
        offset = scan.first_quoted_break(records.body)
        if offset is not None or scan.is_quoted:
            offset = len(records.body) - 1 if offset is None else offset
            where = self._open.line_at(place, records.start + offset)
            msg = (
                f"{where}: a quoted field goes on after its line. Say by support_multi_line that "
                "fields may hold line breaks."
            )
            raise LoadError(msg)
