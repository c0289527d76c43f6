"""Included columns: each row that `run` returned stands beside those of its own row."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.support.polars_threads  # noqa: F401
from daskprs._agent.child.included_columns import taken_columns
from daskprs._core.mini_batch import MiniBatch
from daskprs._inputs.source.included import PATH_ASIDE, ROW, Included
from daskprs._output.rows.blocks import frames_of
from daskprs._output.rows.typed_rows import decode
from daskprs._output.spec import OutputSpec
from daskprs._system.seal import Seal
from daskprs.errors import ReturnTypeError
from tests.support.formatted import format_result

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 1000
ROWS = 8
IDS = [f"id{row}" for row in range(ROWS)]
INCLUDED = Included(("id", "row_number"), frozenset({"id"}), path_aside=False)
MINI_BATCH = MiniBatch(3, None, "same", items=ROWS, row_lower_bound=FIRST)


def rows(count: int = ROWS) -> pd.DataFrame:
    """Return a mini-batch: `x` says which row it is."""
    return pd.DataFrame({"id": IDS[:count], "x": range(count), "key": list("bacabcab")[:count]})


def included(run: Callable[[Any], Any], data: Any = None) -> pd.DataFrame:
    """Return what `run` returned beside the columns of its rows."""
    columns, argument = taken_columns(INCLUDED, rows() if data is None else data, MINI_BATCH)
    result = columns.beside(run(argument))
    blocks = [result] if isinstance(result, (pd.DataFrame, pa.Table)) else list(result)
    return pd.concat([frame for block in blocks for frame in frames_of(block)])


def is_aligned(found: pd.DataFrame, name: str = "x") -> bool:
    """Say whether each row is beside the columns of the row that it was made of."""
    assert list(found.columns[:2]) == ["id", "row_number"]
    return list(found["id"]) == [IDS[x] for x in found[name]] and list(found["row_number"]) == [
        FIRST + x for x in found[name]
    ]


NUMBERS = st.lists(st.integers(0, ROWS - 1), max_size=2 * ROWS)
STEPS: dict[str, Callable[[pd.DataFrame, list[int]], Any]] = {
    "take": lambda frame, numbers: frame.take(numbers),
    "loc": lambda frame, numbers: frame.loc[numbers],
    "filter": lambda frame, numbers: frame[frame.index.isin(numbers)],
    "drop": lambda frame, numbers: frame.drop(index=numbers),
    "sort": lambda frame, numbers: frame.take(numbers).sort_values("x", ascending=False),
    "by key": lambda frame, _: frame.groupby("key").head(1),
    "of groups": lambda frame, _: frame.groupby("key")[["x"]].apply(lambda rows: rows[-1:]),
    "a series": lambda frame, numbers: frame.take(numbers)["x"],
    "concat": lambda frame, numbers: pd.concat([frame[::-1], frame.take(numbers)]),
    "explode": lambda frame, _: frame.assign(y=[[1, 2]] * len(frame)).explode("y"),
    "index as column": lambda frame, numbers: frame.take(numbers).reset_index(),
    "arrow": lambda frame, numbers: pa.Table.from_pandas(frame.take(numbers)),
    "arrow of a range": lambda frame, _: pa.Table.from_pandas(frame[::-1]),
    "arrow with a named index": lambda frame, numbers: pa.Table.from_pandas(
        frame.take(numbers).set_index("x", append=True)
    ),
    "pieces": lambda frame, numbers: (frame.loc[[number]] for number in [*numbers, 0]),
}


@given(numbers=NUMBERS, step=st.sampled_from(sorted(STEPS)))
def test_rows_that_keep_the_index_get_the_columns_of_their_rows(
    numbers: list[int], step: str
) -> None:
    """Filtered, repeated, reordered and brought together in any way."""
    found = included(lambda frame: STEPS[step](frame[["x", "key"]], numbers))
    assert is_aligned(found)
    assert list(found.index) == list(found["x"]), "labels of to_pandas come from the index"


AS_MANY: dict[str, Callable[[pd.DataFrame], Any]] = {
    "a frame": lambda frame: pd.DataFrame({"result": frame["x"].to_list()}),
    "reset": lambda frame: frame[["x"]].rename(columns={"x": "result"}).reset_index(drop=True),
    "a list": lambda frame: frame["x"].to_list(),
    "a tuple": lambda frame: tuple(frame["x"]),
    "an array": lambda frame: frame["x"].to_numpy(),
    "objects": lambda frame: frame["x"].to_numpy(object),
    "a dict of arrays": lambda frame: {"result": frame["x"].to_numpy()},
    "a table": lambda frame: pa.table({"result": frame["x"].to_list()}),
    "a stream": lambda frame: pa.table({"result": frame["x"].to_list()}).to_reader(3),
    "polars": lambda frame: pl.DataFrame({"result": frame["x"].to_list()}),
}


@pytest.mark.parametrize("kind", AS_MANY)
def test_as_many_rows_without_the_index_are_matched_in_order(kind: str) -> None:
    """Elements become the column `result`."""
    found = included(AS_MANY[kind])
    assert is_aligned(found, "result")
    assert list(found.columns) == ["id", "row_number", "result"]
    assert len(found) == ROWS


def test_an_array_of_two_dimensions_is_columns() -> None:
    """They are numbered as without the option."""
    found = included(lambda frame: frame[["x", "x"]].to_numpy())
    assert list(found.columns) == ["id", "row_number", 0, 1]
    assert is_aligned(found, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [[], (), np.empty(0), pd.DataFrame(), pa.table({"y": []})])
def test_no_rows_need_no_match(result: Any) -> None:
    """Nothing has succeeded, and that is no mistake."""
    found = included(lambda _: result)
    assert found.empty
    assert list(found.columns[:2]) == ["id", "row_number"]


UNMATCHED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "filter, then reset_index": (
        lambda frame: frame[["x"]][2:5].reset_index(drop=True),
        f"3 rows for a mini-batch of {ROWS}, .* they lack the index 'daskprs_row'",
    ),
    "a shorter list": (lambda _: [1, 2], "2 rows for a mini-batch of 8"),
    "a longer table": (lambda _: pa.table({"y": range(9)}), "9 rows for a mini-batch of 8"),
    "groups": (
        lambda frame: frame.groupby("key").agg({"x": "sum"}),
        "3 rows for a mini-batch of 8",
    ),
    "as many groups": (
        lambda frame: frame.groupby("id").agg({"x": "sum"}),
        "8 rows for a mini-batch of 8.*index of their own, named 'id'",
    ),
    "other labels": (
        lambda frame: frame[["x"]].reset_index(drop=True)[::-1],
        "index of their own. Return",
    ),
    "a number too large": (
        lambda frame: frame[["x"]].rename(index={2: ROWS}),
        "'daskprs_row' holds 8, not numbers below 8",
    ),
    "a null": (
        lambda frame: frame[["x"]].reindex(pd.Index([1, None], name=ROW)),
        "'daskprs_row' is of the type float64",
    ),
    "elements of a generator": (
        lambda frame: iter(frame["x"].to_list()),
        "an element that a generator yields has no index",
    ),
    "frames of a generator": (
        lambda frame: iter([frame[["x"]].reset_index(drop=True)]),
        "a frame that a generator yields needs the index",
    ),
    "tables of a generator": (
        lambda frame: iter([pa.table({"x": frame["x"].to_list()})]),
        "a frame that a generator yields needs the index",
    ),
}


@pytest.mark.parametrize("case", UNMATCHED)
def test_rows_that_cannot_be_matched_are_refused(case: str) -> None:
    """A row beside the columns of another would be worse than none."""
    run, said = UNMATCHED[case]
    with pytest.raises(ReturnTypeError, match=said) as caught:
        included(run)
    assert "Return all at once as many rows as the mini-batch has" in str(caught.value)
    assert "reset_index drops it" in str(caught.value)


def test_a_name_that_run_returned_too_is_refused() -> None:
    """One of the two columns would be hidden."""
    for run in (lambda frame: frame, pa.Table.from_pandas, pl.from_pandas):
        with pytest.raises(ReturnTypeError, match="returned a column 'id', and include_columns"):
            included(run)


FORMATS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: pa.Table.from_pandas(rows(), preserve_index=False),
    "polars": lambda: pl.from_pandas(rows()),
    "numpy": lambda: {name: column.to_numpy() for name, column in rows().items()},
}
OF_FORMAT: dict[str, Callable[[Any], Any]] = {
    "pyarrow": lambda table: table.select(["x"]),
    "polars": lambda frame: frame.select("x"),
    "numpy": lambda arrays: {"x": arrays["x"]},
}


@pytest.mark.parametrize("batch_format", FORMATS)
def test_other_formats_are_matched_in_order(batch_format: str) -> None:
    """They have no index; frames of pandas fit beside them, too."""
    make, run = FORMATS[batch_format], OF_FORMAT[batch_format]
    assert is_aligned(included(run, make()))
    assert is_aligned(included(lambda data: pd.DataFrame({"x": np.array(data["x"])}), make()))
    with pytest.raises(ReturnTypeError, match=r"7 rows for a mini-batch of 8.* in its order\.$"):
        included(lambda data: list(data["x"])[1:], make())


@pytest.mark.parametrize("batch_format", ["pandas", *FORMATS])
def test_run_may_change_its_rows(batch_format: str) -> None:
    """The columns are those of the input."""

    def change(data: Any) -> list[int]:
        numbers = list(range(ROWS))
        if isinstance(data, dict):
            data["id"][:] = "other"
        elif isinstance(data, pd.DataFrame):
            data.loc[:, "id"] = "other"
            del data["x"]
            data.index.name = None
        elif isinstance(data, pl.DataFrame):
            data[0, "id"] = "other"
        return numbers

    data = rows() if batch_format == "pandas" else FORMATS[batch_format]()
    assert is_aligned(included(change, data), "result")


@pytest.mark.parametrize("batch_format", ["pandas", *FORMATS])
def test_run_does_not_see_the_column_of_paths(batch_format: str) -> None:
    """It is there for the option alone."""
    wanted = Included(("x", "path"), frozenset({"x"}), path_aside=True)
    frame = rows().assign(**{PATH_ASIDE: ["a", "b"] * 4})
    data: Any = {
        "pandas": lambda: frame,
        "pyarrow": lambda: pa.Table.from_pandas(frame),
        "polars": lambda: pl.from_pandas(frame),
        "numpy": lambda: {name: column.to_numpy() for name, column in frame.items()},
    }[batch_format]()
    columns, argument = taken_columns(wanted, data, MINI_BATCH)
    names = list(argument) if isinstance(argument, dict) else argument.columns
    names = argument.column_names if isinstance(argument, pa.Table) else names
    assert {*names} == {"id", "x", "key"}
    (found,) = frames_of(columns.beside(["r"] * ROWS))
    assert list(found["path"]) == ["a", "b"] * 4
    assert list(found["x"]) == list(range(ROWS))


def test_objects_that_arrow_does_not_hold_stand_beside_an_arrow_table() -> None:
    """Both are a frame then."""
    data = rows().assign(id=pd.Series([{1}, "a"] * 4, dtype=object))
    found = included(lambda frame: pa.table({"x": frame["x"].to_list()}), data)
    assert list(found["id"]) == [{1}, "a"] * 4
    assert list(found["x"]) == list(range(ROWS))


def test_an_arrow_table_with_the_index_keeps_its_types() -> None:
    """Pandas would change some of them, hold NaN for null, and refuse a map with a key twice."""
    numbers = [5, 2]
    columns = {
        "small": pa.array([1, None], pa.int8()),
        "day": pa.array([0, None], pa.date64()),
        "time": pa.array([1, None], pa.time32("ms")),
        "number": pa.array([float("nan"), None]),
        "map": pa.array([[("a", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int16())),
    }
    noted = pa.Table.from_pandas(rows()[["x"]].rename_axis(ROW).take(numbers)).drop_columns("x")
    tables = [pa.table({ROW: numbers, **columns}), noted]
    for name, column in columns.items():
        tables[1] = tables[1].append_column(name, column)
    for table in tables:
        beside, _ = taken_columns(INCLUDED, rows(), MINI_BATCH)
        found = beside.beside(table)
        assert found["id"].to_pylist() == ["id5", "id2"]
        spec = OutputSpec(text=False, typed=True)
        typed = format_result(found, spec).payload
        (piece,) = decode(io.BytesIO(typed), len(typed), Seal())
        assert list(piece.numbers) == numbers
        for kept in (found, piece.value.table):
            for name, column in columns.items():
                assert kept[name].type == column.type
                assert str(kept[name].to_pylist()) == str(column.to_pylist())
