"""The table of failed mini-batches, ``failed.parquet``, made from the journals.

The table has the attempts of all runs of a job. Memory holds the journal offsets of all attempts,
but the tracebacks of only some hundred mini-batches at a time.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs._arrow.mixed_tables import in_utf8
from daskprs._output.failures.attempt import ATTEMPTS, Attempt, Item
from daskprs._output.journal.journal import record_at, records_of
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daskprs._folders.job_folder import JobFolder

Place = tuple[int, int]
"""The epoch of a record, and the offset in its journal."""
AT_A_TIME = 500
ATTEMPT = pa.struct(
    [
        ("run", pa.int64()),
        ("attempt", pa.int64()),
        ("status", pa.string()),
        ("kind", pa.string()),
        ("message", pa.string()),
        ("traceback", pa.string()),
        ("charged", pa.bool_()),
        ("started", pa.timestamp("us", tz="UTC")),
        ("elapsed_s", pa.float64()),
        ("run_s", pa.float64()),
        ("node", pa.int64()),
        ("process", pa.string()),
        ("host", pa.string()),
        ("pid", pa.int64()),
        ("peak_bytes", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("mini_batch", pa.int64()),
        ("label", pa.string()),
        ("items", pa.int64()),
        ("error", pa.string()),
        ("paths", pa.list_(pa.string())),
        ("row_group", pa.int64()),
        ("first_row", pa.int64()),
        ("end_row", pa.int64()),
        ("first_byte", pa.int64()),
        ("end_byte", pa.int64()),
        ("partition_key", pa.map_(pa.string(), pa.string())),
        ("attempts", pa.list_(ATTEMPT)),
    ]
)


def write_failed(folder: JobFolder, failed: Mapping[int, str]) -> None:
    """Write the table, whole or not at all; the journals have been written out.

    `failed` has the numbers of the failed mini-batches in the current plan, and their identities,
    by which their attempts are found.
    """
    found = _attempts(folder, set(failed.values()))
    with ExitStack() as stack:
        file = stack.enter_context(whole_file(folder.failed))
        writer = stack.enter_context(pq.ParquetWriter(file, SCHEMA))
        journals = {
            epoch: stack.enter_context(open_regular(folder.journal(epoch)))
            for epoch in {epoch for places in found.values() for epoch, _ in places}
        }
        rows = (_row(index, found[failed[index]], journals) for index in sorted(failed))
        while some := list(islice(rows, AT_A_TIME)):
            writer.write_table(pa.Table.from_pylist(some, SCHEMA))


def _attempts(folder: JobFolder, failed: Collection[str]) -> dict[str, list[Place]]:
    """Return the places of the attempt records of each failed mini-batch."""
    found: dict[str, list[Place]] = {identity: [] for identity in failed}
    for epoch, offset, (_, identity, *_) in records_of(folder, *ATTEMPTS):
        if identity in found:
            found[identity].append((epoch, offset))
    return found


def _row(index: int, places: list[Place], journals: Mapping[int, IO[bytes]]) -> dict[str, Any]:
    records = [_in_utf8(record_at(journals[epoch], offset)) for epoch, offset in places]
    # A mini-batch that is given up after a search for its bad items has its last attempt twice.
    attempts = {
        (epoch, attempt.attempt): attempt
        for (epoch, _), attempt in zip(
            places, (Attempt(*record[3]) for record in records), strict=True
        )
    }
    item = next(Item(**record[4]) for record in reversed(records) if record[4] is not None)
    first_row, end_row = item.rows or (None, None)
    first_byte, end_byte = item.bytes or (None, None)
    return {
        "mini_batch": index,
        "label": item.label,
        "items": item.items,
        "error": Attempt(*records[-1][3]).error,
        "paths": item.paths,
        "row_group": item.row_group,
        "first_row": first_row,
        "end_row": end_row,
        "first_byte": first_byte,
        "end_byte": end_byte,
        "partition_key": [(str(name), value) for name, value in item.partition_key],
        "attempts": [
            {
                "run": epoch,
                **attempt._asdict(),
                "started": datetime.fromtimestamp(attempt.started, UTC),
            }
            for (epoch, _), attempt in attempts.items()
        ],
    }


def _in_utf8(value: Any) -> Any:
    """Return JSON values whose text can be encoded as UTF-8: a path may hold any bytes."""
    match value:
        case str():
            return in_utf8(value)
        case list():
            return [_in_utf8(one) for one in value]
        case dict():
            return {name: _in_utf8(one) for name, one in value.items()}
    return value
