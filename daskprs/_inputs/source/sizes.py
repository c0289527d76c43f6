"""Sizes of mini-batches and of memory, as people write them."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from daskprs.errors import Option, OptionError

UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
DEFAULT_FILES = 10
_FORM = re.compile(r"(\d+)\s*(b|kb|mb|gb)?", re.IGNORECASE)
RULE = "a whole number above 0, with or without a unit of 1024: B, KB, MB or GB"


def parse_bytes(value: Any, option: str) -> int:
    """Return a size in bytes.

    The value of the option is a number, NumPy's too, or text such as ``"10 MB"``: digits and a
    unit, in any case.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        size = int(match[1]) * UNITS[(match[2] or "").lower()]
    else:
        size = int(value) if whole else 0
    if size <= 0:
        msg = f"{Option(option, value)}: must be {RULE}."
        raise OptionError(msg)
    return size


def files_per_mini_batch(value: int | str | None) -> int:
    """Return how many files make a mini-batch (default 10)."""
    return DEFAULT_FILES if value is None else count_per_mini_batch(value, "files")


def count_per_mini_batch(value: int | str, items: str) -> int:
    """Return how many items make a mini-batch; a size in bytes is refused."""
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, str):
        shown = Option("mini_batch_size", value)
        raise OptionError(shown, f": for {items} it is a count, such as 10.")
    return parse_bytes(value, "mini_batch_size")
