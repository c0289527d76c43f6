"""Frames as text, against `DataFrame.to_csv`, whichever way they are written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskprs._output.rows.frame_csv import (
    CELLS_AT_ONCE,
    FEW_CELLS,
    FEW_ROWS,
    LONG_BYTES,
    FrameCsv,
)
from tests.support.frames_of_all_kinds import EDGES, frames

MANY = 3 * FEW_ROWS
"""Rows enough for kernels."""


def written(frame: pd.DataFrame, separator: str = " ") -> str:
    """Return what is written here."""
    file = io.BytesIO()
    text = io.TextIOWrapper(file, "utf-8", newline="")
    FrameCsv(separator).write(frame, text)
    text.flush()
    return file.getvalue().decode()


def csv_of(frame: pd.DataFrame, separator: str = " ", *, header: bool = False) -> str:
    """Return what pandas writes."""
    return frame.to_csv(sep=separator, header=header, index=False, lineterminator="\n")


@settings(max_examples=5 * settings.default.max_examples)
@given(frame=frames(), separator=st.sampled_from(" ,;\t|:/_'\\\x01-.1eé"))
@example(frame=pd.DataFrame({"a": ["x", None]}), separator=" ")
def test_the_bytes_are_those_of_to_csv(frame: pd.DataFrame, separator: str) -> None:
    """For every type, few rows or many, and separators that numbers hold."""
    assert written(frame, separator) == csv_of(frame, separator)
    if len(frame.columns):
        header = FrameCsv(separator).header(frame)
        assert header == csv_of(frame.iloc[:0], separator, header=True)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
@pytest.mark.parametrize("columns", [1, 3])
def test_floats_of_any_bits_are_written_as_numpy_writes_them(kind: str, columns: int) -> None:
    """Exponents, digits, infinities, and nothing for NaN."""
    bits = np.random.default_rng(0).integers(0, 256, 30_000 * 8, dtype="uint8")
    exponents = 10 ** np.random.default_rng(1).uniform(-9, 18, 30_000)
    near = [np.nextafter(edge, towards) for edge in EDGES for towards in (0, edge, np.inf)]
    with np.errstate(over="ignore"):
        values = np.concatenate(
            [
                bits.view(kind),
                *(np.array(v).astype(kind) for v in (exponents, near, np.rint(exponents))),
            ]
        )
    values = values[: len(values) // columns * columns]
    frame = pd.DataFrame(values.reshape(-1, columns))
    assert written(frame) == csv_of(frame)


@pytest.mark.parametrize("rows", [1, MANY])
@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("kind", [">i8", ">f8", "longdouble", "complex64", "uint64"])
def test_types_that_arrow_does_not_know_are_written(rows: int, columns: int, kind: str) -> None:
    """Numbers of the other byte order, long ones, complex ones."""
    frame = pd.DataFrame({name: np.arange(rows).astype(kind) for name in range(columns)})
    assert written(frame) == csv_of(frame)


@pytest.mark.parametrize(
    "cells",
    [
        [2**70, None],
        ["a", 1.5],
        ["a", float("nan")],
        [1, True],
        [np.str_("a b"), np.float32(0.1)],
        [b"a b", None],
        [pd.Timestamp("2020-01-01"), pd.NaT],
    ],
)
def test_cells_of_any_type_are_written(cells: list[Any]) -> None:
    """As their own `str`, in short frames and in long ones."""
    for rows in (2, MANY):
        frame = pd.DataFrame({"a": pd.Series([*cells] * (rows // 2), dtype="object"), "b": 1})
        assert written(frame) == csv_of(frame)


@pytest.mark.parametrize("cells", [[f"text {row}" for row in range(1000)], np.arange(1000) / 8])
def test_unused_categories_are_of_no_matter(cells: Any) -> None:
    """A slice keeps all of its frame's."""
    column = pd.Series(cells, dtype="category")
    column.iloc[1] = None
    for rows in (3, MANY, 1000):
        frame = pd.DataFrame({"a": column.iloc[:rows], "n": range(rows)})
        assert written(frame) == csv_of(frame)


def test_a_null_in_the_only_column_is_two_quotes() -> None:
    """An empty text, too: no line is empty."""
    for rows in (3, MANY):
        frame = pd.DataFrame({"a": ["x", "", None] * (rows // 3)})
        assert written(frame) == 'x\n""\n""\n' * (rows // 3) == csv_of(frame)


@pytest.mark.parametrize("rows", [1, FEW_CELLS])
def test_wide_frames_of_numbers_are_written_at_once(rows: int) -> None:
    """NaN is empty there, too."""
    values = np.random.default_rng(0).standard_normal((rows, 300))
    values[:, ::7] = np.nan
    frame = pd.DataFrame(values)
    assert written(frame) == csv_of(frame)


def test_frames_that_are_slices_are_written_from_their_own_rows() -> None:
    """Texts of a slice begin in the middle of those of the whole."""
    rows = range(3 * MANY)
    whole = pd.DataFrame({"a": [f"{row} é" for row in rows], "b": pd.array(rows, dtype="Int64")})
    part = whole.iloc[MANY : 2 * MANY]
    assert written(part) == csv_of(part)


def test_pieces_are_those_of_pandas() -> None:
    """Dates alone are written where all of a piece are midnights."""
    days = pd.Series(pd.date_range("2020-01-01", periods=CELLS_AT_ONCE, freq="min", unit="s"))
    days.iloc[: CELLS_AT_ONCE // 2] = pd.Timestamp("2020-01-01")
    frame = pd.DataFrame({"day": days, "n": range(CELLS_AT_ONCE)})
    assert written(frame) == csv_of(frame)
    assert len({*map(len, written(frame).split("\n")[:3])}) == 1


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_long_texts_are_written_in_shorter_pieces(kind: str) -> None:
    """With and without dates, whose digits depend on the whole piece."""
    texts = pd.Series([f"{row % 9} " * (LONG_BYTES // 400) for row in range(200)], dtype=kind)
    frame = pd.DataFrame({"text": texts, "n": range(200)})
    assert written(frame) == csv_of(frame)
    frame["day"] = pd.date_range("2020-01-01", periods=200, freq="h")
    frame.loc[:100, "day"] = pd.Timestamp("2020-01-01")
    assert written(frame) == csv_of(frame)


def test_a_frame_of_a_class_of_its_own_writes_itself() -> None:
    """Its `to_csv` may be another."""

    class Loud(pd.DataFrame):
        def to_csv(self, *args: Any, **kwargs: Any) -> Any:
            return super().to_csv(*args, **kwargs, na_rep="none")

    assert written(Loud({"a": [None] * MANY})) == "none\n" * MANY


@pytest.mark.parametrize("separator", ["", "ab", "\ud800"])
def test_what_csv_refuses_is_refused(separator: str) -> None:
    """A separator of no or of two characters, and one that is no character."""
    frame = pd.DataFrame({"a": ["x"], "b": [1]})
    with pytest.raises((TypeError, ValueError)) as expected:
        csv_of(frame, separator).encode()
    with pytest.raises(expected.type):
        written(frame, separator)
