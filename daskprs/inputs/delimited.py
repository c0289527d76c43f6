"""Delimited text: CSV, TSV, any delimiter, plain, compressed or in another encoding."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pandas.errors import ParserError, ParserWarning

from daskprs.core.mini_batch import MiniBatch
from daskprs.errors import LoadError
from daskprs.inputs.columns import check_columns
from daskprs.inputs.delimited_header import HeaderOfFile, headers_of
from daskprs.inputs.delimited_parse import DelimitedParser, Misfit
from daskprs.inputs.delimited_sample import sampled
from daskprs.inputs.path_columns import PathColumns, PathValues
from daskprs.inputs.sizes import bytes_per_mini_batch
from daskprs.inputs.text_file import TextFile, encoding_of_bytes, size_of
from daskprs.inputs.text_records import TextRecords, delimited_scan
from daskprs.inputs.text_schema import TextSchema, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading
    from daskprs.inputs.source import Unit

REFUSALS = (ValueError, ParserError, ParserWarning, OverflowError)


class DelimitedSource:
    """Cuts delimited text into byte ranges; a row belongs to the range that it starts in.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Delimiter, header, encoding, size, types.

    """

    unit: Unit = "row"

    def __init__(self, files: Sequence[InputFile], reading: Reading) -> None:
        self._files = files
        self._reading = reading
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        self._delimiter = reading.delimiter or ("\t" if ".tsv" in files[0].name.lower() else ",")
        self._paths = PathColumns(files, reading)
        self._headers = headers_of(files, self._delimiter, reading)
        sample, complete = sampled(files, self._headers, self._delimiter, reading.encoding)
        self._schema = schema_of(sample, reading.dtypes, complete=complete)
        check_columns(reading.columns or (), self._schema.names, "columns")
        self._selected = list(reading.columns or self._schema.names)
        self._full = self._paths.extend(_arrow_schema(self._schema, sample, self._selected))
        self.columns = self._full.names

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield byte ranges; of a stream, as it is read."""
        index = 0
        for place, file in enumerate(self._files):
            for start, stop in self._ranges(place):
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
        sizes = [size_of(file, self._reading.encoding) for file in self._files]
        known = [size for size in sizes if size is not None]
        return sum(-(-size // self._size) for size in known) if len(known) == len(sizes) else None

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(file.identity.encode("utf-8", "surrogateescape") + b"\n")
        return {
            "kind": "delimited",
            "files": digest.hexdigest(),
            "size": self._size,
            "schema": str(self._full.remove_metadata()),
        }

    def reader(self) -> DelimitedReader:
        """Return the reader for the agents."""
        return DelimitedReader(
            [file.path for file in self._files],
            self._headers,
            [self._paths.of_file(file.path) for file in self._files],
            Text(
                self._delimiter,
                self._reading.encoding,
                self._reading.support_multi_line,
                self._schema,
                self._selected,
            ),
        )

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        reader = self.reader()
        return reader.load_body(b"", 0, 0).iloc[:0]

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return what the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def _ranges(self, place: int) -> Iterator[tuple[int, int]]:
        file = self._files[place]
        size = size_of(file, self._reading.encoding)
        if size is not None:
            for start in range(0, size, self._size):
                yield start, min(start + self._size, size)
            return
        text = TextFile(file.path, self._reading.encoding)
        try:
            begin = self._headers[place].begin
            records = TextRecords(text, begin, delimited_scan(self._delimiter))
            yield from records.cut(self._size)
        finally:
            text.close()


class Text(NamedTuple):
    """What is the same for all files of an input."""

    delimiter: str
    encoding: str
    multi_line: bool
    schema: TextSchema
    selected: list[str]


class DelimitedReader:
    """Parses the records of a range with the types of the whole input."""

    def __init__(
        self,
        paths: list[str],
        headers: list[HeaderOfFile],
        values: list[PathValues],
        text: Text,
    ) -> None:
        self._paths = paths
        self._headers = headers
        self._values = values
        self._text = text
        self._parser = DelimitedParser(
            text.delimiter, encoding_of_bytes(text.encoding), text.schema
        )
        self._place = -1
        self._file: TextFile | None = None
        self._records: TextRecords | None = None

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index."""
        place, start, stop = mini_batch.piece
        records = self._records_of(place).starting_in(start, stop)
        return self.load_body(records.body, records.start, place)

    def load_body(self, body: bytes, start: int, place: int) -> pd.DataFrame:
        """Return the rows of a body of whole records of a file."""
        names = self._headers[place].names
        if not self._text.multi_line:
            self._refuse_quoted_line_breaks(body, start)
        try:
            frame = self._parser.parse(body, names)
        except REFUSALS as error:
            file = self._file or TextFile(self._paths[place], self._text.encoding)
            misfit = Misfit(file, self._parser, self._text.delimiter)
            raise misfit.error(body, start, names, error) from None
        frame = self._complete(frame)[self._text.selected]
        return self._values[place].put_on_frame(frame)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = self._records = None

    def _records_of(self, place: int) -> TextRecords:
        if self._records is None or place != self._place:
            self.close()
            self._file = TextFile(self._paths[place], self._text.encoding)
            self._records = TextRecords(
                self._file, self._headers[place].begin, delimited_scan(self._text.delimiter)
            )
            self._place = place
        return self._records

    def _complete(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that this file lacks and others have, as nulls."""
        missing = [name for name in self._text.schema.names if name not in frame.columns]
        for name in missing:
            dtype = self._text.schema.dates.get(name, self._text.schema.dtypes[name])
            frame[name] = pd.Series([None] * len(frame), dtype=dtype)
        return frame

    def _refuse_quoted_line_breaks(self, body: bytes, start: int) -> None:
        scan = delimited_scan(self._text.delimiter)()
        scan.ends(body)
        if getattr(scan, "quoted_line_break", False):
            path = self._paths[self._place]
            msg = (
                f"{path}, in the records from byte {start}: a quoted field goes on after its line. "
                "Say support_multi_line=True if fields may hold line breaks."
            )
            raise LoadError(msg)


def _arrow_schema(schema: TextSchema, sample: pd.DataFrame, selected: list[str]) -> pa.Schema:
    typed = {}
    for name in selected:
        dtype = schema.dates.get(name, schema.dtypes[name])
        kind = "boolean" if dtype == "bool or null" else dtype
        typed[name] = pd.Series([], dtype=kind)
    del sample
    return pa.Schema.from_pandas(pd.DataFrame(typed), preserve_index=False)
