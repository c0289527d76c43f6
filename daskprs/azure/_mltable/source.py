"""A table with transformations: the pieces of its files, and the rows left of each piece."""

from __future__ import annotations

import hashlib
from contextlib import closing
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from daskprs._inputs.source.source import TableReader, TableSource
from daskprs.azure._mltable.expression import BadExpression
from daskprs.azure._mltable.steps import (
    Filter,
    FirstRows,
    PieceContext,
    RandomSample,
    Seen,
    TableStep,
    Unconverted,
    run,
    slices,
    transformed,
)
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch, Where
    from daskprs._inputs.source.input_file import InputFile


class PlacedReader(TableReader, Protocol):
    """A reader that knows where rows come from."""

    def keep_places(self) -> None:
        """Make ready for `offsets` after each mini-batch."""
        ...

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return a number for each row that no other row of its file has."""
        ...

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return where a row is, for people."""
        ...


class PlacedSource(TableSource, Protocol):
    """A source of files."""

    def reader(self) -> PlacedReader:
        """Return the reader for the agents."""
        ...


class Part(NamedTuple):
    """A piece of the files, with the number of rows before it, for the reader."""

    base: MiniBatch
    seen: Seen
    file: str


class MLTableSource(TableSource):
    """Cuts the files of an MLTable, and applies its transformations to each piece.

    `told` has the transformations as they are written: a change makes a different job. `names` has
    the name of each file below its folder, by path.
    """

    def __init__(
        self,
        base: PlacedSource,
        steps: Sequence[TableStep],
        told: Sequence[Any],
        names: dict[str, str],
    ) -> None:
        self._base = base
        self._steps = tuple(steps)
        self._told = list(told)
        self._names = names
        self._counting = [step for step in steps if isinstance(step, FirstRows)]
        last = self._steps.index(self._counting[-1]) if self._counting else -1
        self._counted = self._steps[: last + 1]
        """The steps up to the last one that counts."""
        drops = [isinstance(step, Filter | RandomSample) for step in steps]
        self._keeps_counts = not any(drops)
        self._counts_rows = not any(drops[: len(self._counted)])
        self._met: list[tuple[Seen, bool]] = []
        """The counts before each of the first pieces, and whether any of its rows is left."""
        self._after: Seen | None = (0,) * len(self._counting)
        """The counts before all other pieces; None if none of their rows is left."""
        digest = hashlib.blake2b(repr(self._told).encode(), digest_size=8)
        self._digest = digest.hexdigest()

    def prepare(self, scratch: Path) -> None:
        """Count rows, as far as `take` and `skip` need it."""
        self._base.prepare(scratch)
        if self._counted:
            with closing(self._base.reader()) as reader:
                self._count(reader)

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the pieces of which rows may be left."""
        index = first = 0
        met = chain(self._met, repeat((self._after, True)))
        for base in self._base.mini_batches():
            seen, is_left = next(met)
            if seen is None:
                return
            items = self._items(base, seen)
            if not is_left or items == 0:
                continue
            yield base._replace(
                index=index,
                piece=Part(base, seen, self._file_of(base)),
                identity=f"{base.identity}|{self._digest}|{','.join(map(str, seen))}",
                items=items,
                row_lower_bound=None if items is None else first,
            )
            index += 1
            first += items or 0

    def count(self) -> int | None:
        """Return how many mini-batches there are, where no step counts rows."""
        return None if self._counted else self._base.count()

    def usual_rows(self) -> float | None:
        """Return about how many rows a piece has before any of them is left out."""
        return self._base.usual_rows()

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on: the transformations, and the files."""
        return {
            "kind": "mltable",
            "transformations": self._told,
            "table": self._base.fingerprint(),
        }

    def files(self) -> Iterable[InputFile]:
        """Return the files as they were found."""
        return self._base.files()

    def reader(self) -> MLTableReader:
        """Return the reader for the agents."""
        return MLTableReader(self._base.reader(), self._steps)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return where the piece lies, before any row of it is left out."""
        return self._base.where(mini_batch.piece.base)

    @property
    def columns(self) -> list[str]:
        """The columns that are left."""
        return list(self._meta.columns)

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._meta

    @cached_property
    def _meta(self) -> pd.DataFrame:
        return transformed(self._base.meta(), self._steps)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths, and are as they were there."""
        now, before = self._meta.dtypes, self._base.meta().dtypes
        there = (name for name in self._base.path_names if name in now)
        return [name for name in there if now[name] == before[name]]

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return the values of these columns for a mini-batch."""
        return self._base.path_values(mini_batch.piece.base)

    def _items(self, base: MiniBatch, seen: Seen) -> int | None:
        """Return how many rows are left of a piece, where that is known without reading it."""
        if base.items is None or not self._keeps_counts:
            return None
        return slices(self._steps, seen, base.items)[0]

    def _file_of(self, base: MiniBatch) -> str:
        paths = self._base.where(base).paths
        return self._names.get(paths[0], paths[0]) if paths else ""

    def _count(self, reader: PlacedReader) -> None:
        """Count rows of pieces until no count changes any more, or no later row can be left."""
        seen: Seen = (0,) * len(self._counting)
        self._met, rows = [], 0
        for base in self._base.mini_batches():
            full = [step for step in self._counting if seen[step.number] >= step.count]
            if any(step.is_kept for step in full):
                self._after = None
                return
            if len(full) == len(self._counting):
                break
            left, after = self._of_piece(base, seen, reader)
            self._met.append((seen, left > 0))
            seen = after
            rows += left
            self.how_far = f"rows are counted for take and skip: {rows:,} are left"
        self._after = seen

    def _of_piece(self, base: MiniBatch, seen: Seen, reader: PlacedReader) -> tuple[int, Seen]:
        if self._counts_rows:
            return slices(self._counted, seen, _rows_of(base, reader))
        part = base._replace(piece=Part(base, seen, self._file_of(base)))
        frame, after = MLTableReader(reader, self._counted).run(part)
        return len(frame), after


def _rows_of(base: MiniBatch, reader: PlacedReader) -> int:
    """Return the number of rows of a piece; an unreadable piece may still have a count."""
    if base.items is not None:
        return base.items
    try:
        return len(reader.load(base))
    except LoadError as error:
        if error.items is None:
            raise
        return error.items


class MLTableReader:
    """Reads a piece of the files, and applies the steps to it."""

    def __init__(self, reader: PlacedReader, steps: Sequence[TableStep]) -> None:
        self._reader = reader
        self._steps = tuple(steps)

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that are left, with a new index."""
        return self.run(mini_batch)[0].reset_index(drop=True)

    def run(self, mini_batch: MiniBatch) -> tuple[pd.DataFrame, Seen]:
        """Return the rows that are left, and the counts behind them."""
        base, seen, file = mini_batch.piece
        if any(isinstance(step, RandomSample) for step in self._steps):
            self._reader.keep_places()
        piece = PieceContext(
            self._reader.load(base),
            seen,
            file,
            lambda: self._reader.offsets(base),
            lambda row: self._reader.place(base, row),
        )
        try:
            return run(self._steps, piece)
        except (Unconverted, BadExpression) as error:
            refused = LoadError(str(error))
            refused.items = len(piece.frame)
            raise refused from None

    def close(self) -> None:
        """Close the reader of the files."""
        self._reader.close()
