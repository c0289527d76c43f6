"""One mini-batch: the unit of work, of retry and of output.

A descriptor says where the data lies and never holds the data. A source makes descriptors lazily,
and they travel by the thousand. They are named tuples, which pickle several times faster than
frozen dataclasses with slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from daskprs._core.pieces import Pieces
    from daskprs._core.stages import StageWork


class MiniBatch(NamedTuple):
    """A descriptor of one mini-batch."""

    index: int  # type: ignore[assignment]  # it hides tuple.index
    """Its number in the plan, the same in every run: ``minibatch_index``."""
    piece: Any
    """The data that the source's reader needs to load the mini-batch; picklable and small."""
    identity: str
    """Identity of the content (path, size, time and range, or key), for the journal."""
    items: int | None = None
    """Number of rows or files, where the plan knows it."""
    size_bytes: int | None = None
    """Size of the mini-batch's input in bytes, where the plan knows it."""
    partition_key: tuple[tuple[str, Any], ...] = ()
    """Names and values of the partition keys, in the order of ``partition_keys``."""
    row_lower_bound: int | None = None
    """Offset of its first item in the whole input, where the plan knows."""
    label: str = ""
    """One line for people: ``trips.csv, bytes 0-1048576``."""
    load_group: int | None = None
    """Number of a load group: one agent loads adjacent mini-batches of a group at the price of
    one, such as the slices of a row group."""
    worker: str = ""
    """Address of the worker that holds its data; empty where any worker loads it at one price."""

    @property
    def described(self) -> str:
        """The mini-batch in a sentence: ``mini-batch 3 (trips.csv, bytes 0-1048576)``."""
        label = f" ({self.label})" if self.label else ""
        return f"mini-batch {self.index}{label}"

    @property
    def size(self) -> int | None:
        """Its size in bytes, else in items: that of one is compared with that of others."""
        return self.items if self.size_bytes is None else self.size_bytes


class Assigned(NamedTuple):
    """A mini-batch with the number of the attempt at it."""

    mini_batch: MiniBatch
    attempt: int
    """1 for the first; counted by the ledger alone."""
    pieces: Pieces | None = None
    """What the attempt runs; None: all items at once."""
    work: StageWork | None = None
    """The stage that a process runs of it; None: all of them, one after the other."""


class Where(NamedTuple):
    """The location of a mini-batch's items, as far as numbers and paths can express it."""

    paths: tuple[str, ...] = ()
    """The files of the mini-batch, or the file that contains it."""
    row_group: int | None = None
    rows: tuple[int, int] | None = None
    """First row, and the row after the last, in the row group, the partition or the frame."""
    bytes: tuple[int, int] | None = None
    """First byte, and the byte after the last; for text, the rows that start in this range."""
