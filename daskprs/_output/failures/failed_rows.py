"""The rows or files that failed by themselves, ``failed_rows.parquet``, made from the journals."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daskprs._arrow.mixed_tables import common_schema, in_schema, in_utf8
from daskprs._arrow.sizes import size_bytes
from daskprs._core.pieces import FailedItems, FailedRows
from daskprs._output.failures.attempt import ITEMS
from daskprs._output.journal.journal import record_at, records_of
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.history import FailedRowsOf

Made = tuple[int, int]
"""The epoch of a commit, and the number that its mini-batch had then."""
REPLACES = "replaces"
_LONG = pa.dictionary(pa.int32(), pa.string())
"""Text that a range of rows which failed as a whole has once, not once for each row."""
LONG = ("_error", "_traceback")
GROUP_BYTES = 8 << 20
"""Size of a group of rows in the table, about: the driver holds one at a time."""
SCHEMA = pa.schema(
    [
        ("_position", pa.int64()),
        ("_mini_batch", pa.int64()),
        ("_number", pa.int64()),
        ("_status", pa.string()),
        ("_kind", pa.string()),
        ("_error", _LONG),
        ("_traceback", _LONG),
        ("_attempts", pa.int64()),
        ("_host", pa.string()),
        ("_process", pa.string()),
    ]
)
"""The columns before those of the input."""


class FailedRowsLog:
    """Keeps which committed mini-batches lack items, in this run and in earlier runs."""

    def __init__(self, folder: JobFolder, epoch: int) -> None:
        self._folder = folder
        self._epoch = epoch
        self._known: dict[int, tuple[Made, int, int | None]] = {}
        """The commit of each such mini-batch, the number of these items, and its first row in the
        input of this run if known, by its number."""
        self._left: dict[int, FailedRowsOf] = {}
        """Those whose items are to be run again, and that no commit of this run has replaced."""

    @property
    def numbers(self) -> set[int]:
        """The numbers of the committed mini-batches that lack items."""
        return {*self._known}

    def take_over(self, known: Mapping[int, FailedRowsOf], *, run_again: bool = False) -> None:
        """Take over the mini-batches of earlier runs, by number.

        With `run_again`, just their failed items are to be run again.
        """
        self._known = {index: (one.made, one.items, None) for index, one in known.items()}
        self._left = dict(known) if run_again else {}

    def items_of(self, mini_batch: MiniBatch) -> int:
        """Return how many items a committed mini-batch lacks, and note where it is now."""
        index = mini_batch.index
        if index not in self._known:
            return 0
        made, count, _ = self._known[index]
        self._known[index] = made, count, mini_batch.row_lower_bound
        return count

    def left(self, index: int) -> FailedRowsOf | None:
        """Return what the commit of a mini-batch lacks, if just that is to be run again."""
        return self._left.get(index)

    @property
    def numbers_left(self) -> set[int]:
        """The numbers of the mini-batches of which just the failed items are to be run again."""
        return {*self._left}

    @property
    def count_settled(self) -> int:
        """Number of failed items of the other mini-batches."""
        return sum(items for index, (_, items, _) in self._known.items() if index not in self._left)

    def has_left(self, indexes: Iterable[int]) -> bool:
        """Return whether just the failed items of any of these mini-batches run again."""
        return bool(self._left) and not self._left.keys().isdisjoint(indexes)

    def records(
        self, mini_batches: Sequence[MiniBatch], column: Sequence[FailedRows | None]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the journal records of commits that lack items, and take note of them."""
        if not self._known and column.count(None) == len(column):
            return
        for mini_batch, failed in zip(mini_batches, column, strict=True):
            self._known.pop(mini_batch.index, None)
            replaced = self._left.pop(mini_batch.index, None)
            if replaced is not None:
                yield REPLACES, *replaced.made, mini_batch.index
            if failed is None:
                continue
            first = mini_batch.row_lower_bound
            made = self._epoch, mini_batch.index
            self._known[mini_batch.index] = made, failed.count, first
            written = base64.b64encode(failed.rows).decode()
            yield (
                ITEMS,
                mini_batch.identity,
                mini_batch.index,
                first,
                failed.items,
                written,
                failed.returned,
            )

    def write(self) -> None:
        """Write the table, or remove it where no row has failed; journals have been written out."""
        if not self._known:
            self._folder.failed_rows.unlink(missing_ok=True)
            return
        places = _places(self._folder, {made for made, *_ in self._known.values()})
        known = sorted(self._known.items())

        def tables() -> Iterator[pa.Table]:
            for index, (made, _, now) in known:
                first, failed, rows = _record(self._folder, made[0], places[made])
                # Rows may have come before it since, in a run that extended the job.
                yield table_of(index, first if now is None else now, failed, rows)

        # Columns of the input may differ from one mini-batch to the next: files of a folder, say.
        # So tables are made twice.
        schema = common_schema(one.schema for one in tables())
        with (
            whole_file(self._folder.failed_rows) as file,
            pq.ParquetWriter(file, schema, dictionary_pagesize_limit=GROUP_BYTES) as writer,
        ):
            for group in _groups(in_schema(one, schema) for one in tables()):
                writer.write_table(group)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables put together to groups of rows of a size that fits the memory."""
    some: list[pa.Table] = []
    size = 0
    for table in tables:
        some.append(table)
        size += size_bytes(table)
        if size >= GROUP_BYTES:
            yield pa.concat_tables(some).unify_dictionaries()
            some, size = [], 0
    if some:
        yield pa.concat_tables(some).unify_dictionaries()


def _places(folder: JobFolder, wanted: set[Made]) -> dict[Made, int]:
    """Return the offset of the record before each of these commits.

    A later epoch may have died between such a record and its commit.
    """
    found = {}
    for epoch, offset, (_, _, index, *_) in records_of(folder, ITEMS):
        if (epoch, index) in wanted:
            found[epoch, index] = offset
    return found


def _record(folder: JobFolder, epoch: int, offset: int) -> tuple[Any, ...]:
    with open_regular(folder.journal(epoch)) as journal:
        record = record_at(journal, offset)
    return record[3], [FailedItems(*one) for one in record[4]], base64.b64decode(record[5])


def table_of(index: int, first: int | None, failed: list[FailedItems], rows: bytes) -> pa.Table:
    """Return the rows of the table for one mini-batch, whose first row is `first` of the input."""
    sizes = [one.stop - one.start for one in failed]
    numbers = np.concatenate([np.arange(one.start, one.stop) for one in failed])
    of = np.repeat(np.arange(len(failed)), sizes)
    ours = {
        "_position": [None] * len(numbers) if first is None else first + numbers,
        "_mini_batch": np.full(len(numbers), index),
        "_number": numbers,
        "_attempts": np.array([one.attempts for one in failed])[of],
    }
    texts = {
        "_status": [one.status for one in failed],
        "_kind": [in_utf8(one.kind) for one in failed],
        "_error": [in_utf8(one.message) for one in failed],
        "_traceback": [in_utf8(one.traceback) for one in failed],
        "_host": [one.host for one in failed],
        "_process": [one.process for one in failed],
    }
    columns: dict[str, Any] = {name: pa.array(ours[name], pa.int64()) for name in ours}
    for name, values in texts.items():
        array = pa.array(values, pa.string())
        columns[name] = (array.dictionary_encode() if name in LONG else array).take(pa.array(of))
    table = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    if not rows:
        return table
    with pa.ipc.open_stream(rows) as stream:
        given = stream.read_all()
    for name in given.column_names:
        free = name
        while free in table.column_names or (free != name and free in given.column_names):
            free += "_of_input"
        table = table.append_column(free, given.column(name))
    return table
