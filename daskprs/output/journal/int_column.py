"""A column of numbers that takes no memory while all numbers are 0."""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

Numbers = np.ndarray[Any, Any]
BLOCK = 1 << 15


class IntColumn:
    """Numbers of one type, by row.

    Most jobs have no use for half of their columns: no frames with headers, no rows with types.

    Parameters
    ----------
    code
        The type, as the standard library's arrays name it.
    numbers
        The first numbers of the column.

    """

    __slots__ = ("_blocks", "_last", "_zeros")

    def __init__(self, code: str, numbers: Numbers | None = None) -> None:
        self._zeros = 0
        """Number of zeros before the rest."""
        self._blocks: list[array[int]] = []
        """Blocks of `BLOCK` numbers each. One growing array would be moved again and again, and
        leave holes in the memory of the process."""
        self._last = array(code)
        """The last numbers, fewer than `BLOCK`."""
        if numbers is not None:
            first = np.flatnonzero(numbers)[:1]
            self._zeros = int(first[0]) if len(first) else len(numbers)
            self._last.frombytes(numbers[self._zeros :].astype(code).tobytes())
            self._cut()

    def __len__(self) -> int:
        return self._zeros + BLOCK * len(self._blocks) + len(self._last)

    def __getitem__(self, row: int) -> int:
        if row < self._zeros:
            return 0
        block, place = divmod(row - self._zeros, BLOCK)
        value: int = (self._blocks[block] if block < len(self._blocks) else self._last)[place]
        return value

    def extend(self, numbers: Iterable[int] | None, count: int) -> None:
        """Append `count` numbers; None appends zeros."""
        if numbers is not None:
            self._last.extend(numbers)
            self._cut()
        elif self._blocks or self._last:
            self.extend(repeat(0, count), count)
        else:
            self._zeros += count

    def copy(self) -> Numbers:
        """Return all numbers as an array."""
        numbers = np.zeros(len(self), self._last.typecode)
        at = self._zeros
        for block in (*self._blocks, self._last):
            numbers[at : at + len(block)] = block
            at += len(block)
        return numbers

    def _cut(self) -> None:
        """Move whole blocks from the last numbers to the blocks."""
        whole = len(self._last) // BLOCK * BLOCK
        for start in range(0, whole, BLOCK):
            self._blocks.append(self._last[start : start + BLOCK])
        if whole:
            self._last = self._last[whole:]
