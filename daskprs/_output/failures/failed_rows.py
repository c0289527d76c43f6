"""The rows or files that failed by themselves, ``failed_rows.parquet``, made from the journals."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs._core.pieces import FailedItems
from daskprs._folders.job_lock import begun_epochs
from daskprs._output.journal.journal import lines, whole_line
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.history import FailedRowsOf

KIND = "failed rows"
_BEGINNING = f'["{KIND}"'.encode()
SCHEMA = pa.schema(
    [
        ("_position", pa.int64()),
        ("_mini_batch", pa.int64()),
        ("_number", pa.int64()),
        ("_status", pa.string()),
        ("_kind", pa.string()),
        ("_error", pa.string()),
        ("_traceback", pa.string()),
        ("_attempts", pa.int64()),
        ("_host", pa.string()),
        ("_process", pa.string()),
    ]
)
"""The columns before those of the input."""


class FailedRowsLog:
    """Keeps which committed mini-batches lack items, in this run and in earlier runs."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._known: dict[int, tuple[str, int]] = {}
        """Identity of each such mini-batch, and the number of these items, by its number."""

    def take_over(self, known: Mapping[int, FailedRowsOf]) -> None:
        """Take over the mini-batches of earlier runs, by number."""
        self._known = {index: one[:2] for index, one in known.items()}

    def items_of(self, index: int) -> int:
        """Return how many items a committed mini-batch lacks."""
        return self._known[index][1] if index in self._known else 0

    def records(
        self, mini_batches: Sequence[MiniBatch], outcomes: ColumnBatch[Outcome]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the journal records of commits that lack items, and take note of them."""
        column = outcomes.column("failed_rows")
        if not self._known and column.count(None) == len(column):
            return
        for mini_batch, failed in zip(mini_batches, column, strict=True):
            self._known.pop(mini_batch.index, None)
            if failed is None:
                continue
            count = sum(one.stop - one.start for one in failed.items)
            self._known[mini_batch.index] = mini_batch.identity, count
            written = base64.b64encode(failed.rows).decode()
            first = mini_batch.row_lower_bound
            yield KIND, mini_batch.identity, mini_batch.index, first, failed.items, written

    def write(self) -> None:
        """Write the table, or remove it where no row has failed; journals have been written out."""
        if not self._known:
            self._folder.failed_rows.unlink(missing_ok=True)
            return
        places = _places(self._folder, {identity for identity, _ in self._known.values()})
        tables = (
            _table(index, *_record(self._folder, *places[identity]))
            for index, (identity, _) in sorted(self._known.items())
        )
        # Columns of the input may differ from one mini-batch to the next: files of a folder, say.
        with whole_file(self._folder.failed_rows) as file:
            pq.write_table(pa.concat_tables(tables, promote_options="permissive"), file)


def _places(folder: JobFolder, wanted: set[str]) -> dict[str, tuple[int, int]]:
    """Return the epoch and the offset of the last record of each of these mini-batches."""
    found = {}
    for epoch in begun_epochs(folder):
        for offset, body in lines(folder.journal(epoch)):
            if body.startswith(_BEGINNING):
                _, identity, *_ = json.loads(body)
                if identity in wanted:
                    found[identity] = epoch, offset
    return found


def _record(folder: JobFolder, epoch: int, offset: int) -> tuple[Any, ...]:
    with open_regular(folder.journal(epoch)) as journal:
        journal.seek(offset)
        record = json.loads(whole_line(journal.readline()) or b"[]")
    return record[3], [FailedItems(*one) for one in record[4]], base64.b64decode(record[5])


def _table(index: int, first: int | None, failed: list[FailedItems], rows: bytes) -> pa.Table:
    ours = [
        {
            "_position": None if first is None else first + number,
            "_mini_batch": index,
            "_number": number,
            "_status": one.status,
            "_kind": one.kind,
            "_error": _in_utf8(one.message),
            "_traceback": _in_utf8(one.traceback),
            "_attempts": one.attempts,
            "_host": one.host,
            "_process": one.process,
        }
        for one in failed
        for number in range(one.start, one.stop)
    ]
    table = pa.Table.from_pylist(ours, SCHEMA)
    if rows:
        with pa.ipc.open_stream(rows) as stream:
            columns = stream.read_all()
        for name in columns.column_names:
            free = name if name not in SCHEMA.names else f"{name}_of_input"
            table = table.append_column(free, columns.column(name))
    return table


def _in_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
