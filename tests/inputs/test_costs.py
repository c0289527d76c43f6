"""Mini-batches by cost: the same rows make the same ones, whatever the table and its blocks are."""

from __future__ import annotations

import gzip
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskprs
import tests.support.polars_threads  # noqa: F401
from daskprs._inputs import costs
from daskprs._inputs.costs import Cutter
from daskprs.errors import InputError, OptionError
from tests.support.cases import few_examples

if TYPE_CHECKING:
    from pathlib import Path

COSTS = st.lists(
    st.one_of(st.integers(0, 30), st.sampled_from([0, 0.5, 10, 100])), min_size=1, max_size=60
)
SIZES = st.sampled_from([1, 7.5, 10, 40, 1000])


def cut(of_rows: list[float], size: float, pieces: int) -> list[int]:
    """Return the rows of each mini-batch, of costs that come in some pieces."""
    cutter = Cutter(size)
    for piece in np.array_split(np.array(of_rows, float), pieces):
        cutter.add(piece)
    return cutter.rows().tolist()


@given(of_rows=COSTS, size=SIZES, pieces=st.integers(1, 5))
def test_each_mini_batch_is_full_and_not_more(
    of_rows: list[float], size: float, pieces: int
) -> None:
    """Contiguous and complete; the next row would not fit; a row over the size is alone."""
    counts = cut(of_rows, size, pieces)
    assert sum(counts) == len(of_rows)
    assert min(counts) > 0
    bounds = np.cumsum([0, *counts]).tolist()
    for start, stop in pairwise(bounds):
        of_batch = sum(of_rows[start:stop])
        assert of_batch <= size or stop - start == 1
        assert stop == len(of_rows) or of_batch + of_rows[stop] > size
    assert counts == cut(of_rows, size, 1)


def tables(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Return the same rows in every kind of table that is cut by cost."""
    text = frame.to_csv(index=False).replace("t1\n", "t1\n \n\n")
    (folder / "table.csv").write_text(text)
    with gzip.open(folder / "table.csv.gz", "wt") as file:
        file.write(text)
    lines = frame.to_json(orient="records", lines=True)
    (folder / "table.jsonl").write_text(lines.replace("\n", "\n \n"))
    frame.to_parquet(folder / "table.parquet")
    files = [folder / f"table.{suffix}" for suffix in ("csv", "csv.gz", "jsonl", "parquet")]
    return {
        "frame": frame,
        "objects": frame.assign(text=[{"n"} for _ in range(len(frame))]),
        "stream": pa.Table.from_pandas(frame).to_reader(max_chunksize=7),
        "polars": pl.from_pandas(frame),
        "lazy": pl.from_pandas(frame).lazy(),
        **{path.name: path for path in files},
    }


@few_examples(4)
@given(of_rows=COSTS, size=SIZES)
def test_all_tables_of_the_same_rows_have_one_plan(
    of_rows: list[float], size: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And every row is in it, in order, with its number."""
    rows = range(len(of_rows))
    frame = pd.DataFrame({"n": rows, "cost": of_rows, "text": [f"t{number}" for number in rows]})
    expected = cut(of_rows, size, 1)
    for kind, data in tables(frame, tmp_path_factory.mktemp("tables")).items():
        plan = daskprs.plan(data, mini_batch_size=size, mini_batch_cost="cost")
        assert [one.items for one in plan] == expected, kind
        assert len(plan) == len(expected)
        assert [one.row_lower_bound for one in plan] == np.cumsum([0, *expected])[:-1].tolist()
        read = plan.to_dask_dataframe()
        assert read.compute(scheduler="sync")["n"].tolist() == [*rows], kind
        assert [len(read.get_partition(at)) for at in range(len(plan))] == expected


def test_a_mini_batch_stays_within_its_file_and_row_group(tmp_path: Path) -> None:
    """As it does by any other size; a file without rows has none."""
    frame = pd.DataFrame({"n": range(10), "cost": 1.0})
    for name, part in (("a", frame[:4]), ("b", frame[:0]), ("c", frame[4:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    frame.to_parquet(tmp_path / "groups.parquet", row_group_size=4)
    given = {"mini_batch_size": 3, "mini_batch_cost": "cost"}
    plan = daskprs.plan(str(tmp_path / "*.csv"), **given)
    assert [one.items for one in plan] == [3, 1, 3, 3]
    groups = daskprs.plan(tmp_path / "groups.parquet", **given)
    assert [one.items for one in groups] == [3, 1, 3, 1, 2]


def test_only_the_column_of_costs_is_read_of_parquet(tmp_path: Path) -> None:
    """The others may be large: these bytes are damaged, and the plan is there all the same."""
    path = tmp_path / "table.parquet"
    frame = pd.DataFrame({"cost": range(50), "text": [f"unlike {n}" * 40 for n in range(50)]})
    frame.to_parquet(path, compression=None)
    body = path.read_bytes()
    at = body.index(b"unlike 7" * 3)
    path.write_bytes(body[: at - 500] + b"\xff" * 500 + body[at:])
    plan = daskprs.plan(path, mini_batch_size=100, mini_batch_cost="cost")
    assert sum(one.items or 0 for one in plan) == 50


def test_a_value_of_a_path_may_be_the_cost(tmp_path: Path) -> None:
    """Then all rows of a file cost the same."""
    for cost in (1, 5):
        (tmp_path / f"cost={cost}").mkdir()
        frame = pd.DataFrame({"n": range(6)})
        frame.to_parquet(tmp_path / f"cost={cost}" / "part.parquet")
    plan = daskprs.plan(tmp_path, mini_batch_size=10, mini_batch_cost="cost")
    assert [one.items for one in plan] == [6, 2, 2, 2]


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        ([1.0, None, 2.0], "(row 1|line 3): the cost is nan"),
        ([1.0, 2.0, -3.0], "(row 2|line 4): the cost is -3.0"),
        ([float("inf"), 2.0, 3.0], "(row 0|line 2): the cost is inf"),
        (["one", "two", "three"], "the column has the type"),
    ],
)
@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_a_value_that_is_no_cost_is_named(
    form: str, cost: list[Any], said: str, tmp_path: Path
) -> None:
    """With its row, and the line of a text file."""
    frame = pd.DataFrame({"cost": cost, "n": range(3)})
    data: Any = frame
    if form != "frame":
        data = tmp_path / f"table.{form}"
        frame.to_csv(data, index=False) if form == "csv" else frame.to_parquet(data)
    with pytest.raises(InputError, match=said):
        daskprs.plan(data, mini_batch_size=10, mini_batch_cost="cost")


def test_costs_of_any_type_of_numbers() -> None:
    """Decimals and small integers, in pandas and in Arrow."""
    for values in (
        pd.Series([1, 2, 3], dtype="uint8"),
        pd.Series([1, 2, 3], dtype="Int64"),
        pd.Series(pd.array([1, 2, 3], dtype="float32[pyarrow]")),
        pa.array([Decimal(1), Decimal(2), Decimal(3)]),
        pl.Series([1, 2, 3]),
        [1, 2, 3],
    ):
        found = costs.numbers_of(values)
        assert found is not None
        assert found.tolist() == [1, 2, 3]
    for values in (pd.Series([True]), pd.Series(["1"]), pa.array(["1"]), ["one"], [[1]], None):
        assert costs.numbers_of(values) is None
    assert costs.numbers_of(pl.Series(["one"])) is None
    large = costs.numbers_of(pa.array([2**60 + 1]))
    assert large is not None
    assert large.tolist() == [2.0**60], "rounded"


def test_a_null_of_any_type_is_no_cost() -> None:
    """It is found, and named by its row."""
    arrow = pa.array([1, None]), pa.chunked_array([[1], [None]]), pl.Series([1.5, None])
    for values in (*arrow, pd.Series([1, None], dtype="Int64"), [1, None], np.array([1, np.nan])):
        found = costs.numbers_of(values)
        assert found is not None
        assert costs.first_wrong(found) == 1


@pytest.mark.parametrize("size", ["10 KB", "1 row", "20 files", "ten", 0, -1, float("nan"), True])
def test_a_size_with_a_unit_is_refused(size: Any) -> None:
    """It counts what the costs count."""
    with pytest.raises(OptionError, match=r"without a unit: the largest sum of the costs"):
        daskprs.plan(pd.DataFrame({"c": [1]}), mini_batch_size=size, mini_batch_cost="c")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the largest sum of costs is missing"),
        ({"mini_batch_size": 9, "partition_keys": "c"}, "not with partition_keys"),
        ({"mini_batch_size": 9, "mini_batch_cost": "d"}, "it is no column of the input"),
        ({"mini_batch_size": 9, "mini_batch_cost": ""}, "a column of numbers, or a function"),
    ],
)
def test_a_cost_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(OptionError, match=said):
        daskprs.plan(pd.DataFrame({"c": [1]}), **{"mini_batch_cost": "c", **given})


def test_a_number_of_units_needs_a_cost() -> None:
    """Bytes and rows are whole."""
    with pytest.raises(OptionError, match="must be a whole number above 0"):
        daskprs.plan(pd.DataFrame({"c": [1]}), mini_batch_size=1.5)


def test_inputs_without_rows_that_are_known_have_no_costs(tmp_path: Path) -> None:
    """Files, and what is computed while the job runs."""
    (tmp_path / "a.bin").touch()
    frame = dd.from_pandas(pd.DataFrame({"c": [1]}), npartitions=1)
    for data, said in ((tmp_path, "not for lists of files"), (frame, "not for a Dask collection")):
        with pytest.raises(OptionError, match=f"mini_batch_cost='c': {said}"):
            daskprs.plan(data, mini_batch_size=3, mini_batch_cost="c")
