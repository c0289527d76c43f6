"""Batches of named tuples that travel as columns.

A lease and its results go through several processes, most of which only pass them on. Rows are
pickled once, column by column, at a fifth of the cost of pickling row by row. A receiver reads
the columns it needs; rows are made only on request.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound="tuple[Any, ...]")


class ColumnBatch(Sequence[T], Generic[T]):
    """A sequence of named tuples of one class; it cannot be changed."""

    __slots__ = ("_count", "_packed", "_rows", "_table")

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._rows: tuple[T, ...] | None = tuple(rows)
        self._count = len(self._rows)
        self._table: _Table | None = None
        self._packed: bytes | None = None

    @classmethod
    def _of(cls, packed: bytes, count: int) -> ColumnBatch[T]:
        new = cls()
        if count:
            new._rows, new._packed, new._count = None, packed, count
        return new

    @classmethod
    def of_columns(cls, kind: type[T], columns: Sequence[Sequence[Any]]) -> ColumnBatch[T]:
        """Return the rows that have these columns, all of one length; there may be none."""
        new = cls()
        if columns:
            new._rows, new._count = None, len(columns[0])
            new._table = _Table(kind, [_columns(column) for column in columns])
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            table = _columns(self._all()) if self._table is None else self._table
            self._packed = pickle.dumps(table, pickle.HIGHEST_PROTOCOL)
        return ColumnBatch._of, (self._packed, self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnBatch) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"ColumnBatch({list(self._all())!r})"

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self._all()[at]

    def column(self, name: str) -> Sequence[Any]:
        """Return one value of each row; ``text.length`` is None where there is no ``text``."""
        values: Any = self._unpickled() if self._rows is None else self._rows
        for part in name.split("."):
            values = _field(values, part)
        return values.rows() if isinstance(values, _Table) else values

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield some values of each row."""
        return zip(*map(self.column, names), strict=True)

    def _all(self) -> tuple[T, ...]:
        if self._rows is None:
            self._rows = tuple(self._unpickled().rows())
        return self._rows

    def _unpickled(self) -> _Table:
        if self._table is None:
            self._table = pickle.loads(self._packed or b"")
        return self._table


class _Table:
    """Rows of one class of named tuples, as columns; a column of named tuples may be a table."""

    __slots__ = ("columns", "row")

    def __init__(self, row: Any, columns: list[Any]) -> None:
        self.row = row
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return _Table, (self.row, self.columns)

    def rows(self) -> list[Any]:
        """Return the rows."""
        columns = [c.rows() if isinstance(c, _Table) else c for c in self.columns]
        return list(map(self.row._make, zip(*columns, strict=True)))


def _field(values: Any, name: str) -> Any:
    if isinstance(values, _Table):
        return values.columns[values.row._fields.index(name)]
    try:  # most often none of them is None, and this takes three quarters of the time
        return list(map(attrgetter(name), values))
    except AttributeError:
        return [None if row is None else getattr(row, name) for row in values]


def _columns(values: Sequence[Any]) -> Any:
    """Return a table where all values are named tuples of one class, else the values."""
    kind = type(values[0]) if values else None
    if not hasattr(kind, "_fields") or set(map(type, values)) != {kind}:
        return values
    return _Table(kind, [_columns(column) for column in zip(*values, strict=True)])
