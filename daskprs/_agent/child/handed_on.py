"""What one stage hands on to the next: a value in a file in memory, which the next one maps.

The arrays of a value (NumPy's, Arrow's, pandas', tensors) lie beside its pickle and are not copied
by it. The next stage maps the file privately, so that its arrays can be changed and are its own: no
later mini-batch is written over them, however long the script keeps them. Where PyTorch has a
device, they are read into page-locked memory instead, from which a device copies twice as fast and
beside other work. The supervisor made the file (`agent.supervision.stage_workers`), and it is gone
with the last one who has it open or mapped.
"""

from __future__ import annotations

import importlib
import io
import mmap
import os
import pickle
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._agent.child.cuda_errors import is_fatal
from daskprs._arrow.array_parts import part_alone
from daskprs.errors import AgentError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from daskprs._agent.child.included_columns import IncludedColumns
    from daskprs._core.pieces import FailedItems

ALIGNED_BYTES = 64
"""Arrow wants its buffers so, and vector instructions like them."""
AT_ONCE_BYTES = 1 << 30
"""Linux writes 2 GiB at most in one call."""
PICKLES = 2
"""Parts of a file before the arrays: the value, and what belongs to its mini-batch."""
_COUNT = struct.Struct("<q")


class HandedOn(NamedTuple):
    """The value of a stage, and what belongs to its mini-batch."""

    value: Any
    """None until it is read."""
    index: int  # type: ignore[assignment]  # it hides tuple.index
    """The mini-batch: what a process gets for it is checked."""
    total: int
    included: IncludedColumns | None
    """The columns of the input that stand beside the rows."""
    named: dict[int, FailedItems]
    """The items that the script has named as failed, by number."""
    started: float
    """The beginning of the stage, in seconds since the epoch."""
    cpu_s: float
    """Processor time of the stages so far."""
    run_s: float
    """Seconds in the functions of the stages so far."""
    elapsed_s: float
    """Seconds that the mini-batch occupied the process of `run`; 0 before it."""
    load_s: float
    """Those of them in which the process waited for the value of the stage before."""
    peak_bytes: int
    """The highest memory of the process of `run` meanwhile; 0 before it."""
    usage: dict[str, float]
    """What the stages so far have used by the script's own count."""


class Packed(NamedTuple):
    """A value that can travel."""

    pickled: memoryview
    buffers: list[pickle.PickleBuffer]
    """Its arrays, which are not in the pickle."""


def packed(value: Any, stage: str) -> Packed:
    """Pack what a stage returned; its tensors leave their device, which may have to compute them.

    Raise `ReturnTypeError` if it holds something that no process can send to another one.
    """
    try:
        return _packed(value)
    except MemoryError:
        raise
    except Exception as error:  # an object of the script's may raise anything
        if is_fatal(error):  # a device tells late what has failed on it
            raise
        what = f"{type(value).__module__}.{type(value).__qualname__}"
        msg = (
            f"{stage}() returned a {what} that cannot travel to the next process: "
            f"{type(error).__name__}: {error}. Return arrays, tensors, tables, or lists and dicts "
            "of them; make what belongs to one process, such as a model, in init()."
        )
        raise ReturnTypeError(msg) from error


def as_handed_on(value: Any, stage: str) -> Any:
    """Return what a stage returned as the next one gets it, in the same process.

    Where the script uses a device, tensors leave it, as they do between processes. What cannot
    travel stays as it is.
    """
    if _pins():
        with suppress(ReturnTypeError):
            made = packed(value, stage)
            return pickle.loads(made.pickled, buffers=made.buffers)
    return value


def write(value: Packed, about: HandedOn, file: str | Path) -> None:
    """Write the value of a stage, and what belongs to its mini-batch."""
    beside = _packed(about)
    views = [value.pickled, beside.pickled]
    views += [one.raw() for one in (*value.buffers, *beside.buffers)]
    sizes = [len(views), *(one.nbytes for one in views)]
    head = b"".join(map(_COUNT.pack, sizes))
    fd = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        for part in (memoryview(head), *views):
            _write_all(fd, part)
            _write_all(fd, memoryview(bytes(-part.nbytes % ALIGNED_BYTES)))
    finally:
        os.close(fd)


def read(file: str | Path, index: int) -> HandedOn:
    """Return what the stage before has handed on for a mini-batch.

    Raise `AgentError` if it is that of another mini-batch: such a file is not to be used.
    """
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        handed_on = _read_pinned(fd) if _pins() else _mapped(fd)
    finally:
        os.close(fd)
    if handed_on.index != index:
        msg = f"the file of a stage is that of mini-batch {handed_on.index}, not {index}"
        raise AgentError(msg)
    return handed_on


def _mapped(fd: int) -> HandedOn:
    whole = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
    (count,) = _COUNT.unpack_from(whole)
    sizes = [_COUNT.unpack_from(whole, _COUNT.size * at)[0] for at in range(1, count + 1)]
    return _made_of([whole[first : first + size] for first, size in _places(sizes)])


def _read_pinned(fd: int) -> HandedOn:
    """Read the arrays into page-locked memory, which PyTorch keeps and gives out again."""
    (count,) = _COUNT.unpack(os.pread(fd, _COUNT.size, 0))
    head = os.pread(fd, _COUNT.size * count, _COUNT.size)
    sizes = [_COUNT.unpack_from(head, _COUNT.size * at)[0] for at in range(count)]
    parts: list[Any] = []
    for number, (first, size) in enumerate(_places(sizes)):
        parts.append(bytearray(size) if number < PICKLES else _page_locked(size))
        _read_all(fd, memoryview(parts[-1]), first)
    return _made_of(parts)


def _page_locked(size: int) -> Any:
    torch: Any = sys.modules["torch"]
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
    except RuntimeError:  # less of it can be had than of other memory
        return np.empty(size, np.uint8)


def _made_of(parts: Sequence[ReadableBuffer]) -> HandedOn:
    buffers = iter(parts[PICKLES:])  # each pickle takes its own
    try:
        value = pickle.loads(parts[0], buffers=buffers)
        handed_on: HandedOn = pickle.loads(parts[1], buffers=buffers)
    except Exception as error:  # an object of the script's may raise anything
        error.add_note(
            "Raised by an object in what the function before this one returned, as it was unpickled"
            " here. Return arrays, tensors, tables, or lists and dicts of them."
        )
        raise
    return handed_on._replace(value=value)


def _packed(value: Any) -> Packed:
    buffers: list[pickle.PickleBuffer] = []
    sink = io.BytesIO()
    _StagePickler(sink, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    return Packed(sink.getbuffer(), buffers)


def _pins() -> bool:
    """Say whether the script uses a device by PyTorch."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _places(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first byte and the size of each part behind the head."""
    at = _aligned(_COUNT.size * (1 + len(sizes)))
    for size in sizes:
        yield at, size
        at += _aligned(size)


def _aligned(size: int) -> int:
    return size + -size % ALIGNED_BYTES


def _write_all(fd: int, part: memoryview) -> None:
    part = part.cast("B") if part.nbytes else memoryview(b"")
    while part:
        part = part[os.write(fd, part[:AT_ONCE_BYTES]) :]


def _read_all(fd: int, into: memoryview, at: int) -> None:
    while into:
        count = os.preadv(fd, [into[:AT_ONCE_BYTES]], at)
        if count == 0:
            msg = "the file of a stage ends too early"
            raise EOFError(msg)
        into, at = into[count:], at + count


class _StagePickler(pickle.Pickler):
    """Pickles tensors of PyTorch by their memory, from whichever device; torch copies it thrice.

    They keep the order of their dimensions in memory, and so do NumPy's arrays, since sums and
    kernels round by this order. NumPy before 2.3 changes any but that of C and Fortran, and each
    NumPy that of a part; it also copies such an array into the pickle. A slice of Arrow travels
    without the rows beside it.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            if value.flags.forc or value.dtype.hasobject:
                return NotImplemented
            axes = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
            places = sorted(range(value.ndim), key=axes.__getitem__)
            return np.transpose, (np.ascontiguousarray(value.transpose(axes)), places)
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor:
            return part_alone(value)
        if value.layout is not torch.strided or value.is_quantized or value.is_complex():
            return NotImplemented
        there = value.detach().cpu()
        if not _in_memory_order(there).is_contiguous():
            there = there.clone()
        memory = _in_memory_order(there).reshape(-1).view(torch.uint8).numpy()
        made = _tensor_with_grad if value.requires_grad else _tensor
        form = pickle.PickleBuffer(memory), str(there.dtype), tuple(there.shape), there.stride()
        return made, form


def _in_memory_order(tensor: Any) -> Any:
    return tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))


def _tensor(memory: Any, kind: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return a tensor on the memory of one; its `kind` is ``torch.float16``."""
    torch: Any = importlib.import_module("torch")  # a package of the script's
    dtype = getattr(torch, kind.rpartition(".")[2])
    if not memoryview(memory).nbytes:
        return torch.empty_strided(shape, strides, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)


def _tensor_with_grad(*form: Any) -> Any:
    return _tensor(*form).requires_grad_()
