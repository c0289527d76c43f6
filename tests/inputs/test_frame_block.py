"""Small slices of a table, copied out of the frame of some rows: the same as alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskprs._arrow.arrow_pandas import ToPandas, one_type, without_rows
from daskprs._arrow.exact_frames import exact_table
from daskprs._arrow.frame_block import MOST_BYTES, ROWS, FrameBlock
from daskprs.errors import LoadError
from tests.support.cases import mostly_long
from tests.support.versions import TEXT

COUNT = 3 * ROWS
NUMBERS = np.arange(COUNT)
FRAME = pd.DataFrame(
    {
        "number": NUMBERS,
        "share": np.where(NUMBERS % 7, NUMBERS / 3, np.nan),
        "text": pd.Series([f"text {n}" if n % 5 else None for n in NUMBERS], dtype=TEXT),
        "kind": pd.Categorical(NUMBERS % 2, [2, 1, 0]),  # text is objects in pandas 2
        "when": pd.date_range("2026-01-01", periods=COUNT, tz="Europe/Berlin"),
        "maybe": pd.array([n if n % 3 else None for n in NUMBERS], "Int64"),
        "flag": NUMBERS % 2 == 0,
    }
)
TABLE = pa.table(
    {
        "number": pa.array([int(n) if n % 70 else None for n in NUMBERS]),
        "flag": pa.array([bool(n % 2) if n % 70 else None for n in NUMBERS]),
        "day": pa.array(NUMBERS, pa.int32()).cast(pa.date32()),
        "bytes": pa.array([bytes((n % 256,)) for n in NUMBERS]),
    }
)


def _of_frame() -> tuple[pa.Table, ToPandas]:
    made = exact_table(FRAME)
    assert made is not None
    return made


def _of_table(table: pa.Table = TABLE) -> tuple[pa.Table, ToPandas]:
    types = one_type(table.schema, {"number", "flag"})
    table = table.cast(types.schema)
    return table, ToPandas(without_rows(table), types.objects)


@pytest.mark.parametrize("made", [_of_frame(), _of_table()], ids=["frame", "table"])
@pytest.mark.parametrize("count", mostly_long([1, 3, 16, 17], suite=[3, 16]))
def test_a_frame_is_that_of_the_slice_alone(made: tuple[pa.Table, ToPandas], count: int) -> None:
    table, form = made
    block = FrameBlock(form)
    starts = [*range(0, COUNT, count), 5, COUNT - 1, 0]
    for start in starts:
        frame, alone = block.frame(table, start, count), form.frame(table.slice(start, count))
        pd.testing.assert_frame_equal(frame, alone, check_freq=True, check_flags=True)
        assert type(frame.index) is type(alone.index)
        assert [*map(type, frame.iloc[0])] == [*map(type, alone.iloc[0])]


def test_what_is_changed_in_a_frame_is_not_in_the_next_one_of_its_rows() -> None:
    table, form = _of_frame()
    block = FrameBlock(form)
    frame = block.frame(table, 3, 1)
    frame.loc[0, "number"] = -1
    frame.columns.name = "mine"
    frame["maybe"].array[0] = 7
    pd.testing.assert_frame_equal(block.frame(table, 3, 1), form.frame(table.slice(3, 1)))


def test_a_dictionary_that_is_changed_is_not_in_the_next_frame_of_its_rows() -> None:
    table = pa.table({"of": [{"n": n} for n in range(ROWS)]})
    block = FrameBlock(ToPandas(without_rows(table)))
    block.frame(table, 3, 1)["of"].iloc[0]["n"] = 9
    assert block.frame(table, 3, 1)["of"].iloc[0] == {"n": 3}


def test_a_value_that_has_no_frame_harms_no_other_row() -> None:
    days = pa.array([0, 1, 1 << 30], pa.int32()).cast(pa.date32())  # Python knows 9999 years
    table = pa.table({"day": days})
    form = ToPandas(without_rows(table))
    block = FrameBlock(form)
    with pytest.raises(LoadError, match=r"column 'day' .* year"):
        form.frame(table)
    for row in (0, 1):
        alone = form.frame(table.slice(row, 1))
        pd.testing.assert_frame_equal(block.frame(table, row, 1), alone)


def test_nulls_of_other_rows_change_no_type() -> None:
    table = pa.table({"number": pa.array([1, 2, None])})  # types that nobody has settled
    form = ToPandas(without_rows(table))
    assert FrameBlock(form).frame(table, 0, 1)["number"].dtype == np.int64


def test_rows_of_many_bytes_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"text": ["x" * (MOST_BYTES // 8)] * ROWS})
    form = ToPandas(without_rows(table))
    lengths = []
    frame = form.frame
    monkeypatch.setattr(form, "frame", lambda rows: lengths.append(len(rows)) or frame(rows))
    FrameBlock(form).frame(table, 3, 1)
    assert max(lengths) == 1
