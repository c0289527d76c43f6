"""The part that each row goes to: a hash of its keys, which is the same in every process."""

from __future__ import annotations

import datetime as dt
import enum
import numbers
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import not_in_pandas
from daskprs._arrow.exact_casts import MISFITS
from daskprs.errors import LoadError, Option, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}
"""Types for keys that lie in Arrow: those of which pandas has no null otherwise."""
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the others have none either
UTC_EPOCH = EPOCH.replace(tzinfo=dt.UTC)


def keys_of(rows: pd.DataFrame | pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """Return the keys of rows; in a table a null does not change the type of the others."""
    if isinstance(rows, pd.DataFrame):
        return rows[list(keys)]
    table = rows.select(keys)
    try:
        frame: pd.DataFrame = table.to_pandas(types_mapper=NULLABLE.get, ignore_metadata=True)
    except MISFITS as error:
        msg = f": {not_in_pandas(table, error)} Convert it in the input."
        raise LoadError(Option("partition_keys"), msg) from error
    return frame


def part_of(keys: pd.DataFrame, parts: int) -> npt.NDArray[np.int16]:
    """Return the part of each row: equal keys have the same, whatever their bits."""
    mixed = np.zeros(len(keys), np.uint64)
    for key in keys.columns:
        mixed = mixed * np.uint64(1_000_003) + _hashed(keys[key])
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(parts)).astype(np.int16)  # few values are sorted by counting


def comparable(column: pd.Series) -> pd.Series:
    """Return a column of which equal keys have equal bits, whatever its kind of floats."""
    if column.dtype.kind != "f":
        return column
    column = column.astype("float64") + 0.0  # -0.0 + 0.0 is 0.0
    return column.where(column.notna(), np.nan)


def _hashed(column: pd.Series) -> npt.NDArray[np.uint64]:
    try:
        if column.dtype == object:
            codes, values = pd.factorize(column)  # it compares as the groups of a part do
            return np.array([*map(_hash, values), 0], np.uint64)[codes]  # null has the code -1
        return np.asarray(pd.util.hash_pandas_object(comparable(column), index=False), np.uint64)
    except (NotImplementedError, TypeError) as error:
        _refuse_mutable(column)
        msg = f": column {column.name!r}, {column.dtype}, cannot be a key: {error}."
        raise LoadError(Option("partition_keys"), msg) from error


def _refuse_mutable(column: pd.Series) -> None:
    for value in column if column.dtype == object else ():
        try:
            hash(value)
        except TypeError as error:
            msg = f": a {class_name(type(value))} cannot be a key, since it can change."
            raise LoadError(Option("partition_keys"), msg) from error


def _hash(value: Any) -> int:
    """Return equal hashes for equal values, in every process.

    Python's own hashes of text differ between processes. Values of an unknown class all have the
    same hash: they are one part.
    """
    match value:
        case str():
            hashed = zlib.crc32(value.encode("utf-8", "surrogatepass"))
        case bytes():
            hashed = zlib.crc32(value)
        case enum.Enum() if type(value).__hash__ is enum.Enum.__hash__:
            hashed = _hash(value.name)
        case tuple():
            hashed = 0
            for item in value:
                hashed = hashed * 1_000_003 + _hash(item)
        case dt.datetime():
            begin = EPOCH if value.tzinfo is None else UTC_EPOCH
            hashed = hash((value - begin) // dt.timedelta(microseconds=1))
        case dt.date():
            hashed = value.toordinal()
        case numbers.Number():  # Python gives equal numbers of all classes one hash
            hashed = 0 if value != value else hash(value)  # noqa: PLR0124 - NaN
        case _:
            hashed = 0
    # Neighbours are to lie in different parts.
    return (hashed * 0x9E3779B97F4A7C15) & 0xFFFF_FFFF_FFFF_FFFF
