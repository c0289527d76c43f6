"""Data sets, read back as a reader of files would, by their names."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from daskprs._output.dataset.part_attempt import PartAttempt, write_aside
from daskprs._output.dataset.part_file import PartPlan, RowsFile, Sources
from daskprs._output.rows.row_schema import RowSchema
from daskprs._output.spec import OutputSpec
from tests.support.formatted import format_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._output.journal.history import PublishedPart

PARQUET = OutputSpec(text=True, typed=False, format="parquet", file_size_bytes=3_000)
"""Two or three of the mini-batches that `store_driver` makes fill a part."""


def manifest(target: Path) -> dict[str, Any]:
    """Return what a data set says of itself."""
    content: dict[str, Any] = json.loads((target / "_manifest.json").read_text())
    return content


def files_in(target: Path) -> list[str]:
    """Return the names of all files but the manifest, in their order."""
    files = (str(one.relative_to(target)) for one in target.rglob("*") if one.is_file())
    return sorted(name for name in files if name != "_manifest.json")


def table_of(target: Path) -> pa.Table:
    """Return the rows of a Parquet data set; the manifest has to name the same files."""
    names = files_in(target)
    told = manifest(target)
    assert sorted(one["path"] for one in told["files"]) == names
    tables = [pq.read_table(target / name, partitioning=None) for name in names]
    rows = {one["path"]: one["rows"] for one in told["files"]}
    assert [rows[name] for name in names] == [table.num_rows for table in tables]
    return pa.concat_tables(tables)


def part_plan(folder: Path, results: list[Any], format_: Any = "parquet") -> PartPlan:
    """Return the plan of a part of what `run` returned for mini-batches."""
    spool, sources, schema = folder / "spool", Sources.none(), RowSchema()
    with spool.open("wb") as file:
        for index, result in enumerate(results):
            rows = format_result(result, PARQUET._replace(format=format_))
            assert rows.text is not None
            sources.add(index, 0, file.tell(), rows.text.length, rows.text.checksum)
            file.write(rows.payload)
            if isinstance(result, (pa.Table, pd.DataFrame)):
                table = result if isinstance(result, pa.Table) else pa.Table.from_pandas(result)
                schema.add(table.schema, index)
    (folder / "set").mkdir()
    return PartPlan(
        str(folder / "set"), "part", format_, schema, None, (), [RowsFile(str(spool))], sources
    )


def text_of(target: Path) -> bytes:
    """Return the rows of a Parquet data set as lines of text."""
    text: str = table_of(target).to_pandas().to_csv(sep=" ", header=False, index=False)
    return text.encode()


class AtOnce(Executor):
    """Does what it is given in the thread of its caller."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future has it
            future.set_exception(error)
        return future


class AsideAtOnce(AtOnce):
    """Writes parts as a worker does, aside, and takes them, in the thread of its caller."""

    def __init__(self, attempts: Path) -> None:
        self._attempts = attempts
        self._number = 0
        attempts.mkdir(exist_ok=True)

    def submit(self, _: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Write a part."""
        del kwargs
        return super().submit(self._written, args[0])

    def _written(self, plan: PartPlan) -> PublishedPart:
        self._number += 1
        made = write_aside(str(self._attempts), self._number, pickle.dumps(plan))
        attempt = PartAttempt.parsed(made, self._number)
        assert attempt.is_whole(self._attempts)
        return attempt.put(self._attempts, plan)
