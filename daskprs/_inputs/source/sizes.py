"""Sizes of mini-batches and of memory, as people write them."""

from __future__ import annotations

import re
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

from daskprs.errors import Option, OptionError

UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
MOST = 1 << 62
"""No input has as many rows or files."""
LEAST_BYTES = 1024
"""A bare number below this, for a table, was probably meant as a number of rows."""
_FORM = re.compile(r"(\d+)\s*(b|kb|mb|gb)?", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)\s*(row|file|item)s?", re.IGNORECASE)
RULE = "a whole number above 0, with or without a unit of 1024: B, KB, MB or GB"
RULE_OF_MINI_BATCHES = f'{RULE}; or a number of rows or files, such as "100 rows" or "20 files"'
OPTION = "mini_batch_size"
RULE_OF_COSTS = (
    "a number above 0, without a unit: the largest sum of the costs of the rows of a mini-batch"
)


class Size(NamedTuple):
    """How much of a table makes a mini-batch: a number of bytes, or of rows."""

    amount: int
    unit: Literal["bytes", "rows"] = "bytes"

    def rows_of(self, rows: int, size_bytes: int) -> int:
        """Return how many rows make a mini-batch, if this many rows have this many bytes."""
        if self.unit == "rows":
            return self.amount
        return max(1, self.amount * rows // max(1, size_bytes))

    @property
    def told(self) -> int | str:
        """The size as a JSON value: bytes as a number."""
        return self.amount if self.unit == "bytes" else f"{self.amount} rows"


def parse_bytes(value: Any, option: str) -> int:
    """Return a size in bytes.

    The value of the option is a number, NumPy's too, or text such as ``"10 MB"``: digits and a
    unit, in any case.
    """
    size = _bytes(value)
    if size <= 0:
        raise _refused(value, option, RULE)
    return size


def _bytes(value: Any) -> int:
    """Return a size in bytes; 0 for anything else."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) * UNITS[(match[2] or "").lower()]
    return int(value) if whole else 0


def _counted(value: Any) -> tuple[int, str] | None:
    """Return the number and the word of a size such as ``"100 rows"``; None for another size."""
    match = _COUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else (min(int(match[1]), MOST), f"{match[2].lower()}s")


def _refused(value: Any, option: str, rule: str) -> OptionError:
    return OptionError(Option(option, value), f": must be {rule}.")


def size_in_one_form(value: Any, unit: str = "row") -> int | str:
    """Return a size of mini-batches such that equal sizes are equal: bytes or a count, or rows.

    `unit` is the unit of the input. In an input of items, ``"10 rows"`` means 10 items.
    """
    count, word = _counted(value) or (_bytes(value), "")
    if count <= 0:
        raise _refused(value, OPTION, RULE_OF_MINI_BATCHES)
    return f"{count} rows" if word == "rows" and unit != "item" else count


def size_in_costs(value: Any) -> float:
    """Return the size of mini-batches that are cut by cost; anything but a number is refused."""
    is_number = isinstance(value, (Real, str)) and not isinstance(value, bool)
    try:
        size = float(value) if is_number else 0.0
    except (ValueError, OverflowError):
        size = 0.0
    if not (isfinite(size) and size > 0):
        raise _refused(value, OPTION, RULE_OF_COSTS)
    return size


def size_of_table(value: float | str) -> Size:
    """Return the size of the mini-batches of a table; a number of files is refused."""
    counted = _counted(value)
    if counted is None:
        return Size(parse_bytes(value, OPTION))
    if counted[1] != "rows":
        told = (
            ': for a table it is a number of bytes, such as "10 MB", or of rows, such as '
            '"100 rows". To get paths of files instead, say '
        )
        raise OptionError(Option(OPTION, value), told, Option("input_type", "files"), ".")
    return Size(counted[0], "rows")


def bare_bytes(value: float | str | None) -> int:
    """Return a size without a unit that is so small that it may be meant as rows; else 0."""
    is_bare = value is not None and str(value).strip().isdigit()
    return int(value) if is_bare and value is not None and int(value) < LEAST_BYTES else 0


def count_per_mini_batch(value: float | str, things: Literal["files", "items"]) -> int:
    """Return how many files or items make a mini-batch; an item may be a row; bytes are refused."""
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    count, word = _counted(value) or (0, "")
    if isinstance(value, str) and word != things and (things, word) != ("items", "rows"):
        told = f': for {things} it is a count, such as 10 or "10 {things}".'
        raise OptionError(Option(OPTION, value), told)
    return count or parse_bytes(value, OPTION)
