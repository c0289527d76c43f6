"""Pickles of arrays of Arrow, and of tensors of PyTorch, without the memory beside them.

Both pickle the whole memory that a part of them lies in: each row would bring all rows along.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

from daskprs._arrow.sizes import size_bytes


def part_alone(value: Any) -> Any:
    """Return how an array or a tensor is made anew that is a part of a larger one."""
    if isinstance(value, getattr(sys.modules.get("pyarrow"), "Array", ())):
        return _slice_alone(value)
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return NotImplemented
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
        return NotImplemented
    if vars(value) or value.untyped_storage().nbytes() <= value.nbytes:  # a clone has no attributes
        return NotImplemented
    return value.clone().__reduce_ex__(5)


def _slice_alone(array: Any) -> Any:
    if array.get_total_buffer_size() <= 2 * size_bytes(array):
        return NotImplemented
    import pyarrow as pa

    return pa.concat_arrays([array]).__reduce__()


def pickle_of(value: Any) -> bytes:
    """Return the pickle of a value, with arrays and tensors in it as `part_alone` makes them."""
    file = io.BytesIO()
    _PartPickler(file, protocol=5).dump(value)
    return file.getvalue()


class _PartPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return part_alone(value)
