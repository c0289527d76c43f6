"""Partitions of collections, written on their worker for the agents of its node.

A table is an Arrow file where Arrow gives back the very same rows, and a plain array a NumPy file;
agents map both. Everything else is pickled, mini-batch by mini-batch.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.array_parts import part_alone
from daskprs._arrow.exact_casts import MISFITS, Asked
from daskprs._arrow.exact_frames import labelled_table
from daskprs._arrow.sizes import size_bytes
from daskprs._inputs.collections.node_file import NodeFile, new_name
from daskprs._inputs.collections.partition_table import PartitionCut
from daskprs._inputs.collections.staged_reader import (
    ArraySlices,
    ArrowSlices,
    LabelledFrames,
    PickledSlices,
    Slices,
    append_reader,
    checksum_of,
)
from daskprs._inputs.frames.caller_frame import (
    DIGEST_BYTES,
    DIGEST_THREADS,
    SAMPLE_ROWS,
    FrameSource,
    HashingWriter,
    arrow_source_of_frame,
    source_of_frame,
    unpicklable_cell,
)
from daskprs._inputs.source.batch_format import check_polars_holds
from daskprs._inputs.source.given_types import converted
from daskprs._inputs.source.pickled_rows import pickled
from daskprs._inputs.source.pieces import PartitionSlice, StagedPiece, Uncomputed
from daskprs._system.atomic_file import whole_file
from daskprs.errors import InputError, LoadError, class_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._inputs.collections.staging_form import StagingForm
    from daskprs._inputs.source.sizes import Size

ROWS_OF = {
    ("numpy", "ndarray"),
    ("pandas", "DataFrame"),
    ("pandas", "Series"),
    ("polars", "DataFrame"),
    ("polars", "Series"),
    ("pyarrow", "RecordBatch"),
    ("pyarrow", "Table"),
}
"""Packages and classes of values that are cut by rows, though nothing announces tables."""
MOST_LABEL = 1 << 62
"""Labels from here on number no rows, and might not fit into a range of pandas."""
PLAIN_KINDS = "biufcmMSUV"
"""Kinds of types whose values lie in the array itself."""


Labels = pd.Index | str | None
"""The index of a frame, or why it cannot be kept; None where no labels are kept."""
Written = tuple[Slices, PartitionCut]
"""What reads the file of a partition, and how the partition is cut, without its first label."""


class StagedPartition:
    """The file of a partition: the result of a Dask task, and a dependency of leases."""

    def __init__(self, file: NodeFile, cut: PartitionCut, labels: Labels, checksum: bytes) -> None:
        self._file = file
        self._checksum = checksum
        self.cut = cut
        self.labels = labels

    def placed(self, piece: PartitionSlice, folder: Path) -> StagedPiece | Uncomputed:
        """Return the piece for an agent of this node; a file that has just arrived is written.

        A partition that Dask has computed again, with other rows, lacks the rows that were meant.
        """
        is_whole = (piece.start, piece.stop) == (0, self.cut.rows)
        if piece.digest != self.cut.digest and not is_whole:
            return Uncomputed.of(LoadError(_other_rows(piece.partition)), piece.partition)
        return StagedPiece(str(self._file.at(folder)), piece.start, piece.stop, self._checksum)

    def remove(self) -> None:
        """Remove the file: the job is over."""
        self._file.remove()

    def __sizeof__(self) -> int:
        """Return the bytes in memory, which Dask counts."""
        return sum(map(sys.getsizeof, (self._file, *self.cut, self.labels)))


def _other_rows(number: int) -> str:
    return (
        f"partition {number} was computed again, since a worker was lost, and has other rows now. "
        "A function that makes it gives another result each time: give it a seed, or write the "
        "collection to files first."
    )


def staged(value: Any, number: int, form: StagingForm, folder: Path) -> StagedPartition:
    """Write a partition to a file in a folder of the node; the file goes with the returned object.

    Raise `LoadError`, with the number of the partition, when it is not as announced, or cannot be
    sent to agents.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / new_name()
    try:
        slices, cut = _written(value, form, path)
        checksum = append_reader(path, slices)
    except InputError as error:
        path.unlink(missing_ok=True)
        msg = f"partition {number}: "
        raise LoadError(msg, *error.args) from error
    except BaseException:  # half a file would keep a full disk full
        path.unlink(missing_ok=True)
        raise
    labels = _labels(value.index) if form.keep_labels else None
    first = _first_label(value.index) if form.kind == "frame" else None
    return StagedPartition(NodeFile(path), cut._replace(first_label=first), labels, checksum)


def _written(value: Any, form: StagingForm, path: Path) -> Written:
    match form.kind:
        case "frame":
            return _write_frame(_as_announced(value, form), form, path)
        case "array":
            return _write_array(value, form.size, path)
    if _is_rows(value):
        if type(value) is np.ndarray and _is_plain(value.dtype):
            return _write_plain_array(value, form.size.amount, path)
        return _write_pickles(value, len(value), form.size.amount, path)
    if form.kind == "bag" or hasattr(value, "__next__"):
        value = list(value)
    if type(value) in (list, tuple):
        return _write_pickles(value, len(value), form.size.amount, path)
    return _write_pickles(value, 1, 1, path)


def _is_rows(value: Any) -> bool:
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__}
    return not kinds.isdisjoint(ROWS_OF) and getattr(value, "ndim", 1) > 0


def _labels(index: pd.Index) -> pd.Index | str:
    try:
        pickle.dumps(index, protocol=5)
    except Exception as error:  # noqa: BLE001 - an object of the caller may raise anything
        return f"{type(error).__name__}: {error}"
    return index


def _first_label(index: pd.Index) -> int | None:
    first = index[0] if len(index) else None
    if not isinstance(first, int | np.integer) or not 0 <= first < MOST_LABEL:
        return None
    first = int(first)
    return first if index.equals(pd.RangeIndex(first, first + len(index))) else None


def _cut(rows: int, step: int, size_bytes: int, digest: str) -> PartitionCut:
    return PartitionCut(rows, max(1, min(step, rows)), size_bytes, digest)


# ---- frames ----


def _as_announced(frame: Any, form: StagingForm) -> pd.DataFrame:
    """Return a partition with a new index, and the columns and types that were announced."""
    meta = form.meta
    if not isinstance(frame, pd.DataFrame) or meta is None:
        msg = f"it is a {class_name(type(frame))} where a pandas DataFrame was announced."
        raise InputError(msg)
    if list(frame.columns) != list(meta.columns):
        msg = f"it has the columns {list(frame.columns)} where {list(meta.columns)} were announced."
        raise InputError(msg)
    made: pd.DataFrame = frame.reset_index(drop=True)
    for name, dtype in meta.dtypes.items():
        column = made[name]
        if column.dtype == dtype:
            continue
        try:
            _check_categories(column, dtype)
            asked = Asked.DTYPES if name in form.given else Asked.NOT
            made[name] = converted(column, dtype, asked)
        except MISFITS as error:
            msg = (
                f"column {name!r} is {column.dtype} where {dtype} was announced: {error}. Give the "
                "collection the meta of its partitions, or the column its type: .astype(…)."
            )
            raise InputError(msg) from error
    return made


def _check_categories(column: pd.Series, dtype: Any) -> None:
    """Refuse values that are none of the announced categories: they would become null."""
    if not isinstance(dtype, pd.CategoricalDtype):
        return
    values = column.dropna()
    strange = values[~values.isin(dtype.categories)].unique()
    if len(strange):
        msg = f"{list(strange[:3])} are none of the announced categories"
        raise ValueError(msg)


def _write_frame(frame: pd.DataFrame, form: StagingForm, path: Path) -> Written:
    table = None if form.has_digest or form.batch_format != "pandas" else labelled_table(frame)
    if table is not None:
        return _write_labelled(table, form.size, path)
    if form.batch_format in ("pyarrow", "polars"):
        source: FrameSource | None = arrow_source_of_frame(frame, form.size)
    else:  # a file without rows has no categories
        source = source_of_frame(frame, form.size) if len(frame) else None
    if source is None:
        step = _rows_of_size(frame, form.size)
        return _write_pickles(frame, len(frame), step, path, _rows_from_0)
    check_polars_holds(source.schema, form.batch_format)
    source.write(path)
    slices = ArrowSlices(source.form, path.stat().st_size)
    return slices, _cut(len(frame), source.usual_rows(), source.needed_bytes, source.digest)


def _write_labelled(table: pa.Table, size: Size, path: Path) -> Written:
    """Write a table of a frame without a digest, in a tenth of the time of a small one."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    step = size.rows_of(len(table), size_bytes(table))
    slices = ArrowSlices(LabelledFrames(), path.stat().st_size)
    return slices, _cut(len(table), step, size_bytes(table), "")


# ---- arrays ----


def _write_array(value: Any, size: Size, path: Path) -> Written:
    """Write a block of an array: NumPy's own, a masked or sparse one."""
    if isinstance(value, np.memmap):
        value = np.asarray(value)
    if not getattr(value, "ndim", 0):
        msg = f"it is a {class_name(type(value))} where a block of an array was announced."
        raise InputError(msg)
    if type(value) is np.ndarray and _is_plain(value.dtype):
        step = size.rows_of(max(1, len(value)), value.nbytes)
        return _write_plain_array(value, step, path)
    rows = int(value.shape[0])
    return _write_pickles(value, rows, _rows_of_size(value, size), path)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Say whether a NumPy file gives back this very type."""
    if dtype.hasobject or dtype.kind not in PLAIN_KINDS or dtype.metadata:
        return False
    with suppress(ValueError, TypeError):  # fields that overlap, or have names in other scripts
        repr(dtype).encode("latin-1")
        back = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
        return back == dtype and repr(back) == repr(dtype)
    return False


def _write_plain_array(value: np.ndarray[Any, Any], step: int, path: Path) -> Written:
    with (
        whole_file(path, durable=False) as file,
        ThreadPoolExecutor(DIGEST_THREADS, "digest") as threads,
    ):
        hashing = HashingWriter(file, threads)
        value = np.ascontiguousarray(value)
        header = io.BytesIO()
        np.lib.format.write_array_header_2_0(
            header, np.lib.format.header_data_from_array_1_0(value)
        )
        hashing.write(header.getvalue())
        body = value.reshape(-1).view(np.uint8)  # write_array would copy it
        for start in range(0, len(body), DIGEST_BYTES):
            hashing.write(body[start : start + DIGEST_BYTES])
        digest = hashing.digest()[:24]
    return ArraySlices(), _cut(len(value), step, value.nbytes, digest)


# ---- pickles ----


def _rows_of_size(value: Any, size: Size) -> int:
    """Return how many rows have about this size as pickles; the first rows are the sample."""
    if size.unit == "rows":
        return size.amount
    count = min(value.shape[0], SAMPLE_ROWS)
    sample = _pickle(_slice(value, 0, count), 0)
    return size.rows_of(max(1, count), len(sample))


def _slice(value: Any, start: int, stop: int) -> Any:
    """Return some rows or items; their pickle does not hold the others."""
    if isinstance(value, (pd.DataFrame, pd.Series)):
        return value.iloc[start:stop]
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        rows = value.slice(start, stop - start)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write(rows)
        copied = pa.ipc.open_stream(sink.getvalue()).read_all()
        is_batch = isinstance(value, pa.RecordBatch)
        return copied.combine_chunks().to_batches()[0] if is_batch else copied
    return value[start:stop]


def _write_pickles(
    value: Any,
    rows: int,
    step: int,
    path: Path,
    slice_of: Callable[[Any, int, int], Any] = _slice,
) -> Written:
    cut = _cut(rows, step, 0, "")
    digest, offsets, checksums = hashlib.blake2b(), [0], []
    with whole_file(path, durable=False) as file:
        for start, stop in cut.slices():
            piece = value if stop - start == rows else slice_of(value, start, stop)
            body = _pickle(piece, start)
            digest.update(_digest(piece, body))
            file.write(body)
            checksums.append(checksum_of(body))
            offsets.append(file.tell())
    slices = PickledSlices(cut.step, np.array(offsets, np.int64), checksums)
    return slices, cut._replace(size_bytes=offsets[-1], digest=digest.hexdigest()[:24])


def _rows_from_0(frame: pd.DataFrame, start: int, stop: int) -> pd.DataFrame:
    return frame.iloc[start:stop].reset_index(drop=True)


def _pickle(piece: Any, first: int) -> bytes:
    try:
        return pickled(piece)
    except Exception as error:  # any class of the user has its own error where it has no pickle
        msg = (
            f"{_culprit(piece, first)} cannot be sent to the agents: {type(error).__name__}: "
            f"{error}. Return plain values from the tasks, and make what cannot be pickled (a "
            "lock, a connection, a generator) in init()."
        )
        raise InputError(msg) from error


def _culprit(piece: Any, first: int) -> str:
    """Name what cannot be pickled."""
    if isinstance(piece, pd.DataFrame):
        return unpicklable_cell(piece, first)
    for place, item in enumerate(piece if type(piece) in (list, tuple) else ()):
        try:
            pickled(item)
        except Exception:  # noqa: BLE001 - a class may raise anything
            return f"item {first + place}, a {class_name(type(item))},"
    return f"the {class_name(type(piece))}"


def _digest(piece: Any, body: bytes) -> bytes:
    """Return a digest that depends on values alone, not on which of them share an object.

    Values in a circle have only the pickle itself; so have classes that only cloudpickle knows.
    """
    digest = hashlib.blake2b()
    pickler = _ValuePickler(_DigestFile(digest), protocol=5)
    # Without the memo, two equal values have the same pickle as one value that stands in two
    # places.
    pickler.fast = True
    try:
        pickler.dump(piece)
    except Exception:  # noqa: BLE001 - a class may raise anything
        return hashlib.blake2b(body).digest()
    return digest.digest()


class _ValuePickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Replace a class by its name: the pickle is only digested."""
        if isinstance(value, type):
            return repr, (f"{value.__module__}.{value.__qualname__}",)
        return part_alone(value)


class _DigestFile:
    def __init__(self, digest: hashlib.blake2b) -> None:
        self.write = digest.update
