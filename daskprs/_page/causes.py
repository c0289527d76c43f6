"""The failures of a job by their cause: errors that differ only by numbers and quotes are one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from daskprs._core.outcomes import Failure
from daskprs._report.script_errors import KINDS_KEPT, shape
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.process_lives import Life


BATCH_ROWS = 4_096
"""Rows that are read at a time: each may have a traceback."""


@dataclass(slots=True)
class Cause:
    """Failures of one kind."""

    error: str
    """The first error of the kind, as the last line of a traceback has it."""
    where: str
    """What had it first: a mini-batch with its part of the input, or a process."""
    mini_batch: int | None = None
    """The mini-batch that had it first; None for an error of an import or of `init`."""
    item: int | None = None
    """The number in it of the item that failed alone; None: it failed as a whole."""
    log: str = ""
    """The log with its traceback, below the log folder; empty where `evidence` has it."""
    evidence: str = ""
    attempts: int = 0
    """Number of attempts, items or processes that failed so."""
    given_up: int = 0
    """Number of mini-batches, or of items, that were given up by it."""
    nodes: set[int] = field(default_factory=set)
    """The nodes on which it came."""

    def replay(self, command: str) -> str:
        """Return the command that runs what had it first again; empty if none can."""
        if not command or self.mini_batch is None:
            return ""
        rows = "" if self.item is None else f" --rows {self.item}:{self.item + 1}"
        return f"{command} --mini-batch {self.mini_batch}{rows}"


@dataclass(slots=True)
class Causes:
    """Counts failures by their cause."""

    by_shape: dict[tuple[str, str], Cause] = field(default_factory=dict)
    others: int = 0
    """Number of failures of more kinds than are kept."""

    def add(self, rows: pa.RecordBatch, is_final: Sequence[bool]) -> None:
        """Add rows of the table of attempts, and whether their mini-batches were given up."""
        names = ("Mini-batch Id", "Node Id", "Status", "Error Category", "Mini-batch Detail")
        columns = (rows.column(name).to_pylist() for name in names)
        for *row, final in zip(*columns, is_final, strict=True):
            index, node, status, category, detail = row
            said: dict[str, Any] = json.loads(detail)
            kind = (category or b"").decode(errors="replace") or status
            # The column of the message has all of its lines as one.
            cause = self.of(kind, said.get("error", "").removeprefix(f"{kind}: "))
            if cause is None:
                continue
            if not cause.attempts or (final and not cause.given_up):  # what decides is shown
                cause.error = said.get("error") or status
                cause.mini_batch, cause.log = index, said.get("log", "")
                cause.where = f"mini-batch {index} ({said.get('label', '')})"
            cause.attempts += not said.get("again", False)
            cause.nodes.add(node)
            cause.given_up += bool(final)

    def of(self, kind: str, message: str) -> Cause | None:
        """Return the cause of an error; None if it is of more kinds than are kept."""
        failure = Failure(kind, message)
        key = shape(failure)
        if key not in self.by_shape:
            if len(self.by_shape) == KINDS_KEPT:
                self.others += 1
                return None
            self.by_shape[key] = Cause(str(failure), "")
        return self.by_shape[key]

    def __iter__(self) -> Iterator[Cause]:
        """Yield the causes: first those by which most was given up."""
        yield from sorted(self.by_shape.values(), key=lambda one: (-one.given_up, -one.attempts))


def causes_of_items(folder: JobFolder, unit: str) -> Causes:
    """Return the causes of the items without which mini-batches are done."""
    causes = Causes()
    try:
        file = open_regular(folder.failed_rows)
    except FileNotFoundError:
        return causes
    names = ("_position", "_mini_batch", "_number", "_status", "_kind", "_error", "_traceback")
    with file, parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(BATCH_ROWS, columns=[*names]):
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                position, index, number, status, kind, error, traceback = row
                cause = causes.of(kind or status, error or "")
                if cause is None:
                    continue
                if not cause.attempts:
                    cause.mini_batch, cause.item = index, number
                    cause.evidence = traceback or ""
                    cause.where = f"{unit} {number} of mini-batch {index}"
                    if position is not None:
                        cause.where = f"{unit} {position} of the input, in mini-batch {index}"
                cause.attempts += 1
                cause.given_up += 1
    return causes


def paths_of(folder: JobFolder, mini_batch: int) -> list[str]:
    """Return the files of a mini-batch that was given up, as the table of those has them."""
    try:
        file = open_regular(folder.failed)
    except FileNotFoundError:
        return []
    # Not by filters: the threads that Arrow has for them abort some processes at their end.
    with file, parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(columns=["mini_batch", "paths"], use_threads=False):
            numbers, paths = batch.columns
            for number, files in zip(numbers.to_pylist(), paths.to_pylist(), strict=True):
                if number == mini_batch:
                    return [*map(str, files)]
    return []


def causes_of_starts(lives: list[Life]) -> Causes:
    """Return the errors of imports and of `init`."""
    causes = Causes()
    for life in lives:
        kind, _, message = life.error.partition(": ")
        cause = causes.of(kind, message) if life.error else None
        if cause is None:
            continue
        if not cause.attempts:
            cause.where, cause.log = (
                f"import or init(), in {life.name}",
                f"user/error/{life.name}.txt",
            )
        cause.attempts += 1
        cause.nodes.add(int(life.name.partition("/")[0]))
    return causes
