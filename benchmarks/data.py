"""What the workloads work on: made from fixed seeds, once for each scale."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.faulty import DIES_AT, HANGS_AT, RAISES_AT
from benchmarks.frames import expected_total
from benchmarks.lazy_frames import PARTITION_ROWS, LazyFrame, partition
from benchmarks.work import FEATURES, score

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXPECTED_FILE = "expected.json"
ROW_GROUP_ROWS = 250_000
PARTITION_S = 0.3
KEY_CHARACTERS = 32
ROWS_OF_A_KEY = 2_000
ARRAY_SIDE = 32
CSV_SHARES = (0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01)
"""How uneven the CSV files are."""
SEED = 20_260
Expected = dict[str, float]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Something to work on.

    Parameters
    ----------
    name
        Of its folder.
    make
        Writes so many rows or files to a path, and returns what a right output adds up to.
    count
        Rows, files or keys at scale 1.
    scaled
        Whether a scale changes the count.
    file
        The name of the input: its suffix may say what it is.

    """

    name: str
    make: Callable[[Path, int], Expected]
    count: int
    scaled: bool = True
    file: str = "input"

    def count_at(self, scale: float) -> int:
        """Return how many rows, files or keys there are at a scale."""
        return max(10, round(self.count * scale)) if self.scaled else self.count

    def made(self, folder: Path, scale: float) -> tuple[Path, Expected]:
        """Return the data and what is expected of it; it is made if it is not there, whole."""
        count = self.count_at(scale)
        home = folder / f"{self.name}-{count}"
        if not (home / EXPECTED_FILE).exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            expected = self.make(home / self.file, count)
            (home / EXPECTED_FILE).write_text(json.dumps(expected))
        return home / self.file, json.loads((home / EXPECTED_FILE).read_text())


def empty_files(folder: Path, count: int) -> Expected:
    """Make files of nothing."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07d}").touch()
    return {"rows": count}


def faulty_files(folder: Path, count: int) -> Expected:
    """Make files whose names say what happens to who works on them."""
    folder.mkdir()
    deeds = {count * DIES_AT // 100: "die", count * HANGS_AT // 100: "hang"}
    for number in range(count):
        deed = deeds.get(number, "raise" if number % 100 == RAISES_AT else "work")
        (folder / f"{number:07d}.{deed}").touch()
    culprits = sum(1 for path in folder.iterdir() if path.suffix != ".work")
    return {"rows": count, "culprits": culprits}


def small_arrays(folder: Path, count: int) -> Expected:
    """Make small square arrays, one in a file."""
    folder.mkdir()
    random = np.random.default_rng(SEED)
    total = 0.0
    for number in range(count):
        array = random.random((ARRAY_SIDE, ARRAY_SIDE), dtype=np.float32)
        np.save(folder / f"{number:07d}.npy", array)
        total += float(np.linalg.svd(array, compute_uv=False)[0])
    return {"rows": count, "total": total}


def scored_parquet(path: Path, rows: int) -> Expected:
    """Make a table of an id, a key as text and seven features: 100 bytes a row."""
    expected: Expected = {"rows": 0, "total": 0.0, "crossed": 0.0}
    with pq.ParquetWriter(path, _scored_table(0, 1).schema, use_dictionary=False) as writer:
        for first in range(0, rows, ROW_GROUP_ROWS):
            table = _scored_table(first, min(ROW_GROUP_ROWS, rows - first))
            writer.write_table(table)
            _add_scores(expected, table.to_pandas())
    return expected


def scored_csv(folder: Path, rows: int) -> Expected:
    """Make uneven CSV files of an id and seven features."""
    folder.mkdir()
    expected: Expected = {"rows": 0, "total": 0.0, "crossed": 0.0}
    edges = (np.cumsum([0.0, *CSV_SHARES]) * rows).round().astype(int).tolist()
    for number, (first, stop) in enumerate(pairwise(edges)):
        with (folder / f"part-{number:02d}.csv").open("wb") as file:
            for begin in range(first, stop, ROW_GROUP_ROWS):
                frame = _features(begin, min(ROW_GROUP_ROWS, stop - begin)).round(6)
                options = csv.WriteOptions(include_header=begin == first)
                csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), file, options)
                _add_scores(expected, frame)
    return expected


def unsorted_keys(path: Path, keys: int) -> Expected:
    """Make a table in which the rows of each key lie anywhere."""
    random = np.random.default_rng(SEED)
    order = random.permutation(np.repeat(np.arange(keys), ROWS_OF_A_KEY))
    slopes = np.column_stack([np.arange(keys) / keys, -np.ones(keys), np.arange(keys) % 7])
    features = random.normal(size=(len(order), 3))
    columns = {"key": order, **{f"x{number}": features[:, number] for number in range(3)}}
    columns["y"] = (features * slopes[order]).sum(axis=1) + random.normal(0, 0.1, len(order))
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP_ROWS, use_dictionary=False)
    return {"keys": keys, "rows_of_a_key": ROWS_OF_A_KEY}


def no_input(path: Path, rows: int) -> Expected:
    """Make nothing: the frame is made in the process that holds it."""
    path.touch()
    return {"rows": rows, "total": expected_total(rows)}


def busy_partitions(path: Path, count: int) -> Expected:
    """Describe a lazy frame whose partitions take processor time."""
    return lazy_frame(path, LazyFrame(count, busy_s=PARTITION_S))


def waiting_partitions(path: Path, count: int) -> Expected:
    """Describe a lazy frame whose partitions take time without the processor."""
    return lazy_frame(path, LazyFrame(count, waiting_s=PARTITION_S))


def lazy_frame(path: Path, frame: LazyFrame) -> Expected:
    """Describe a lazy frame."""
    frame.save(path)
    parts = (partition(number, 0, 0) for number in range(frame.count))
    total = sum(float(part["x0"].sum()) for part in parts)
    return {"rows": frame.count * PARTITION_ROWS, "total": total}


def _features(first: int, rows: int) -> pd.DataFrame:
    random = np.random.default_rng([SEED, first])
    columns = {name: random.normal(size=rows) for name in FEATURES}
    return pd.DataFrame({"id": np.arange(first, first + rows), **columns})


def _scored_table(first: int, rows: int) -> pa.Table:
    random = np.random.default_rng([SEED, first, 1])
    text = random.bytes(rows * KEY_CHARACTERS // 2).hex().encode()
    offsets = np.arange(0, (rows + 1) * KEY_CHARACTERS, KEY_CHARACTERS, dtype=np.int32)
    keys = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    table = pa.Table.from_pandas(_features(first, rows), preserve_index=False)
    return table.add_column(1, "key", keys).replace_schema_metadata(None)


def _add_scores(expected: Expected, frame: pd.DataFrame) -> None:
    """Add what a right output adds up to: a second sum catches scores that were mixed up."""
    scores = score(frame)
    expected["rows"] += len(frame)
    expected["total"] += float(scores["score"].sum())
    expected["crossed"] += float((scores["score"] * (scores["id"] % 1009)).sum())
