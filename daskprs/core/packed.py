"""Named tuples by the thousand, which travel as columns.

A lease and what comes back of it go through several processes, and most of them only pass them
on. Rows are pickled once, column by column (a quarter of what it costs row by row), and unpacked
by whoever looks at one first.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound="tuple[Any, ...]")


class Packed(Sequence[T], Generic[T]):
    """A sequence of named tuples of one class; it cannot be changed."""

    __slots__ = ("_count", "_packed", "_rows")

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._rows: tuple[T, ...] | None = tuple(rows)
        self._count = len(self._rows)
        self._packed: bytes | None = None

    @classmethod
    def _of(cls, packed: bytes, count: int) -> Packed[T]:
        new = cls()
        new._rows, new._packed, new._count = None, packed, count
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            self._packed = pickle.dumps(_columns(self._unpacked()), pickle.HIGHEST_PROTOCOL)
        return Packed._of, (self._packed, self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._unpacked())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self._unpacked() == other._unpacked()

    def __hash__(self) -> int:
        return hash(self._unpacked())

    def __repr__(self) -> str:
        return f"Packed({list(self._unpacked())!r})"

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self._unpacked()[at]

    def _unpacked(self) -> tuple[T, ...]:
        if self._rows is None and self._packed is not None:
            self._rows = tuple(_rows(pickle.loads(self._packed)))
        return self._rows or ()


class _Table:
    """Rows of one class of named tuples, as columns, those of named tuples as tables again."""

    __slots__ = ("columns", "row")

    def __init__(self, row: Any, columns: list[Any]) -> None:
        self.row = row
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return _Table, (self.row, self.columns)


def _columns(values: Sequence[Any]) -> Any:
    """Return a table where all values are named tuples of one class, else the values."""
    kind = type(values[0]) if values else None
    if not hasattr(kind, "_fields") or set(map(type, values)) != {kind}:
        return values
    return _Table(kind, [_columns(column) for column in zip(*values, strict=True)])


def _rows(values: Any) -> Iterable[Any]:
    if not isinstance(values, _Table):
        return values  # type: ignore[no-any-return] # a column of plain values
    columns = [_rows(column) for column in values.columns]
    return map(values.row._make, zip(*columns, strict=True))
