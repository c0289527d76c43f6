"""The rows of a job whose output is a data set, read back from its files, in input order.

The row groups of the files are the pieces. Each process that sees the files may read some of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import (
    NO_NOTES,
    column_notes,
    frame_of,
    with_notes,
    with_null_types,
)
from daskprs._arrow.exact_casts import cast_exactly
from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.history import History
from daskprs._output.journal.recovery import publication_in_place
from daskprs._output.kept_rows import MOST_READ, FrameForm, KeptPart, KeptRows, rows_removed
from daskprs._output.rows.given_schema import ERROR
from daskprs._output.rows.part_formats import NULL_FOLDER, groups_in, read_group, schema_read_back
from daskprs.errors import JobFolderError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from daskprs._output.journal.history import Publication
    from daskprs._output.kept_rows import JournalState

GROUP_BYTES = 8 << 20
"""About the size of a row group, as `output.dataset` makes them."""

PART_BYTES = 32 << 20
"""Most bytes of a part: frames of it and what is computed of them take several times as much."""


def rows_of(folder: JobFolder) -> KeptRows | PublishedRows:
    """Return the reader of a job's rows: those that were kept, else those of its data set."""
    kept = KeptRows.of(folder)
    if kept.has_types:
        return kept
    published = _published(str(folder), kept.state)
    if published is not None:
        published.check()
        return published
    if kept.were_kept:
        raise rows_removed(folder)
    return kept


class PublishedGroup(NamedTuple):
    """A row group of a file."""

    path: Path
    number: int
    folder: str
    """The folder within the data set, whose name has values."""


class PublishedRows:
    """The rows of a data set, as `KeptRows` gives those that were kept.

    Raise `OptionError` for a data set of JSON lines, which have too few types.
    """

    has_types = True
    """Whether rows have types."""

    def __init__(
        self,
        folder: JobFolder,
        state: JournalState,
        published: Publication,
        format_: str,
        *,
        errors: bool = False,
    ) -> None:
        if format_ == "jsonl":
            msg = (
                "the rows of this job are a data set of JSON lines, which have too few types to be "
                f"read back. Read {published.target} by a reader of JSON, or keep the rows with "
                f"their types, too, by {Option('keep_rows', value=True)}."
            )
            raise OptionError(msg)
        self.folder = folder
        self.state = state
        """The journals when they were read."""
        self.plans = published.checksum
        """The manifest: other files have another one."""
        self._published = published
        self._identity = _file_state(published.identity)
        self._format = format_
        written = pa.ipc.read_schema(pa.py_buffer(published.schema))
        first = next((file.name for part in published.parts or () for file in part.files), "")
        in_folders = {name.partition("=")[0] for name in first.split("/")[:-1]}
        schema: pa.Schema = schema_read_back(format_, written, in_folders)
        self.schema = with_null_types(schema, texts=[ERROR]) if errors else schema
        """The schema of all rows."""

    def check(self) -> None:
        """Raise `JobFolderError` if another output has taken the place of the data set."""
        if _file_state(self._published.identity) != self._identity:
            raise JobFolderError(_gone(self.folder, self._published.target))

    @contextmanager
    def _unchanged(self, path: Path) -> Iterator[None]:
        """Say what has become of the data set if a file of it is gone, or has other rows by now."""
        try:
            yield
        except Exception as error:  # Arrow has many errors for a file that was replaced under it
            self.check()
            if isinstance(error, FileNotFoundError):
                raise JobFolderError(_lost(self.folder, path)) from error
            raise
        self.check()

    def parts(self, most_bytes: int) -> list[KeptPart]:
        """Return the row groups in parts of about `most_bytes`."""
        step, count = max(1, min(most_bytes, PART_BYTES) // GROUP_BYTES), len(self._groups)
        return [KeptPart(first, min(first + step, count)) for first in range(0, count, step)]

    def tables(
        self, part: KeptPart | None = None, columns: Sequence[str] | None = None
    ) -> Generator[tuple[int, pa.Table]]:
        """Yield row groups as tables in the schema of all, each with its number."""
        self.check()
        first, stop = part or KeptPart(0, len(self._groups))
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        for number, group in enumerate(self._groups[first:stop], first):
            values = _values_in(group.folder, self.schema)
            in_file = [name for name in names if name not in values]
            with self._unchanged(group.path):
                table = read_group(self._format, group.path, group.number, in_file)
            for name in values.keys() & set(names):
                table = table.append_column(name, pa.repeat(values[name], table.num_rows))
            arrays = [cast_exactly(table.column(one.name), one.type) for one in schema]
            yield number, pa.table(arrays, schema=schema) if arrays else table

    def batches(self) -> Iterator[pa.Table]:
        """Yield each row group as a table."""
        for _, table in self.tables():
            yield table

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield each row group as a frame."""
        for table in self.batches():
            yield frame_of(table)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow, which reads a row group when it is asked for."""
        batches = (batch for table in self.batches() for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    @cached_property
    def frame_form(self) -> FrameForm:
        """Makes frames of tables, with types that hold nulls, since any row may have one.

        Periods and intervals, which lie in the files as numbers and structs, have their own.
        """
        own = ("period[", "interval[")
        notes = [one for one in column_notes(self.schema) if one["numpy_type"].startswith(own)]
        noted = with_notes(self.schema, NO_NOTES | {"columns": notes})
        others = {*noted.names} - {one["field_name"] for one in notes}
        return FrameForm(with_null_types(noted, others))

    def frame(self, part: KeptPart, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of the rows of a part as a frame, with the types of all parts."""
        tables = [table for _, table in self.tables(part, columns)]
        if not columns:  # tables without columns lose their rows when they are put together
            return pd.DataFrame(index=range(sum(table.num_rows for table in tables)))
        schema = pa.schema([self.schema.field(name) for name in columns])
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        frame = self.frame_form.frame(table)
        del table, tables
        pa.default_memory_pool().release_unused()  # a worker of Dask counts it as in use
        return frame

    @cached_property
    def _groups(self) -> list[PublishedGroup]:
        """All row groups; the ends of the files are read for them."""
        groups: list[PublishedGroup] = []
        for file in (file for part in self._published.parts or () for file in part.files):
            if file.rows:
                path, folder = self._published.target / file.name, file.name.rpartition("/")[0]
                with self._unchanged(path):
                    count = groups_in(self._format, path)
                groups += [PublishedGroup(path, number, folder) for number in range(count)]
        return groups


def _gone(folder: JobFolder, target: Path | None) -> str:
    again = f"by {Option('resume', value=True)}"
    if target is None:
        return f"the job in {folder} has no data set yet. Go on with the job {again}."
    if target.exists():
        return (
            f"{target} has been replaced or changed since the job in {folder} published its data "
            "set there, such as by another job with overwrite=True. Read the rows that are there "
            f"now by the result of that job, or from the files. Or make those of this job {again}, "
            "which replaces what is there."
        )
    return (
        f"the data set that the job in {folder} published as {target} is gone: it was moved or "
        f"removed. Put it back, or make it again {again}."
    )


def _lost(folder: JobFolder, path: Path) -> str:
    return (
        f"the file {path} of the data set is gone: it was moved or removed. Put it back, or go on "
        f"with the job in {folder} by {Option('resume', value=True)}: what is gone is made again."
    )


def _file_state(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _values_in(folder: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values that the name of a folder has, as Hive writes them."""
    values = {}
    for part in folder.split("/") if folder else ():
        name, _, text = part.partition("=")
        type_ = schema.field(name).type
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
        text_ = pa.scalar(unquote(text), pa.string())
        values[name] = pa.scalar(None, type_) if text == NULL_FOLDER else text_.cast(type_)
    return values


@lru_cache(maxsize=MOST_READ)
def _published(path: str, state: JournalState) -> PublishedRows | None:
    """Return the rows of the data set that a job has published; None if it makes none."""
    folder = JobFolder(path)
    history = History(folder)
    format_ = history.forms.get("format")
    if not format_:
        return None
    last = history.publications[-1].target if history.publications else None
    published = publication_in_place(history, last)
    if published is None:
        raise JobFolderError(_gone(folder, last))
    errors = bool(history.forms.get("errors"))
    return PublishedRows(folder, state, published, str(format_), errors=errors)
