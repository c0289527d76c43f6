"""Commits in flat columns: a million mini-batches take some 50 MB."""

from __future__ import annotations

import hashlib
from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._output.spool import Region, Regions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._core.spending import Amounts
Numbers = np.ndarray[Any, Any]
BLOCK = 10_000
NOTHING = (None, None, None)


class Commits(NamedTuple):
    """Commits that are made together, as columns; None for an empty column."""

    identity: Sequence[str] | None
    attempt: Sequence[int]
    index: Sequence[int]  # type: ignore[assignment] # tuple.index is of no use here
    total: Sequence[int]
    succeeded: Sequence[int]
    empty: Sequence[bool] | None = None
    text: Regions | None = None
    typed: Regions | None = None
    header: Sequence[str | None] | None = None
    spool: str = ""
    """The name of the spool, in this epoch, that holds the regions of all these commits."""
    usage: Sequence[Amounts | None] | None = None
    """What the attempts have used by the script's own count."""

    @classmethod
    def of(
        cls,
        mini_batches: Sequence[MiniBatch],
        outcomes: ColumnBatch[Outcome],
        text: Regions | None,
        typed: Regions | None,
        header: Sequence[str | None] | None,
        spool: str,
    ) -> Commits:
        """Return the commits of attempts, given where their rows are."""
        identities = [mini_batch.identity for mini_batch in mini_batches]
        attempt, index, total, succeeded, empty = map(
            outcomes.column, ("attempt", "index", "total", "succeeded", "empty")
        )
        some_empty = empty if any(empty) else None
        usage = outcomes.column("usage")
        return cls(
            identities,
            attempt,
            index,
            total,
            succeeded,
            some_empty,
            text,
            typed,
            header,
            spool,
            usage if any(usage) else None,
        )


class HeaderNumbers:
    """Header lines in the journal of one epoch: a text at its first commit, then its number.

    Mostly all commits have the same header, which may name thousands of columns.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def column(self, headers: Sequence[str | None] | None) -> list[Any] | None:
        """Return headers as the journal has them."""
        if headers is None:
            return None
        return [None if header is None else self._numbered(header) for header in headers]

    def headers(self, column: Sequence[Any] | None) -> list[str | None] | None:
        """Return the headers that a column of the journal stands for."""
        return None if column is None else [*map(self._header, column)]

    def _numbered(self, header: str) -> str | int:
        number = len(self._numbers)
        known = self._numbers.setdefault(header, number)
        return header if known == number else known

    def _header(self, value: str | int | None) -> str | None:
        if isinstance(value, int):
            return list(self._numbers)[value]
        if value is not None:
            self._numbers.setdefault(value, len(self._numbers))
        return value


class CommitTable:
    """Commits, one row for each."""

    def __init__(self) -> None:
        self._columns = {name: IntColumn(code) for name, code in _COLUMNS.items()}
        self._headers: dict[str | None, int] = {None: 0}
        self._spools: dict[tuple[int, str], int] = {}
        self._usage: dict[str, IntColumn] = {}
        """What commits have used, by name."""
        self._sorted: tuple[Numbers, Numbers] | None = None
        self.replaced = 0
        """Number of commits whose place others have taken."""

    def __len__(self) -> int:
        """Return the number of commits, also of those that were replaced."""
        return len(self._columns["index"])

    def add(self, commits: Commits, epoch: int) -> int:
        """Add commits that were made in `epoch`, and return the number of their spool.

        `row_of` does not find commits without an identity.
        """
        count = len(commits.index)
        headers = self._headers
        numbers = [headers.setdefault(header, len(headers)) for header in commits.header or ()]
        spool = self._spools.setdefault((epoch, commits.spool), len(self._spools) + 1)
        values = (
            None if commits.identity is None else map(digest_of, commits.identity),
            commits.index,
            commits.total,
            commits.succeeded,
            commits.empty,
            repeat(epoch, count),
            repeat(spool, count),
            None,
            None,
            *(commits.text or NOTHING),
            *(commits.typed or NOTHING),
            numbers or None,
        )
        for column, new in zip(self._columns.values(), values, strict=True):
            column.extend(new, count)
        self._add_usage(commits.usage, count)
        return spool

    def _add_usage(self, usage: Sequence[Amounts | None] | None, count: int) -> None:
        used = [dict(amounts or ()) for amounts in usage or ()]
        for name in {name for amounts in used for name in amounts} - self._usage.keys():
            self._usage[name] = column = IntColumn("d")
            column.extend(None, len(self) - count)
        for name, column in self._usage.items():
            values = [amounts.get(name, 0.0) for amounts in used]
            column.extend(values if any(values) else None, count)

    def usage(self, rows: Numbers) -> dict[str, float]:
        """Return what the commits of these rows have used."""
        return {name: float(column.copy()[rows].sum()) for name, column in self._usage.items()}

    def row_of(self, index: int, identity: str) -> int | None:
        """Return the row of the commit of a mini-batch, among those present at the first call.

        The index alone is not enough, since the input may have changed. Nor is the identity alone,
        since the same file may be given twice. Later commits are never looked up: a ledger
        settles each mini-batch once.
        """
        # Sorted once: to find a commit takes microseconds, however many there are.
        if self._sorted is None:
            indexes = self.column("index")
            order = np.argsort(indexes, kind="stable").astype(np.uint32)
            self._sorted = indexes[order], order
        indexes, order = self._sorted
        if len(indexes) == 0:
            return None
        place = int(np.searchsorted(indexes, indexes.dtype.type(index)))  # else it is all converted
        if place == len(indexes) or indexes[place] != index:
            return None
        row = int(order[place])
        return row if self._columns["identity"][row] == digest_of(identity) else None

    def replace(self, row: int) -> None:
        """Take the rows of a commit out of the output: another one has taken its place."""
        self.replaced += 1
        for name in ("text_length", "typed_length"):
            self._columns[name].clear(row)

    def column(self, name: str) -> Numbers:
        """Return a copy of a column."""
        return self._columns[name].copy()

    def values(self, row: int) -> dict[str, int]:
        """Return the numbers of one row by column."""
        return {name: column[row] for name, column in self._columns.items()}

    def regions(self, rows: Numbers, form: str) -> Iterator[tuple[int, int, int, Region]]:
        """Yield row, index, spool and region of these commits, without those that have no bytes."""
        rows = rows[self.column(f"{form}_length")[rows] > 0]
        names = ("index", "spool", *(f"{form}_{part}" for part in Region._fields))
        for row, index, spool, *place in each(rows, *(self.column(name)[rows] for name in names)):
            yield row, index, spool, Region(*place)

    def set_column(self, name: str, values: Numbers) -> None:
        """Replace a column."""
        self._columns[name] = IntColumn(_COLUMNS[name], values)

    def keep(self, mask: Numbers) -> None:
        """Drop every row for which `mask` is false."""
        if mask.all():
            return
        for name in _COLUMNS:
            self.set_column(name, self.column(name)[mask])
        for name, used in self._usage.items():
            self._usage[name] = IntColumn("d", used.copy()[mask])
        self._sorted = None

    def spool(self, number: int, folder_of: Callable[[int], Path]) -> Path:
        """Return a spool by its number in the column ``spool``, given the folder of an epoch."""
        epoch, name = list(self._spools)[number - 1]
        return folder_of(epoch) / name

    def header(self, number: int) -> str:
        """Return a header by its number in the column ``header``; 0 means no header."""
        return list(self._headers)[number] or ""


class IntColumn:
    """Numbers of one type, a code of `array`; zeros before the first other number take no memory.

    Most jobs have no use for half of their columns: no frames with headers, no rows with types.
    """

    __slots__ = ("_rest", "_zeros")

    def __init__(self, code: str, numbers: Numbers | None = None) -> None:
        self._zeros = 0
        # Measured with a million commits: one array takes 49 bytes for each, arrays in blocks 52,
        # and a NumPy array that grows by a quarter 57.
        self._rest = array(code)
        if numbers is not None and numbers.any():
            self._rest.frombytes(numbers.astype(code).tobytes())
        elif numbers is not None:
            self._zeros = len(numbers)

    def __len__(self) -> int:
        return self._zeros + len(self._rest)

    def __getitem__(self, row: int) -> int:
        return self._rest[row - self._zeros] if row >= self._zeros else 0

    def clear(self, row: int) -> None:
        """Put a zero in the place of a number."""
        if row >= self._zeros:
            self._rest[row - self._zeros] = 0

    def extend(self, numbers: Iterable[Any] | None, count: int) -> None:
        """Append `count` numbers; None appends zeros."""
        if numbers is not None:
            self._rest.extend(numbers)
        elif self._rest:
            self._rest.extend(repeat(0, count))
        else:
            self._zeros += count

    def copy(self) -> Numbers:
        """Return all numbers as an array."""
        numbers = np.zeros(len(self), self._rest.typecode)
        numbers[self._zeros :] = self._rest
        return numbers


def region_of(value: Mapping[str, int], form: str) -> Region:
    """Return the region of a form, ``text`` or ``typed``, from the numbers of a row."""
    return Region(*(value[f"{form}_{part}"] for part in Region._fields))


def in_input_order(table: CommitTable, rows: Numbers) -> Numbers:
    """Return the rows, sorted by the index of their mini-batch."""
    return rows[np.argsort(table.column("index")[rows], kind="stable")]


def each(*columns: Numbers) -> Iterator[tuple[int, ...]]:
    """Yield the rows of arrays as plain numbers, and never hold a list of them all."""
    for start in range(0, len(columns[0]), BLOCK):
        block = (column[start : start + BLOCK].tolist() for column in columns)
        yield from zip(*block, strict=True)


_REGION = {"offset": "q", "length": "q", "checksum": "I"}
_COLUMNS = {
    "identity": "Q",
    "index": "I",
    "total": "q",
    "succeeded": "q",
    "empty": "B",
    "epoch": "I",
    "spool": "I",  # counted from 1
    "in_file": "B",  # its text is in the published file, no longer in a spool
    "part": "I",  # the part of a data set that it is in, where `text_offset` is its place
    **{f"text_{part}": code for part, code in _REGION.items()},
    **{f"typed_{part}": code for part, code in _REGION.items()},
    "header": "I",
}


def digest_of(identity: str) -> int:
    """Return the digest by which an identity is found."""
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
