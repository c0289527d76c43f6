"""Hypothesis strategies: frames with columns of every type that pandas knows how to write."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

DATES = st.datetimes(min_value=pd.Timestamp("1900-01-01"), max_value=pd.Timestamp("2200-01-01"))
TEXTS = st.text(st.sampled_from("ab 0;,\"'\n\r\t\\é\U0001f600\x00\ufeff"), max_size=6)
EDGES = [0.0, -0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1.1e-4, 0.1, 1e9, 1e10, 1e15, 1e16, 2.0**53, 1e300]
FLOATS = (
    st.floats()
    | st.sampled_from(EDGES)
    | st.sampled_from(EDGES).map(lambda edge: float(np.nextafter(edge, 0)))
    | st.integers(-(2**60), 2**60).map(float)
    | st.floats(-1e17, 1e17)
    | st.floats(-1e-3, 1e-3)
)
NARROW_FLOATS = FLOATS.map(lambda number: float(_narrow(number, "float32")))
INTS = st.integers(-(2**63), 2**63 - 1)
MIXED = (
    st.integers()
    | FLOATS
    | TEXTS
    | st.booleans()
    | st.none()
    | st.dates()
    | st.decimals(allow_nan=False)
)


def _narrow(number: float, dtype: str) -> Any:
    with np.errstate(over="ignore"):
        return np.float64(number).astype(dtype)


def _series(cells: st.SearchStrategy[Any], dtype: Any) -> Any:
    return lambda rows: st.lists(cells, min_size=rows, max_size=rows).map(
        lambda drawn: pd.Series(drawn, dtype=dtype)
    )


def _categories(dtype: str, values: list[Any]) -> Any:
    categories = pd.Index(values, dtype=dtype)
    return _series(st.sampled_from([*categories, None]), pd.CategoricalDtype(categories))


NUMBERS = [
    _series(INTS, "int64"),
    _series(st.integers(0, 255), "uint8"),
    _series(st.integers(0, 2**64 - 1), "uint64"),
    _series(st.integers(-(2**15), 2**15 - 1), "int16"),
    _series(FLOATS, "float64"),
    _series(NARROW_FLOATS, "float32"),
    _series(st.floats(width=16), "float16"),
    _series(st.booleans(), "bool"),
]
COLUMNS = [
    *NUMBERS,
    _series(TEXTS | st.none(), "object"),
    _series(TEXTS | st.sampled_from([None, np.nan, pd.NA, pd.NaT]), "object"),
    _series(TEXTS | st.none(), "string"),
    _series(TEXTS | st.none(), None),
    _series(DATES | st.none(), "datetime64[us]"),
    _series(DATES.map(lambda day: day.replace(microsecond=0)) | st.none(), "datetime64[ns]"),
    _series(st.dates().map(pd.Timestamp) | st.none(), "datetime64[s]"),
    _series(st.datetimes() | st.none(), "datetime64[ms]"),
    _series(DATES.map(lambda day: pd.Timestamp(day, tz="Europe/Vienna")) | st.none(), None),
    _series(st.timedeltas(timedelta(days=-90), timedelta(days=90)) | st.none(), "timedelta64[us]"),
    _series(INTS | st.none(), "Int64"),
    _series(st.integers(0, 255) | st.none(), "UInt8"),
    _series(FLOATS | st.none(), "Float64"),
    _series(NARROW_FLOATS | st.none(), "Float32"),
    _series(st.booleans() | st.none(), "boolean"),
    _series(INTS | st.none(), pd.ArrowDtype(pa.int64())),
    _series(TEXTS | st.none(), pd.ArrowDtype(pa.string())),
    _series(st.booleans() | st.none(), pd.ArrowDtype(pa.bool_())),
    _series(st.booleans(), pd.SparseDtype("bool")),
    _series(st.sampled_from(["a", "b c", None]), "category"),
    _series(st.sampled_from([1, 2, None]), pd.CategoricalDtype([3, 2, 1], ordered=True)),
    _categories("float64", [0.5, 2, 1e-7]),
    _categories("float32", [0.1, 2, 1e10]),
    _categories("bool", [True, False]),
    _categories("datetime64[s]", [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 12:00")]),
    _categories("object", ["a,b", 1, date(2020, 1, 1)]),
    _series(st.sampled_from([pd.Period("2020-01", "M"), pd.Period("2021-01", "M")]), None),
    _series(st.sampled_from([pd.Interval(0, 1), pd.Interval(1, 2)]), None),
    _series(st.sampled_from([0, 1]), pd.SparseDtype("int64")),
    _series(st.complex_numbers(max_magnitude=9, allow_nan=False), "complex128"),
    _series(st.integers() | st.none(), "object"),
    _series(st.booleans() | st.none(), "object"),
    _series(FLOATS | st.none(), "object"),
    _series(st.dates() | st.none(), "object"),
    _series(st.just(Decimal("1.50")) | st.none(), "object"),
    _series(st.binary(max_size=3), "object"),
    _series(st.lists(st.integers(), max_size=2), "object"),
    _series(st.tuples(st.integers(), TEXTS), "object"),
    _series(MIXED, "object"),
]
NAMES = TEXTS | st.integers(0, 5)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Return a frame: up to five columns of any type and name, any index.

    Some have many rows, drawn from few: long frames are written in another way than short ones.
    """
    rows = draw(st.integers(0, 6))
    names = draw(st.lists(NAMES, max_size=5, unique_by=str))
    kinds = draw(st.sampled_from([COLUMNS, COLUMNS, NUMBERS]))
    same = draw(st.booleans()) and draw(st.sampled_from(kinds))
    columns = [draw((same or draw(st.sampled_from(kinds)))(rows)) for _ in names]
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)), index=range(rows))
    frame.index = draw(st.permutations(range(rows)))
    if rows and draw(st.booleans()):
        return frame.iloc[np.arange(draw(st.integers(101, 110))) % rows]
    return frame
