"""Frames that the caller holds: written once to a file that agents map."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from daskprs.core.mini_batch import MiniBatch
from daskprs.job_folder import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

    from daskprs.inputs.source import Unit

ROWS_IN_A_BATCH = 65_536
"""Rows of a record batch of the file: it is written in pieces, never as a second copy."""


class FrameSource:
    """Cuts a frame by rows: size ÷ mean Arrow bytes of a row, whatever pandas' version.

    Parameters
    ----------
    table
        The frame, as Arrow gives it back exactly.
    size_bytes
        Bytes of a mini-batch.
    meta
        The frame that agents see, without rows.

    """

    unit: Unit = "row"

    def __init__(self, table: pa.Table, size_bytes: int, meta: pd.DataFrame) -> None:
        self._table = table
        self._meta = meta
        mean = max(1.0, table.nbytes / max(1, table.num_rows))
        self._rows = max(1, int(size_bytes / mean))
        self._total: int = table.num_rows
        self._row_bytes = mean
        self._digest = ""
        self._path = ""

    def prepare(self, scratch: Path) -> None:
        """Write the file, and let go of the frame."""
        path = scratch / "frame.arrow"
        with whole_file(path) as file, pa.ipc.new_file(file, self._table.schema) as writer:
            for batch in self._table.to_batches(max_chunksize=ROWS_IN_A_BATCH):
                writer.write_batch(batch)
        self._path = str(path)
        with path.open("rb") as file:
            self._digest = hashlib.file_digest(file, "blake2b").hexdigest()[:24]
        self._table = self._table.slice(0, 0)

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of rows (after `prepare`)."""
        for one in row_slices(self._total, self._rows, self._digest):
            start, count = one.row_lower_bound or 0, one.items or 0
            yield one._replace(piece=(start, count), size_bytes=int(count * self._row_bytes))

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return -(-self._total // self._rows)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on (after `prepare`)."""
        return {"kind": "frame", "content": self._digest, "rows": self._rows}

    def reader(self) -> FrameReader:
        """Return the reader for the agents (after `prepare`)."""
        return FrameReader(self._path)

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows."""
        return self._meta

    @property
    def path_names(self) -> list[str]:
        """Return nothing: a frame has no path."""
        return []

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return nothing: a frame has no path."""
        del mini_batch
        return {}


def row_slices(total: int, rows: int, digest: str) -> Iterator[MiniBatch]:
    """Yield mini-batches of so many rows each; where their rows lie is filled in by the source."""
    for index, start in enumerate(range(0, total, rows)):
        stop = min(start + rows, total)
        yield MiniBatch(
            index=index,
            piece=None,
            identity=f"{digest}:{start}-{stop}",
            items=stop - start,
            row_lower_bound=start,
            label=f"rows {start}-{stop}",
        )


class FrameReader:
    """Slices the mapped file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._table: pa.Table | None = None

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a slice, with a new index."""
        frame: pd.DataFrame = self.load_table(mini_batch).to_pandas()
        return frame

    def load_table(self, mini_batch: MiniBatch) -> pa.Table:
        """Return the rows of a slice."""
        if self._table is None:
            with pa.memory_map(self._path) as file:
                self._table = pa.ipc.open_file(file).read_all()
        start, count = mini_batch.piece
        return self._table.slice(start, count)

    def close(self) -> None:
        """Unmap the file."""
        self._table = None


def arrow_of(frame: pd.DataFrame) -> pa.Table | None:
    """Return a frame as Arrow, if Arrow gives back the very same frame."""
    labels = frame.columns
    if labels.has_duplicates or not all(isinstance(label, str) for label in labels):
        return None
    if any(dtype.kind == "O" and isinstance(dtype, np.dtype) for dtype in frame.dtypes):
        return None
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    back = table.slice(0, 1).to_pandas()
    same = list(back.dtypes) == list(frame.dtypes) and list(back.columns) == list(labels)
    return table if same else None
