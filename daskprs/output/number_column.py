"""A column of numbers that takes no memory for as long as all of them are 0."""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

Numbers = np.ndarray[Any, Any]


class NumberColumn:
    """Numbers of one type, by row.

    Most jobs have no use for half of their columns: no frames with headers, no rows with types.

    Parameters
    ----------
    code
        The type, as the standard library's arrays name it.
    numbers
        The first of them.

    """

    __slots__ = ("_rest", "_zeros")

    def __init__(self, code: str, numbers: Numbers | None = None) -> None:
        self._zeros = 0
        """So many zeros come before the rest."""
        self._rest = array(code)
        if numbers is not None:
            first = np.flatnonzero(numbers)[:1]
            self._zeros = int(first[0]) if len(first) else len(numbers)
            self._rest.frombytes(numbers[self._zeros :].astype(code).tobytes())

    def __len__(self) -> int:
        return self._zeros + len(self._rest)

    def __getitem__(self, row: int) -> int:
        value: int = self._rest[row - self._zeros] if row >= self._zeros else 0
        return value

    def extend(self, numbers: Iterable[int] | None, count: int) -> None:
        """Put so many numbers behind the others; None: zeros."""
        if numbers is not None:
            self._rest.extend(numbers)
        elif self._rest:
            self._rest.extend(repeat(0, count))
        else:
            self._zeros += count

    def copy(self) -> Numbers:
        """Return all of them."""
        numbers = np.zeros(len(self), self._rest.typecode)
        numbers[self._zeros :] = self._rest
        return numbers
