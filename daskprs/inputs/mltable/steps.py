"""The transformations of an MLTable, as what is done to the rows of one piece of the input.

The index of a frame between steps numbers the rows of its piece as they were read. Steps that count
(`Take`, `Skip`) get the number of rows that reached them from earlier pieces.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from daskprs.inputs.mltable.conversions import Conversion, ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daskprs.inputs.mltable.expression import Expression

Seen = tuple[int, ...]
"""Number of rows that reached each counting step, at most the step's count."""


@dataclass(frozen=True)
class PieceContext:
    """What steps may ask about the rows that they are given."""

    frame: pd.DataFrame
    """The rows as they were read."""
    seen: Seen
    file: str
    """Name of the file, independent of where its folder lies."""
    offsets: Callable[[], Sequence[int]]
    """Where in the file each row begins."""
    place: Callable[[int], str]
    """Where a row is, for people."""


class Unconverted(ValueError):  # noqa: N818 - it says what is wrong
    """A value that does not become the type of its column; the message says where it is."""


class TableStep(Protocol):
    """One transformation."""

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return what is left of rows, with their index."""
        ...


@dataclass(frozen=True)
class KeepColumns:
    """Keeps columns, in their order here."""

    names: tuple[str, ...]

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the columns."""
        del piece
        return frame[list(self.names)]


@dataclass(frozen=True)
class Rename:
    """Gives a column another name."""

    old: str
    new: str

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the same rows."""
        del piece
        return frame.rename(columns={self.old: self.new})


@dataclass(frozen=True)
class AddPathColumns:
    """Appends what paths carry."""

    names: tuple[str, ...]

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the rows with more columns."""
        carried = piece.frame[list(self.names)].loc[frame.index]
        return pd.concat([frame, carried], axis=1)


@dataclass(frozen=True)
class Filter:
    """Keeps the rows that fulfil a condition."""

    expression: Expression

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the rows that fulfil the condition."""
        del piece
        return frame[self.expression.mask(frame)]


@dataclass(frozen=True)
class Convert:
    """Gives columns other types."""

    conversions: tuple[Conversion, ...]

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the rows; a value that does not fit is an error that says where it is."""
        converted = frame.copy(deep=False)
        for one in self.conversions:
            try:
                converted[one.column] = one.apply(converted[one.column])
            except ConversionError as misfit:
                msg = f"{piece.place(misfit.row)}: column {one.column!r} holds {misfit.told}."
                raise Unconverted(msg) from None
        return converted


@dataclass(frozen=True)
class Take:
    """Keeps the first rows of all."""

    count: int
    number: int
    """This step's number among the counting steps."""

    def window(self, seen: int, rows: int) -> tuple[int, int]:
        """Return which of the rows that come after `seen` others are kept."""
        return 0, min(rows, max(0, self.count - seen))

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return those rows of the frame that are among the first."""
        first, stop = self.window(piece.seen[self.number], len(frame))
        return frame.iloc[first:stop]


@dataclass(frozen=True)
class Skip:
    """Leaves out the first rows of all."""

    count: int
    number: int
    """This step's number among the counting steps."""

    def window(self, seen: int, rows: int) -> tuple[int, int]:
        """Return which of the rows that come after `seen` others are kept."""
        return min(rows, max(0, self.count - seen)), rows

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the others."""
        first, stop = self.window(piece.seen[self.number], len(frame))
        return frame.iloc[first:stop]


@dataclass(frozen=True)
class RandomSample:
    """Keeps each row with a probability, at random by the row's place in its file.

    So each run and each retry keep the same rows, whatever the size of a mini-batch.
    """

    probability: float
    seed: int
    number: int
    """The step's number among the samples, so that a second sample draws other rows."""

    def apply(self, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
        """Return the rows that are drawn."""
        name = f"{self.seed}|{self.number}|{piece.file}"
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        offsets = np.asarray(piece.offsets(), np.uint64)[frame.index.to_numpy()]
        drawn = _mixed(offsets ^ np.frombuffer(digest, np.uint64)) >> np.uint64(11)
        return frame[drawn < np.uint64(self.probability * (1 << 53))]


Counting = Take | Skip


def run(steps: Sequence[TableStep], piece: PieceContext) -> tuple[pd.DataFrame, Seen]:
    """Return the rows of a piece after all steps, and the updated counts of counting steps."""
    frame, seen = piece.frame, list(piece.seen)
    for step in steps:
        if isinstance(step, Take | Skip):
            seen[step.number] = min(seen[step.number] + len(frame), step.count)
        frame = step.apply(frame, piece)
    return frame, tuple(seen)


def slices(steps: Sequence[TableStep], seen: Seen, rows: int) -> tuple[int, Seen]:
    """Return the rows left and the counts of steps without `Filter` and `RandomSample`."""
    after = list(seen)
    for step in steps:
        if isinstance(step, Take | Skip):
            after[step.number] = min(after[step.number] + rows, step.count)
            first, stop = step.window(seen[step.number], rows)
            rows = stop - first
    return rows, tuple(after)


def _mixed(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return numbers of which each bit depends on all bits (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
