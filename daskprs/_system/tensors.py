"""Pickles of tensors of PyTorch that are parts of a larger one, without the rest of it."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any


def part_alone(value: Any) -> Any:
    """Return how a tensor is made anew that is a part of a larger one, as its rows are.

    PyTorch pickles the whole memory that a tensor lies in: each row would bring all rows along.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return NotImplemented
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
        return NotImplemented
    if vars(value) or value.untyped_storage().nbytes() <= value.nbytes:  # a clone has no attributes
        return NotImplemented
    return value.clone().__reduce_ex__(5)


def pickle_of(value: Any) -> bytes:
    """Return the pickle of a value, with the tensors in it as `part_alone` makes them."""
    if "torch" not in sys.modules:
        return pickle.dumps(value, protocol=5)
    file = io.BytesIO()
    _TensorPickler(file, protocol=5).dump(value)
    return file.getvalue()


class _TensorPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return part_alone(value)
