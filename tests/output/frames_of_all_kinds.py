"""Hypothesis strategies: frames with columns of every type that pandas knows how to write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd
from hypothesis import strategies as st

DATES = st.datetimes(min_value=pd.Timestamp("1900-01-01"), max_value=pd.Timestamp("2200-01-01"))
TEXTS = st.text(st.sampled_from("ab 0;,\"'\n\r\t\\é\U0001f600\x00\ufeff"), max_size=6)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e16, 1e-7, 0.1])
INTS = st.integers(-(2**63), 2**63 - 1)


def _series(cells: st.SearchStrategy[Any], dtype: Any) -> Any:
    return lambda rows: st.lists(cells, min_size=rows, max_size=rows).map(
        lambda drawn: pd.Series(drawn, dtype=dtype)
    )


COLUMNS = [
    _series(INTS, "int64"),
    _series(st.integers(0, 255), "uint8"),
    _series(FLOATS, "float64"),
    _series(st.floats(width=32), "float32"),
    _series(st.booleans(), "bool"),
    _series(TEXTS | st.none(), "object"),
    _series(TEXTS | st.none(), "string"),
    _series(DATES | st.none(), "datetime64[us]"),
    _series(st.dates().map(pd.Timestamp) | st.none(), "datetime64[s]"),
    _series(DATES.map(lambda date: pd.Timestamp(date, tz="Europe/Vienna")), None),
    _series(st.timedeltas(timedelta(days=-90), timedelta(days=90)), "timedelta64[us]"),
    _series(INTS | st.none(), "Int64"),
    _series(st.booleans() | st.none(), "boolean"),
    _series(st.sampled_from(["a", "b c", None]), "category"),
    _series(st.sampled_from([1, 2, None]), pd.CategoricalDtype([3, 2, 1], ordered=True)),
    _series(st.complex_numbers(max_magnitude=9, allow_nan=False), "complex128"),
    _series(st.lists(st.integers(), max_size=2), "object"),
    _series(st.tuples(st.integers(), TEXTS), "object"),
    _series(st.integers() | FLOATS | TEXTS, "object"),
]
NAMES = TEXTS | st.integers(0, 5)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Return a frame: up to five columns of any type and name, any index."""
    rows = draw(st.integers(0, 6))
    names = draw(st.lists(NAMES, max_size=5, unique_by=str))
    columns = [draw(draw(st.sampled_from(COLUMNS))(rows)) for _ in names]
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)), index=range(rows))
    frame.index = draw(st.permutations(range(rows)))
    return frame
