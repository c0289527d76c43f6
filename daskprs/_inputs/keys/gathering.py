"""Gathering rows: those of one part, from all pieces, written side by side by key."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from daskprs._inputs.keys.hashing import comparable, keys_of
from daskprs._inputs.keys.rows import PickleFile, Rows, cut, joined, taken, unsealed_rows
from daskprs._system.regular_files import open_regular
from daskprs.errors import LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._inputs.keys.dealing import DealtPart
    from daskprs._system.seal import SealKey

AT_ONCE_BYTES = 64 << 20
"""Bytes of pickled rows that are brought together at once; a key with more is alone."""
COPIES = 2
"""Number of copies of the rows of one key in memory, for a moment, while they are put together."""


class Group(NamedTuple):
    """The rows of one combination of values."""

    first_row: int
    """Their first row's number in the whole input."""
    key: tuple[Any, ...]
    """The values."""
    rows: int
    part: int
    """The number of the part that the rows lie in."""
    offset: int
    length: int
    checksum: int
    place: int
    """The place of its first row among the rows of its part, in the order of the groups."""


class Gathered(NamedTuple):
    """The index of a part."""

    groups: list[Group]
    numbers: npt.NDArray[np.int64]
    """The rows' numbers in the whole input, in the order of the groups."""


def gather(
    keys: Sequence[str],
    part: int,
    pieces: Sequence[DealtPart],
    path: Path,
    seal_key: SealKey,
    memory_bytes: int | None = None,
    labelled: bool = True,  # noqa: FBT001, FBT002 - passed on by position
) -> Gathered:
    """Write the rows of each key of a part one after the other, and return their index.

    Parameters
    ----------
    keys
        The names of the keys.
    part
        The number of the part.
    pieces
        The part's place in each piece of the table, in input order.
    path
        The file to write.
    seal_key
        The key of the checksums in the pieces.
    memory_bytes
        What this process may use; a key whose rows need more is a `LoadError`.
    labelled
        Whether the input has row labels: the rows' numbers are returned for them alone.

    """
    dealt = _Dealt(pieces, seal_key)
    only, numbers, bounds = dealt.look(keys)
    if not only:
        path.touch()
        return Gathered([], numbers)
    keys_only = keys_of(joined(only), keys)
    del only
    group_of = _group_numbers(keys_only)
    counts = np.bincount(group_of)
    row_bytes = dealt.size_bytes / len(numbers)
    firsts = _firsts(group_of, len(counts))
    values = list(zip(*(map(_value, keys_only[key].take(firsts)) for key in keys), strict=True))
    del keys_only
    groups: list[Group] = []
    done = 0
    with path.open("wb") as file:
        pickles = PickleFile(file)
        for begin, end in pairwise(_batches(counts * row_bytes)):
            need = int(COPIES * row_bytes * counts[begin])
            if end == begin + 1 and memory_bytes is not None and need > memory_bytes:
                raise LoadError(_too_large(keys, values[begin], need, memory_bytes))
            rows, of_rows = dealt.rows_of(group_of, bounds, begin, end)
            order = np.argsort(of_rows, kind="stable")
            edges = np.cumsum([0, *counts[begin:end]])
            for group, some in zip(range(begin, end), _cut(rows, order, edges), strict=True):
                place = pickles.add(some)
                first = int(numbers[firsts[group]])
                groups.append(Group(first, values[group], len(some), part, *place, done))
                done += len(some)
            del rows, some
    in_groups = np.argsort(group_of, kind="stable") if labelled else slice(0)
    return Gathered(groups, numbers[in_groups])


class _Dealt:
    """The rows of a part: in memory if they are few, else read from the disk each time."""

    def __init__(self, pieces: Sequence[DealtPart], key: SealKey) -> None:
        self._pieces = pieces
        self._key = key
        self.size_bytes = sum(piece.length for piece in pieces)
        self._held: list[Any] | None = [] if self.size_bytes <= AT_ONCE_BYTES else None

    def look(self, keys: Sequence[str]) -> tuple[list[Any], Any, Any]:
        """Return the keys of the rows, their numbers in the input, and where each piece begins."""
        numbers, only = [np.zeros(0, np.int64)], []
        for first, numbers_in_piece, rows in self._read():
            numbers.append(first + numbers_in_piece.astype(np.int64))
            if isinstance(rows, pa.Table):
                only.append(rows.select(keys))
            else:
                only.append(rows[list(keys)].copy())
            if self._held is not None:
                self._held.append(rows)
        return only, np.concatenate(numbers), np.cumsum([0, *map(len, numbers[1:])])

    def rows_of(self, group_of: Any, bounds: Any, begin: int, end: int) -> tuple[Rows, Any]:
        """Return the rows of some groups, in input order, and the group of each."""
        # Few rows stay in memory from the first look; many are read from the disk once more for
        # each batch of groups, so that memory has one batch at a time.
        all_rows = self._held or (rows for _, _, rows in self._read())
        self._held = None  # all of them are in one batch
        some, kept = [], []
        for rows, (first, stop) in zip(all_rows, pairwise(bounds), strict=True):
            groups = group_of[first:stop]
            wanted = (groups >= begin) & (groups < end)
            if wanted.any():
                some.append(rows if wanted.all() else taken(rows, np.flatnonzero(wanted)))
                kept.append(groups[wanted])
        rows = joined(some)
        if isinstance(rows, pd.DataFrame):
            rows = rows.reset_index(drop=True)
        return rows, np.concatenate(kept)

    def _read(self) -> Iterator[tuple[int, Any, Any]]:
        first = 0
        for piece in self._pieces:
            if piece.length:
                with open_regular(Path(piece.path)) as file:
                    file.seek(piece.offset)
                    body = file.read(piece.length)
                yield first, *unsealed_rows(body, self._key, piece.path)
            first += piece.rows_of_piece


def _group_numbers(keys: pd.DataFrame) -> npt.NDArray[Any]:
    # pandas would make text of objects, which half a surrogate is not.
    columns = [
        pd.factorize(keys[key])[0] if keys[key].dtype == object else comparable(keys[key])
        for key in keys.columns
    ]
    groups = keys.groupby(columns, sort=False, dropna=False, observed=True)
    try:
        numbers = np.asarray(groups.ngroup(), np.int64)
    except NotImplementedError as error:
        told = ", ".join(f"{name!r}, {dtype}" for name, dtype in keys.dtypes.items())
        msg = f": the columns {told} cannot be keys: {error}. Give one of them another type."
        raise LoadError(Option("partition_keys"), msg) from error
    few = numbers.max(initial=0) <= np.iinfo(np.int16).max
    return numbers.astype(np.int16) if few else numbers  # few values are sorted by counting


def _firsts(group_of: npt.NDArray[Any], groups: int) -> npt.NDArray[np.int64]:
    """Return the place of the first row of each group."""
    places = np.zeros(groups, np.int64)
    places[group_of[::-1]] = np.arange(len(group_of))[::-1]
    return places


def _batches(sizes: npt.NDArray[Any]) -> list[int]:
    """Return the group at which each batch begins, and their number."""
    begins, size = [0], 0.0
    for group, more in enumerate(sizes.tolist()):
        if size and size + more > AT_ONCE_BYTES:
            begins.append(group)
            size = 0.0
        size += more
    return [*begins, len(sizes)]


def _cut(rows: Rows, order: Any, edges: Any) -> Iterator[Rows]:
    """Yield the rows of each group; those of a single one are in order."""
    if len(edges) == 2:  # noqa: PLR2004 - begin and end
        yield rows
    else:
        yield from cut(rows, order, edges)


def _value(cell: Any) -> Any:
    """Return a key's value as Python has it; None for null."""
    if pd.api.types.is_scalar(cell) and pd.isna(cell):
        return None
    return cell.item() if isinstance(cell, np.generic) else cell


def _too_large(keys: Sequence[str], values: Sequence[Any], need: int, there: int) -> str:
    key = ", ".join(f"{name}={value}" for name, value in zip(keys, values, strict=True))
    return (
        f"{Option('partition_keys')}: the rows of the key {key} need {need:,} bytes of memory to "
        f"be brought together, and a process may use {there:,} here. run gets them at once: add a "
        f"column to {Option('partition_keys')} that divides them, leave columns out by "
        f"{Option('columns')}, or use workers with more memory."
    )
