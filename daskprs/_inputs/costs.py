"""Mini-batches by cost: rows that follow each other, whose costs add up to the size at most.

What a row costs is a column of the table, or a function of the script, which runs in agents. The
table is first read in blocks, in whatever pieces it has without this, and its rows are counted off
by their costs. What is found is a number of rows for each mini-batch: the plan, which the job
folder keeps.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from daskprs._inputs.source.source import TableSource
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import open_regular
from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch, Where
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.source import InputWork, TableReader

OPTION = "mini_batch_cost"
Costs = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Cuts = dict[int, Numbers]
"""How many rows each mini-batch has, by the number of the part of the table that it lies in."""


class CutTable(TableSource, Protocol):
    """A table that can be cut between any two rows of a part: a file, a row group, or a frame."""

    def blocks(self, scratch: Path) -> TableSource:
        """Return the table in pieces that it has before it is cut, ready to be read."""
        del scratch
        return self

    def part_of(self, block: MiniBatch) -> int:
        """Return the number of the part of the table that a block lies in; 0 if it has only one."""
        del block
        return 0

    def reader_of(self, column: str) -> TableReader:
        """Return a reader of the blocks for a column; it may read others at the same price."""
        del column
        return self.reader()

    def cut(self, cuts: Cuts, scratch: Path) -> None:
        """Cut the table, and prepare what `blocks` has not prepared."""
        ...


class Cutter:
    """Counts rows off: each mini-batch has as many as its size has room for, and one at least."""

    def __init__(self, size: float) -> None:
        self._size = size
        self._sum = 0.0
        self._open = 0
        """The rows of the mini-batch that is not full yet."""
        self._rows = array("q")

    def add(self, costs: Costs) -> None:
        """Take the next rows."""
        # One after the other: sums of pieces would be rounded in other ways, and another block
        # size would make other mini-batches of the same rows.
        size, total, count = self._size, self._sum, self._open
        for cost in costs.tolist():
            total += cost
            if total > size and count:
                self._rows.append(count)
                total, count = cost, 0
            count += 1
        self._sum, self._open = total, count

    def rows(self) -> Numbers:
        """Return how many rows each mini-batch has, once all were taken."""
        last = [self._open] if self._open else []
        return np.array([*self._rows, *last], np.int64)


class CostSource(TableSource):
    """A table cut by cost: the largest sum of a mini-batch of more than one row is `size`.

    The name `cost` is that of the column of costs or, with `is_function`, of the function.
    """

    numbers_rows = True

    def __init__(
        self,
        source: CutTable,
        columns: Sequence[str],
        cost: str,
        size: float,
        *,
        is_function: bool,
    ) -> None:
        self.source = source
        self.columns = columns
        self.cost = cost
        self.is_function = is_function
        self._size = size
        self.object_types = source.object_types
        self.keeps_nan = source.keeps_nan
        self.kept: Path | None = None
        """The file that keeps the plan; None: it is not kept."""

    def prepare(self, scratch: Path) -> None:
        """Cut the table; by a function that is possible only where a job has kept the plan."""
        self._cut(scratch, self._refuse_function if self.is_function else self._of_column)

    def begin(self, work: InputWork) -> None:
        """Cut the table; the job lets a function answer."""
        self._cut(work.scratch, work.costs if self.is_function else self._of_column)

    def _cut(self, scratch: Path, costs: Callable[[TableSource], Iterable[Any]]) -> None:
        self.how_far = "the costs of rows are added up"
        blocks = self.source.blocks(scratch)
        key = self._key(blocks)
        cuts = None if self.kept is None else _kept_cuts(self.kept, key)
        if cuts is None:
            cuts = self._counted_off(blocks, costs(blocks))
            if self.kept is not None:
                _keep_cuts(self.kept, key, cuts)
        self.source.cut(cuts, scratch)
        self.how_far = ""

    def _counted_off(self, blocks: TableSource, costs: Iterable[Any]) -> Cuts:
        cutters: dict[int, Cutter] = {}
        for block, some in zip(blocks.mini_batches(), costs, strict=True):
            part = self.source.part_of(block)
            cutters.setdefault(part, Cutter(self._size)).add(some)
        return {part: cutter.rows() for part, cutter in cutters.items()}

    def _of_column(self, blocks: TableSource) -> Iterator[Costs]:
        """Yield the costs of the rows of each block, by the column."""
        first = 0
        with closing(self.source.reader_of(self.cost)) as reader:
            for block in blocks.mini_batches():
                values = reader.load(block)[self.cost]
                yield self._checked(values, reader, block, first)
                first += len(values)
                self.how_far = f"the costs of {first:,} rows are added up"

    def _checked(self, values: Any, reader: Any, block: MiniBatch, first: int) -> Costs:
        costs = numbers_of(values)
        given = Option(OPTION, self.cost)
        if costs is None:
            kind = getattr(values, "dtype", None) or getattr(values, "type", "")
            told = f": the column has the type {kind}. A cost is a number, 0 or more."
            raise InputError(given, told)
        wrong = first_wrong(costs)
        if wrong is not None:
            known = hasattr(reader, "place")
            row = reader.place(block, wrong) if known else f"row {first + wrong:,}"
            told = f": {row}: the cost is {costs[wrong].item()!r}. A cost is a number, 0 or more."
            raise InputError(given, told)
        return costs

    def _refuse_function(self, _: TableSource) -> Iterable[Costs]:
        told = (
            ": it is no column of the input, and a function of a script can only be asked by a "
            "job, which has the script."
        )
        raise OptionError(Option(OPTION, self.cost), told)

    def _key(self, blocks: TableSource) -> str:
        """Return what the plan depends on, for a resume that takes it as it was.

        The script is not in it: a mended one would cut off what is done from what is left.
        """
        what = [self.cost, self.is_function, self._size, blocks.fingerprint()]
        told = json.dumps(what, sort_keys=True, default=str)
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:24]

    # ---- the table ----

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the mini-batches (after `prepare`)."""
        return self.source.mini_batches()

    def count(self) -> int | None:
        """Return how many mini-batches there are, where that is known without making them."""
        return self.source.count()

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        return {"cost": self.cost, "table": self.source.fingerprint()}

    def files(self) -> Iterable[InputFile]:
        """Return the files of the table as they were found."""
        return self.source.files()

    def reader(self) -> TableReader:
        """Return the reader for the agents (after `prepare`)."""
        return self.source.reader()

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return where the rows of a mini-batch lie."""
        return self.source.where(mini_batch)

    @property
    def needed_bytes(self) -> int:  # type: ignore[override]
        """About how many bytes the table writes to the job folder."""
        return self.source.needed_bytes

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.source.meta()


def numbers_of(values: Any) -> Costs | None:
    """Return a column of any library of tables, or a list, as numbers; None if they are none."""
    if hasattr(values, "to_arrow"):  # of Polars
        values = values.to_arrow()
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        numeric = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
        if not any(is_it(values.type) for is_it in (*numeric, pa.types.is_null)):
            return None
        values = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    kind = getattr(values, "dtype", None)
    if kind is not None and getattr(kind, "kind", "O") not in "iuf":
        return None
    try:
        if hasattr(values, "to_numpy"):  # null is no number, which `first_wrong` finds
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if numbers.ndim == 1 else None


def first_wrong(costs: Costs) -> int | None:
    """Return the position of the first value that is no cost: null, negative or infinite."""
    wrong = ~(np.isfinite(costs) & (costs >= 0))
    return int(wrong.argmax()) if wrong.any() else None


# ---- the plan in the job folder ----


def _keep_cuts(path: Path, key: str, cuts: Cuts) -> None:
    rows = np.concatenate([*cuts.values(), np.empty(0, np.int64)])
    lengths = np.array([len(one) for one in cuts.values()], np.int64)
    parts = np.array([*cuts], np.int64)
    with whole_file(path) as file:
        np.savez(file, key=np.array(key), parts=parts, lengths=lengths, rows=rows)


def _kept_cuts(path: Path, key: str) -> Cuts | None:
    """Return the plan that an earlier run has kept; None without one for this table and size."""
    with suppress(FileNotFoundError, ValueError, KeyError, EOFError), open_regular(path) as file:
        kept = np.load(file, allow_pickle=False)
        if str(kept["key"]) == key:
            stops = np.cumsum(kept["lengths"])[:-1]
            rows = np.split(kept["rows"], stops) if len(kept["parts"]) else []
            return dict(zip(kept["parts"].tolist(), rows, strict=True))
    return None
