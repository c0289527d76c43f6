"""Kept rows for libraries that read lazily: partitions for Dask, batches for polars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as is_

from daskprs._arrow.arrow_polars import polars_frame
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.rows_seal import rows_key
from daskprs._output.kept_rows import KeptPart, KeptRows
from daskprs._output.published_rows import rows_of
from daskprs._system.seal import NO_KEY, SealKey
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    import polars as pl

    from daskprs._output.kept_rows import JournalState, SettledSchema
    from daskprs._output.published_rows import PublishedRows

PARTITION_BYTES = 64 << 20
"""Most bytes of kept rows in a partition, unless one mini-batch has more."""


@dataclass(frozen=True)
class PartReader:
    """Reads a part of a result, in any process that sees the job folder."""

    job_dir: str
    plans: int
    """The number of plans that the parts belong to: a later one numbers mini-batches anew. For a
    data set, the checksum of its manifest."""
    state: JournalState
    """The journals at the time of the call: other rows make other keys of Dask."""
    settled: SettledSchema | None = None
    """The schema that the call has settled: no task reads the rows of others for it."""
    key: SealKey = NO_KEY
    """The key of the rows: a worker may have another user's."""
    is_trusted: bool = False
    """Whether Python objects are loaded whoever has written them."""
    texts: frozenset[str] = frozenset()
    """The columns of text, which get the type that Dask gives to text."""

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what tells readers apart; the schema is made of the same rows."""
        return type(self).__name__, self.job_dir, self.plans, self.state

    def __call__(self, part: KeptPart, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of the rows of a part."""
        kept = rows_of(JobFolder(self.job_dir, self.key, is_trusted=self.is_trusted))
        if kept.plans != self.plans:
            msg = (
                f"the job in {self.job_dir} went on, and its rows are not those of before. Call "
                "to_dask_dataframe() again."
            )
            raise JobFolderError(msg)
        if isinstance(kept, KeptRows) and self.settled is not None and kept.state == self.state:
            kept.settled = self.settled
        return self.as_dask_has_it(kept.frame(part, columns))

    def as_dask_has_it(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame whose columns of text have Dask's type for text."""
        return frame.astype({name: "string[pyarrow]" for name in frame if name in self.texts})


def dask_frame(kept: KeptRows | PublishedRows) -> Any:
    """Return the rows of a job as a dask DataFrame, which tasks read from the job folder."""
    import dask
    import dask.dataframe as dd
    from dask.dataframe.utils import clear_known_categories

    settled = kept.settled if isinstance(kept, KeptRows) else None
    folder = kept.folder
    key = rows_key(folder) if settled is not None else NO_KEY
    is_text = dask.config.get("dataframe.convert-string") is not False
    texts = frozenset(one.name for one in kept.schema if is_text and _is_text(one.type))
    read = PartReader(str(folder), kept.plans, kept.state, settled, key, folder.is_trusted, texts)
    parts = kept.parts(PARTITION_BYTES) or [KeptPart(0, 0)]
    meta = read.as_dask_has_it(clear_known_categories(kept.frame_form.meta))
    # Dask would turn Python objects, too, such as arrays and dates, into their text.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(read, parts, meta=meta, label="daskprs-rows")


def _is_text(type_: pa.DataType) -> bool:
    return any(is_it(type_) for is_it in (is_.is_string, is_.is_large_string, is_.is_string_view))


def polars_scan(kept: KeptRows | PublishedRows) -> pl.LazyFrame:
    """Return the rows of a job as a LazyFrame, which reads them when it is collected."""
    from polars.io.plugins import register_io_source

    def batches(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        for _, table in kept.tables(columns=columns):
            if left == 0:
                return
            frame = polars_frame(table.slice(0, left))
            left = None if left is None else left - frame.height
            yield frame if predicate is None else frame.filter(predicate)

    empty = polars_frame(kept.schema.empty_table())
    return register_io_source(batches, schema=empty.schema, validate_schema=True)
