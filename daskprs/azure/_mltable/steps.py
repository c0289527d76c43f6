"""The transformations of an MLTable, as what is done to the rows of one piece of the input.

The index of a frame between steps numbers the rows of its piece as they were read. `FirstRows`
counts: it gets the number of rows that reached it from earlier pieces.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daskprs.azure._mltable.conversions import Conversion, ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daskprs.azure._mltable.expression import Expression

Seen = tuple[int, ...]
"""Number of rows that reached each `FirstRows`, at most the step's count."""


@dataclass(frozen=True)
class PieceContext:
    """The context of the rows that a step gets: their file, and their places in it."""

    frame: pd.DataFrame
    """The rows as they were read."""
    seen: Seen
    file: str
    """Name of the file, independent of where its folder lies."""
    offsets: Callable[[], Sequence[int]]
    """Returns the position in the file at which each row begins."""
    place: Callable[[int], str]
    """Describes the place of a row, for people."""


class Unconverted(ValueError):  # noqa: N818 - it says what is wrong
    """A value that does not become the type of its column; the message says where it is."""


@dataclass(frozen=True)
class KeepColumns:
    """Keeps columns, in their order here."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Rename:
    """Gives a column another name."""

    old: str
    new: str


@dataclass(frozen=True)
class AddPathColumns:
    """Appends the columns that come from paths."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Filter:
    """Keeps the rows that fulfil a condition."""

    expression: Expression


@dataclass(frozen=True)
class Convert:
    """Gives columns other types; a value that does not fit is an error that says where it is."""

    conversions: tuple[Conversion, ...]


@dataclass(frozen=True)
class ChosenRows:
    """Keeps rows by their numbers in the piece as it was read."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class FirstRows:
    """Keeps the first rows of the table, or leaves them out."""

    count: int
    number: int
    """This step's number among the steps of its class."""
    is_kept: bool

    def window(self, seen: int, rows: int) -> tuple[slice, int]:
        """Return which of the rows that come after `seen` others are kept, and the count then."""
        first = min(rows, max(0, self.count - seen))
        kept = slice(0, first) if self.is_kept else slice(first, rows)
        return kept, min(seen + rows, self.count)


@dataclass(frozen=True)
class RandomSample:
    """Keeps each row with a probability, at random by the row's place in its file.

    So each run and each retry keep the same rows, whatever the size of a mini-batch.
    """

    probability: float
    seed: int
    number: int
    """The step's number among the samples, so that a second sample draws other rows."""

    def drawn(self, file: str, offsets: Any) -> Any:
        """Return which rows are kept, by where they begin in a file."""
        name = f"{self.seed}|{self.number}|{file}"
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        mixed = _mixed(offsets ^ np.frombuffer(digest, np.uint64)) >> np.uint64(11)
        return mixed < np.uint64(self.probability * (1 << 53))


TableStep = (
    KeepColumns | Rename | AddPathColumns | Filter | Convert | ChosenRows | FirstRows | RandomSample
)


def run(steps: Sequence[TableStep], piece: PieceContext) -> tuple[pd.DataFrame, Seen]:
    """Return the rows of a piece after all steps, and the updated counts of `FirstRows`."""
    frame, seen = piece.frame, list(piece.seen)
    for step in steps:
        if isinstance(step, FirstRows):
            kept, seen[step.number] = step.window(seen[step.number], len(frame))
            frame = frame.iloc[kept]
        else:
            frame = _after(step, frame, piece)
    return frame, tuple(seen)


def transformed(frame: pd.DataFrame, steps: Sequence[TableStep]) -> pd.DataFrame:
    """Apply steps to rows whose places do not matter, such as an empty frame."""
    piece = PieceContext(frame, (0,) * len(steps), "", list, str)
    return run(steps, piece)[0].reset_index(drop=True)


def slices(steps: Sequence[TableStep], seen: Seen, rows: int) -> tuple[int, Seen]:
    """Return the rows left and the counts of steps without `Filter` and `RandomSample`."""
    after = list(seen)
    for step in steps:
        if isinstance(step, FirstRows):
            kept, after[step.number] = step.window(after[step.number], rows)
            rows = kept.stop - kept.start
    return rows, tuple(after)


def _after(step: TableStep, frame: pd.DataFrame, piece: PieceContext) -> pd.DataFrame:
    """Return the rows after a step that does not count."""
    match step:
        case KeepColumns(names):
            frame = frame[[name for name in names if name in frame.columns]]
        case Rename(old, new):
            frame = frame.rename(columns={old: new})
        case AddPathColumns(names):
            frame = pd.concat([frame, piece.frame[list(names)].loc[frame.index]], axis=1)
        case Filter(expression):
            frame = frame[expression.mask(frame)]
        case ChosenRows(numbers):
            frame = frame[frame.index.isin(numbers)]
        case RandomSample():
            offsets = np.asarray(piece.offsets(), np.uint64)[frame.index.to_numpy()]
            frame = frame[step.drawn(piece.file, offsets)]
        case Convert(conversions):
            frame = _converted(conversions, frame, piece)
    return frame


def _converted(
    conversions: Sequence[Conversion], frame: pd.DataFrame, piece: PieceContext
) -> pd.DataFrame:
    converted = frame.copy(deep=False)
    for one in conversions:
        if one.column not in frame.columns:
            continue
        try:
            converted[one.column] = one.apply(converted[one.column])
        except ConversionError as misfit:
            msg = f"{piece.place(misfit.row)}: column {one.column!r} holds {misfit.told}."
            raise Unconverted(msg) from None
    return converted


def _mixed(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return numbers of which each bit depends on all bits (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def needed(
    steps: Sequence[TableStep], final: Sequence[str], there: Sequence[str]
) -> tuple[str, ...]:
    """Return which columns of the files have to be read, in their order `there`.

    The steps pass over columns that were not read. `final` has the columns that are left in the
    end. At least one column is always read, to count rows.
    """
    asked = set(final)
    for step in steps:
        if isinstance(step, Filter):
            asked |= step.expression.columns()
    return tuple(name for name in there if name in asked) or tuple(there[:1])
