"""The attempts of a job as columns of numbers, read from its table in pieces."""

from __future__ import annotations

import heapq
import json
import os
from typing import IO, TYPE_CHECKING, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from daskprs._core.outcomes import Status
from daskprs._page.causes import Causes
from daskprs._report.attempts import COLUMNS
from daskprs._report.evidence import NO_PROCESS
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._folders.job_folder import JobFolder

BLOCK_BYTES = 4 << 20
MOST_SLOW = 10
TAIL_BYTES = 1 << 20
"""Bytes in which the end of the last whole row lies: a driver that writes may have half of one."""
IS_FINAL = rb'^\{"run": \d+, "final": true'
IS_AGAIN = IS_FINAL + rb', "charged": true, "again": true'
"""A row of an attempt that has one already, since its mini-batch was given up later."""
READ = {
    "Mini-batch Id": pa.int64(),
    "Picked Count": pa.int32(),
    "Node Id": pa.int32(),
    "Process": pa.string(),
    "Process Start Time": pa.timestamp("us", "UTC"),
    "Total": pa.int64(),
    "Succeeded": pa.int64(),
    "Elapsed Seconds": pa.float32(),
    "Run Method Seconds": pa.float32(),
    "Status": pa.string(),
    "Error Category": pa.binary(),
    "Mini-batch Detail": pa.binary(),
}
"""The columns that are read. Text that a script has made may be no UTF-8."""
MEASURED = rb'"loading_seconds": (?P<load>[0-9.]+), "peak_memory_mb": (?P<peak>[0-9.]+|null)'


class Attempts(NamedTuple):
    """Some attempts."""

    mini_batch: np.ndarray
    """The numbers of their mini-batches."""
    process: np.ndarray
    """The numbers of their processes among the names of the table."""
    started: np.ndarray
    """Seconds since the epoch."""
    items: np.ndarray
    """How many items succeeded."""
    elapsed_s: np.ndarray
    run_s: np.ndarray
    load_s: np.ndarray
    """How long they waited for their input."""
    peak_mb: np.ndarray
    """Highest memory during the attempt; NaN where it is unknown."""
    is_done: np.ndarray
    """Whether they succeeded."""
    is_final: np.ndarray
    """Whether they decided the fate of their mini-batches."""
    is_retry: np.ndarray
    """Whether there had been another attempt before."""

    @property
    def ended(self) -> np.ndarray:
        """Seconds since the epoch, when they ended."""
        ended: np.ndarray = self.started + self.elapsed_s
        return ended


class Slow(NamedTuple):
    """An attempt that took long."""

    elapsed_s: float
    load_s: float
    run_s: float
    mini_batch: int
    items: int
    label: str
    """What part of the input it had."""
    process: str


class AttemptTable(NamedTuple):
    """All attempts of a job so far."""

    attempts: Attempts
    processes: list[str]
    """Node and process, such as ``0/process001``, by the numbers of the attempts."""
    causes: Causes
    slowest: list[Slow]
    """Those that succeeded and took longest, the slowest first."""

    @classmethod
    def of(cls, folder: JobFolder) -> Self:
        """Read the table of a job; without one there are no attempts."""
        names: dict[str, int] = {}
        causes, slowest, pieces = Causes(), list[Slow](), []
        for block in _blocks(folder):
            piece = _piece(block, names)
            failed = ~piece.is_done
            causes.add(block.filter(pa.array(failed)), piece.is_final[failed])
            slowest = heapq.nlargest(MOST_SLOW, [*slowest, *_slow(block, piece, names)])
            if (piece.is_final & failed).any():
                again = pc.match_substring_regex(block.column("Mini-batch Detail"), IS_AGAIN)
                told = ~again.to_numpy(zero_copy_only=False)
                piece = Attempts(*(each[told] for each in piece))
            pieces.append(piece)
        columns = zip(*(pieces or [_nothing()]), strict=True)
        return cls(Attempts(*map(np.concatenate, columns)), list(names), causes, slowest)


def _nothing() -> Attempts:
    whole, flag, share = np.empty(0, np.int64), np.empty(0, bool), np.empty(0, np.float32)
    return Attempts(whole, whole, np.empty(0), whole, share, share, share, share, flag, flag, flag)


def _blocks(folder: JobFolder) -> Iterator[pa.RecordBatch]:
    try:
        file = open_regular(folder.attempts)
    except FileNotFoundError:
        return
    try:
        with file:
            size = _whole_rows(file)
            if not size:
                return
            with csv.open_csv(
                pa.PythonFile(_Beginning(file, size), mode="r"),
                csv.ReadOptions(block_size=BLOCK_BYTES),
                csv.ParseOptions(invalid_row_handler=lambda _: "skip"),
                csv.ConvertOptions(column_types=READ, include_columns=[*READ]),
            ) as blocks:
                yield from blocks
    except pa.ArrowInvalid as error:
        msg = (
            f"{folder.attempts}: it has what daskprs does not write: {error}. Restore the table, "
            "or move it away: the report is made without it then."
        )
        raise JobFolderError(msg) from error


def _whole_rows(file: IO[bytes]) -> int:
    """Return the size of the whole rows of a table; 0 where it has none, or those of others."""
    header = ",".join(COLUMNS).encode() + b"\n"
    if file.read(len(header)) != header:
        return 0
    size = file.seek(0, os.SEEK_END)
    at = file.seek(max(0, size - TAIL_BYTES))
    end = at + file.read(size - at).rfind(b"\n") + 1
    file.seek(0)
    return end if end > len(header) else 0


class _Beginning:
    """The first bytes of a file, which may grow meanwhile."""

    closed = False

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        piece = self._file.read(min(size, self._left))
        self._left -= len(piece)
        return piece


def _slow(block: pa.RecordBatch, piece: Attempts, names: dict[str, int]) -> Iterator[Slow]:
    """Yield the slowest of some attempts."""
    elapsed_s = np.where(piece.is_done, piece.elapsed_s, -1.0)
    processes = [*names]
    for at in np.argsort(elapsed_s)[-MOST_SLOW:].tolist():
        if piece.is_done[at]:
            label = json.loads(block.column("Mini-batch Detail")[at].as_py()).get("label", "")
            yield Slow(
                float(elapsed_s[at]),
                float(piece.load_s[at]),
                float(piece.run_s[at]),
                int(piece.mini_batch[at]),
                block.column("Total")[at].as_py(),
                label,
                processes[piece.process[at]],
            )


def _piece(block: pa.RecordBatch, names: dict[str, int]) -> Attempts:
    """Return a block of the table as numbers."""
    status, detail = block.column("Status"), block.column("Mini-batch Detail")
    is_done = pc.equal(status, Status.RUN_DONE.value)
    is_final = pc.match_substring_regex(detail, IS_FINAL)
    measured = pc.extract_regex(detail, MEASURED)
    peak = pc.struct_field(measured, "peak")
    peak = pc.if_else(pc.equal(peak, b"null"), pa.scalar(None, pa.binary()), peak)
    started = block.column("Process Start Time").cast(pa.int64())
    return Attempts(
        block.column("Mini-batch Id").to_numpy(),
        _processes(block.column("Node Id"), block.column("Process"), names),
        started.to_numpy() / 1e6,
        block.column("Succeeded").to_numpy(),
        block.column("Elapsed Seconds").to_numpy(),
        block.column("Run Method Seconds").to_numpy(),
        np.nan_to_num(_numbers(pc.struct_field(measured, "load"))),
        _numbers(peak),
        is_done.to_numpy(zero_copy_only=False),
        is_final.to_numpy(zero_copy_only=False),
        block.column("Picked Count").to_numpy() > 1,
    )


def _numbers(texts: pa.Array) -> np.ndarray:
    """Return numbers from text; NaN where there is none."""
    numbers: np.ndarray = texts.cast(pa.string()).cast(pa.float32()).to_numpy(zero_copy_only=False)
    return numbers


def _processes(nodes: pa.Array, processes: pa.Array, names: dict[str, int]) -> np.ndarray:
    """Return the number of each process by name, and give new ones a number; -1: no process."""
    text = pc.binary_join_element_wise(nodes.cast(pa.string()), processes, "/").dictionary_encode()
    numbers = [
        -1 if name.endswith(NO_PROCESS) else names.setdefault(name, len(names))
        for name in text.dictionary.to_pylist()
    ]
    by_name: np.ndarray = np.array(numbers, np.int64)[text.indices.to_numpy()]
    return by_name
