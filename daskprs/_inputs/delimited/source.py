"""Delimited text: CSV, TSV, any delimiter, plain, compressed or in another encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._inputs.delimited.header import headers_of
from daskprs._inputs.delimited.null_words import null_words
from daskprs._inputs.delimited.parser import REFUSALS, DelimitedParser, Dialect, find_bad_record
from daskprs._inputs.delimited.sampling import Sampler
from daskprs._inputs.delimited.schema import TEXT, kept_as_text, schema_of
from daskprs._inputs.files.suffixes import mixed_kinds, plain_suffix_of
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.text.file import encoding_of_bytes
from daskprs._inputs.text.records import RecordScan
from daskprs._inputs.text.source import TextFiles, TextReader, TextSource
from daskprs.errors import InputError, LoadError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.text.records import Records


class DelimitedSource(TextSource):
    """Cuts delimited text."""

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        dialect = _dialect(files, reading)
        mode = reading.header or "all_files_same_headers"
        headers = headers_of(files, dialect, reading, mode)
        begins = [header.begin for header in headers]
        super().__init__(files, reading, begins, dialect.new_scan, dialect.blanks)
        names = [name for header in headers for name in header.names]
        dtypes = _dtypes(names, reading)
        kept = kept_as_text(dtypes)
        sample = Sampler(files, headers, dialect, reading.encoding, kept).sample()
        in_all = set[str].intersection(*(set(header.names) for header in headers))
        schema = schema_of(
            sample.rows,
            dtypes,
            complete=sample.is_complete,
            in_all=in_all,
            whole=sample.whole,
            empty_as_string=reading.empty_as_string,
        )
        wanted = self._paths.of_files
        check_columns(wanted or (), list(schema), "columns")
        own = reading.csv_options.get("na_values")
        check_columns(list(own) if isinstance(own, dict) else (), list(schema), "csv_options")
        self._names = [header.names for header in headers]
        self._parser = DelimitedParser(dialect, schema, list(wanted or schema))
        self.columns = self._paths.names_with(self._parser.selected)
        self.object_types = self._paths.text_columns | {
            name: column.object_type
            for name, column in schema.items()
            if column.object_type is not None
        }

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        schema, dialect = self._parser.schema, self._parser.dialect
        types = {name: schema[name].kind_and_format for name in schema}
        found = self._fingerprint("delimited", types)
        if not dialect.null_words.are_default:
            nulls = dialect.null_words
            found["words for null"] = {name: nulls.described(name) for name in schema}
        numbers = {"decimal": dialect.decimal, "thousands": dialect.thousands}
        return found if dialect.decimal == "." and not dialect.thousands else found | numbers

    def reader(self) -> DelimitedReader:
        """Return the reader for the agents."""
        return DelimitedReader(self._text, self._names, self._parser)


def _dialect(files: Sequence[InputFile], reading: ReadOptions) -> Dialect:
    delimiter = reading.delimiter or _delimiter_of(files)
    if not delimiter.isascii() or delimiter == "\0":
        raise OptionError(Option("delimiter", delimiter), ": must be a single ASCII character.")
    encoding = encoding_of_bytes(reading.encoding)
    return Dialect(
        delimiter,
        encoding,
        reading.support_multi_line,
        reading.empty_as_string,
        null_words(reading.csv_options, reading.dtypes),
        reading.csv_options.get("decimal", "."),
        reading.csv_options.get("thousands"),
    )


def _delimiter_of(files: Sequence[InputFile]) -> str:
    """Return the delimiter that the suffix of all files stands for."""
    examples: dict[str, str] = {}
    for file in files:
        examples.setdefault("\t" if plain_suffix_of(file.path) == ".tsv" else ",", file.path)
    if len(examples) > 1:
        common = Option("delimiter")
        raise InputError(mixed_kinds(examples.values()), " Or give the ", common, " of all.")
    return next(iter(examples))


def _dtypes(names: Sequence[str], reading: ReadOptions) -> Mapping[str, Any]:
    """Return the types that are given, and text for columns that are read as they are written."""
    if reading.infer_types and not reading.as_written:
        return reading.dtypes
    kept = [name for name in names if not reading.infer_types or name in reading.as_written]
    return {**dict.fromkeys(kept, TEXT), **reading.dtypes}


class DelimitedReader(TextReader):
    """Parses the records of a range with the types of the whole input.

    The `names` are those of the columns of each file.
    """

    def __init__(
        self, text: TextFiles, names: list[tuple[str, ...]], parser: DelimitedParser
    ) -> None:
        super().__init__(text)
        self._names = names
        self._parser = parser

    def _frame(self, records: Records) -> pd.DataFrame:
        if not self._parser.dialect.multi_line:
            self._refuse_quoted_line_breaks(records)
        names, selected = self._names[self._place], self._parser.selected
        try:
            frame = self._parser.parse(records.body, names, is_open=records.is_open)
        except REFUSALS:
            offset, reason = find_bad_record(self._parser, records, names)
            msg = f"{self._line_at(records.start + offset)}: {reason}"
            raise LoadError(msg) from None
        for name in selected:
            if name not in frame.columns:  # other files have it
                frame[name] = self._parser.schema[name].nulls(len(frame)).set_axis(frame.index)
        return frame if list(frame.columns) == selected else frame[selected]

    def _starts(self, records: Records) -> list[int]:
        starts = self._parser.dialect.starts_of_rows(records.body)
        return [records.start + start for start in starts]

    def _refuse_quoted_line_breaks(self, records: Records) -> None:
        scan = RecordScan(self._parser.dialect.delimiter.encode()[0])
        offset = scan.first_quoted_break(records.body)
        if offset is not None or scan.is_quoted:
            offset = len(records.body) - 1 if offset is None else offset
            msg = (
                f"{self._line_at(records.start + offset)}: a quoted field goes on after its line. "
                "Say by support_multi_line that fields may hold line breaks."
            )
            raise LoadError(msg)
