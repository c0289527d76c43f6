"""The mini-batch context, which `run` receives besides the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.core.mini_batch import MiniBatch


@dataclass(frozen=True, slots=True)
class Slice:
    """A small description of where a mini-batch comes from; ``str`` of it suits a log."""

    label: str
    identity: str
    size_bytes: int | None = None

    def __str__(self) -> str:
        """Return the line that people read: ``trips.csv, bytes 0-1048576``."""
        return self.label or self.identity


@dataclass(frozen=True, slots=True)
class MiniBatchContext:
    """The second argument of `run`, for those that take one; it cannot be changed.

    Attributes
    ----------
    minibatch_index : int
        The number of the mini-batch, the same in every run over the same input.
    partition_key_value : dict
        Names and values of the partition keys, in the order of `partition_keys`.
    global_row_index_lower_bound : int or None
        Offset of its first row or file in the whole input, where the plan knows it.
    dataset : Slice
        What it is a slice of.

    """

    minibatch_index: int
    partition_key_value: Mapping[str, Any] = field(default_factory=dict)
    global_row_index_lower_bound: int | None = None
    dataset: Slice = Slice("", "")

    @classmethod
    def of(cls, mini_batch: MiniBatch) -> MiniBatchContext:
        """Return the context of a mini-batch."""
        return cls(
            mini_batch.index,
            dict(mini_batch.partition_key),
            mini_batch.row_lower_bound,
            Slice(mini_batch.label, mini_batch.identity, mini_batch.size_bytes),
        )
