"""Rows of a data set, read back by the job's result."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import daskprs
import tests.support.polars_threads  # noqa: F401
from daskprs._core.events import Counts
from daskprs._job.result import ParallelRunResult
from daskprs._output.dataset import part_file
from daskprs.errors import JobFolderError, OptionError
from tests.support.datasets import PARQUET
from tests.support.store_driver import driving

N = 9


def frame_of(index: int) -> pd.DataFrame:
    """Return what `run` returns for a mini-batch."""
    rows = range(3 * index, 3 * index + 3)
    frame = pd.DataFrame(
        {"n": rows, "town": ["Lima", "a/b", "Rome"], "day": pd.Timestamp(2020, 1, 2)}
    )
    return frame.assign(kind=pd.Categorical(["x", "z", "y"]), small=pd.array([1, None, 2], "Int8"))


WHOLE = pd.concat(map(frame_of, range(N)), ignore_index=True)


def published(base: Path, count: int = N, **given: Any) -> ParallelRunResult:
    """Publish a data set, and return the result of its job; without mini-batches, of no rows."""
    target, spec = base / "out" / "set", PARQUET._replace(**given)
    fingerprint = {"output": {"text": True, "typed": False, "format": spec.format}}
    with driving(base / "job", target, spec, fingerprint) as driver:
        for index in reversed(range(count)):
            driver.commit(index, frame_of(index))
        if not count:
            driver.commit(0, frame_of(0).iloc[:0])
        driver.store.publish()
    return ParallelRunResult("Completed", Counts(), Counts(), target, base, base, base / "job", 0.0)


@pytest.fixture(
    params=[
        {"format": "parquet"},
        {"format": "arrow"},
        {"format": "parquet", "partition_by": ("town", "small")},
        {"format": "arrow", "partition_by": ("town",)},
        {"format": "parquet", "single_file": True},
    ],
    ids=str,
)
def result(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ParallelRunResult:
    """Return the result of a job with a data set of several row groups."""
    monkeypatch.setattr(part_file, "ROW_GROUP_BYTES", 1)
    return published(tmp_path, **request.param)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows by their number: in folders they are apart."""
    return frame.sort_values("n").reset_index(drop=True)[list(WHOLE.columns)]


def test_every_reader_gives_the_rows_with_their_types(result: ParallelRunResult) -> None:
    """As those that were kept, numbered from 0."""
    frame = result.to_pandas()
    assert list(frame.index) == list(range(len(WHOLE)))
    pd.testing.assert_frame_equal(in_order(frame), WHOLE, check_categorical=False)
    table = result.to_arrow()
    assert sorted(table["n"].to_pylist()) == list(range(3 * N))
    assert table.schema.field("small").type == pa.int8()
    assert pa.RecordBatchReader.from_stream(result).read_all().equals(table)
    assert result.to_polars().sort("n")["town"].to_list() == WHOLE["town"].to_list()
    lazy = result.to_polars(lazy=True).filter(pl.col("n") > 20).select("n", "town").collect()
    assert sorted(lazy["n"]) == list(range(21, 27))
    without_columns = result.to_dask_dataframe()[[]].compute(scheduler="sync")
    assert without_columns.shape == (3 * N, 0)
    batches = list(result.iter_batches())
    assert len(batches) > 1
    pd.testing.assert_frame_equal(
        in_order(pd.concat(batches)), WHOLE, check_categorical=False, check_dtype=False
    )


SIZES = pd.CategoricalDtype(["S", "M", "L", "XL"], ordered=True)


@pytest.mark.parametrize(
    ("layout", "keeps_order"),
    [
        ({"format": "parquet"}, True),
        ({"format": "parquet", "partition_by": ("n",)}, True),
        ({"format": "parquet", "partition_by": ("size",)}, False),
        ({"format": "arrow"}, False),
    ],
    ids=str,
)
def test_categories_have_their_order_or_none(
    layout: dict[str, Any], tmp_path: Path, *, keeps_order: bool
) -> None:
    """Never that in which the values come: a comparison would be wrong without a word."""
    spec = PARQUET._replace(**layout)
    fingerprint = {"output": {"text": True, "typed": False, "format": spec.format}}
    with driving(tmp_path / "job", tmp_path / "out" / "set", spec, fingerprint) as driver:
        for index, values in enumerate([["L", "S"], ["M", "L"]]):
            size = pd.Series(values, dtype=SIZES)
            driver.commit(index, pd.DataFrame({"size": size, "n": [index, index]}))
        driver.store.publish()
    job = tmp_path / "job"
    result = ParallelRunResult("Completed", Counts(), Counts(), None, job, job, job, 0.0)
    sizes = result.to_pandas()["size"]
    assert sorted(sizes) == ["L", "L", "M", "S"]
    if keeps_order:
        assert sizes.dtype == SIZES
    else:
        assert sizes.dtype.ordered is False
    lazy = result.to_dask_dataframe()["size"].compute(scheduler="sync")
    assert lazy.dtype.ordered is keeps_order
    assert not keeps_order or (lazy > "M").sum() == 2


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("options", [{}, {"output_format": "parquet"}])
def test_dask_gets_objects_and_not_their_text(tmp_path: Path, options: dict[str, Any]) -> None:
    """Dask would make text of each, and leave out the middle of a long array."""
    rows = pd.DataFrame({"n": [1]})
    day = dt.date(2026, 1, 1)
    places = {"job_dir": tmp_path / "job", "output_dir": tmp_path / "out"} if options else {}
    result = daskprs.parallel_run(
        rows,
        lambda rows: rows.assign(vector=[np.arange(2000.0)], word="one", day=day),
        **{"job_dir": tmp_path / "job", **places, **options},
    )
    (row,) = result.to_dask_dataframe().compute(scheduler="sync").itertuples()
    assert list(row.vector) == list(range(2000))
    assert (row.word, row.day) == ("one", day)
    assert result.to_dask_dataframe().dtypes["word"] == pd.StringDtype("pyarrow")


NESTED = {
    "list": ([[1], None], pa.list_(pa.int64())),
    "struct": ([{"x": 1}, None], pa.struct([("x", pa.int64())])),
    "map": ([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "coded": (["a", None], pa.dictionary(pa.int32(), pa.string())),
    "sized": ([b"abc", None], pa.binary(3)),
}
"""Types of Arrow that pandas notes by a name that it cannot read."""


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("names", [["list"], [*NESTED]])
@pytest.mark.parametrize("output", [None, "rows.parquet", "rows.arrow"])
def test_nested_types_of_arrow_come_back(
    tmp_path: Path, output: str | None, names: list[str]
) -> None:
    """From a data set as from kept rows, alone or among others."""
    columns = {
        name: pd.Series(pd.array(pa.array(values, type_), dtype=pd.ArrowDtype(type_)))
        for name, (values, type_) in NESTED.items()
        if name in names
    }
    others = {"first": [1, 2], "last": ["x", None]} if len(names) > 1 else {}
    frame = pd.DataFrame(columns | others)[[*others, *names][::-1]]
    path = None if output is None else tmp_path / output
    result = daskprs.parallel_run(frame, lambda rows: rows, output=path, progress=False)
    pd.testing.assert_frame_equal(result.to_pandas(), frame)
    pd.testing.assert_frame_equal(next(iter(result.iter_batches())), frame)
    assert len(result.to_dask_dataframe().compute(scheduler="sync")) == 2


@pytest.mark.usefixtures("inline")
def test_a_decimal_of_arrow_is_kept() -> None:
    """Pandas does not implement the name of its type."""
    cents = pd.Series([Decimal("1.50"), None], dtype=pd.ArrowDtype(pa.decimal128(3, 2)))
    frame = pd.DataFrame({"cents": cents})
    result = daskprs.parallel_run(frame, lambda rows: rows, progress=False)
    pd.testing.assert_frame_equal(result.to_pandas(), frame)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("options", [{}, {"output_format": "parquet"}])
def test_a_category_that_no_row_has_changes_nothing(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """It may have no place in the type of the rows before."""
    kinds = [pd.Categorical([1, 2]), pd.Categorical([1.0, 1.0], categories=[1.0, 2.5])]
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(4)}),
        lambda rows, context: rows.assign(kind=kinds[context.minibatch_index]),
        mini_batch_size=16,
        job_dir=tmp_path / "job",
        **options,
    )
    assert result.to_arrow()["kind"].to_pylist() == [1, 2, 1, 1]


def test_dask_reads_some_row_groups_at_a_time(
    result: ParallelRunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only the columns that it needs; integers may be null in rows that come later."""
    monkeypatch.setattr("daskprs._job.lazy_rows.PARTITION_BYTES", 16 << 20)
    rows = result.to_dask_dataframe()
    assert rows.npartitions > 3
    assert rows["n"].sum().compute(scheduler="sync") == WHOLE["n"].sum()
    assert rows.dtypes["n"] == "Int64"
    found = rows.compute(scheduler="sync")
    assert {name: str(one) for name, one in found.dtypes.items()} == {
        name: str(one) for name, one in rows.dtypes.items()
    }
    assert in_order(found)["town"].tolist() == WHOLE["town"].tolist()
    by_town = rows.groupby("town")["n"].count().compute(scheduler="sync")
    assert by_town.to_dict() == {"Lima": N, "a/b": N, "Rome": N}


def test_a_data_set_without_rows_has_columns(tmp_path: Path) -> None:
    """Those of the empty frames."""
    result = published(tmp_path, count=0)
    assert list(result.to_pandas().columns) == list(WHOLE.columns)
    assert len(result.to_dask_dataframe().compute(scheduler="sync")) == 0


def test_what_cannot_be_read_back_says_what_to_do(tmp_path: Path) -> None:
    """JSON lines have too few types, and a data set may have been moved."""
    lines = published(tmp_path / "lines", format="jsonl")
    with pytest.raises(OptionError, match=r"data set of JSON lines.*keep_rows=True"):
        lines.to_pandas()
    moved = published(tmp_path / "moved")
    assert isinstance(moved.output_file, Path)
    moved.output_file.rename(tmp_path / "elsewhere")
    with pytest.raises(JobFolderError, match=r"is gone: it was moved.*resume=True"):
        moved.to_arrow()


def test_a_data_set_that_is_replaced_while_it_is_read_is_named(
    result: ParallelRunResult, tmp_path: Path
) -> None:
    """By whichever reader; no reader gives rows of the other data set."""
    assert isinstance(result.output_file, Path)
    is_file = result.output_file.is_file()
    batches = result.iter_batches("pyarrow")
    lazy, scan = result.to_dask_dataframe(), result.to_polars(lazy=True)
    stream = pa.RecordBatchReader.from_stream(result)
    next(batches)
    other = published(tmp_path / "other", single_file=is_file).output_file
    assert isinstance(other, Path)
    result.output_file.rename(tmp_path / "old")
    other.rename(result.output_file)
    replaced = r"set has been replaced or changed.*overwrite=True.*resume=True"
    for read in (
        lambda: next(batches),
        lambda: lazy.compute(scheduler="sync"),
        scan.collect,
        stream.read_all,
        result.to_pandas,
    ):
        with pytest.raises(Exception, match=replaced):
            read()


def test_a_file_of_a_data_set_that_is_gone_is_named(tmp_path: Path) -> None:
    """While its manifest is still the same."""
    result = published(tmp_path)
    assert isinstance(result.output_file, Path)
    part = min(result.output_file.glob("part-*"))
    part.unlink()
    with pytest.raises(JobFolderError, match=rf"{part.name} of the data set is gone.*resume=True"):
        result.to_pandas()
