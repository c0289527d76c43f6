"""One mini-batch: the unit of work, of retry and of output.

A descriptor says where the data lies, never holds it. Descriptors are made lazily by a source
and travel by the thousand, hence named tuples: they pickle several times faster than frozen
dataclasses with slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class MiniBatch(NamedTuple):
    """A descriptor of one mini-batch."""

    index: int  # type: ignore[assignment]  # it hides tuple.index
    """Its number in the plan, the same in every run: ``minibatch_index``."""
    piece: Any
    """What the source's reader needs in order to load it; picklable and small."""
    identity: str
    """What it is by content (path, size, time and range, or key), for the journal."""
    items: int | None = None
    """Rows or files in it, where the plan knows."""
    size_bytes: int | None = None
    """Its share of the input in bytes, where the plan knows."""
    partition_key: tuple[tuple[str, Any], ...] = ()
    """Names and values of the partition keys, in the order of ``partition_keys``."""
    row_lower_bound: int | None = None
    """Offset of its first item in the whole input, where the plan knows."""
    label: str = ""
    """One line for people: ``trips.csv, bytes 0-1048576``."""
    load_group: int | None = None
    """Those that follow each other with the same number are loaded at the price of one, by one
    agent: slices of a row group."""


class Assigned(NamedTuple):
    """A mini-batch with the number of the attempt at it."""

    mini_batch: MiniBatch
    attempt: int
    """1 for the first; counted by the ledger alone."""


class Where(NamedTuple):
    """Where the items of a mini-batch lie, as far as that can be said in numbers and paths."""

    paths: tuple[str, ...] = ()
    """Its files, or the file that it is a part of."""
    row_group: int | None = None
    rows: tuple[int, int] | None = None
    """Its first row and the one behind its last: in the row group, the partition or the frame."""
    bytes: tuple[int, int] | None = None
    """The same in bytes; of text, the rows that start there."""
