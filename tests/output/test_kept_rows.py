"""Typed rows as other libraries read them, in pieces and in one schema."""

from __future__ import annotations

import datetime as dt
import math
import sys
import threading
from decimal import Decimal
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal as assert_polars_equal

import tests.support.polars_threads  # noqa: F401
from daskprs._core.events import Counts
from daskprs._folders.job_folder import JobFolder
from daskprs._job.lazy_rows import PartReader
from daskprs._job.result import ParallelRunResult
from daskprs._output import kept_rows
from daskprs._output.kept_rows import KeptPart, KeptRows
from daskprs.errors import JobFolderError, JournalError, OptionError, ReturnTypeError
from tests.support.arrow_of_all_kinds import TYPES, tables
from tests.support.frames_of_all_kinds import frames
from tests.support.store_driver import TYPED, driving
from tests.support.versions import ARROW, ARROW_TEXT, TEXT

if TYPE_CHECKING:
    from pathlib import Path

IN_POLARS = [
    one
    for one in TYPES
    if not any(word in str(one[0]) for word in ("map", "dictionary", "half", "fixed_size_list"))
]


def result_of(folder: Path, *returned: Any) -> ParallelRunResult:
    """Return the result of a job whose mini-batches have returned this; the last came first."""
    with driving(folder / "job", None, TYPED) as driver:
        for index in reversed(range(len(returned))):
            driver.commit(index, returned[index])
        assert driver.store.publish() is None
    return ParallelRunResult(
        "Completed", Counts(), Counts(), None, folder, folder, folder / "job", 0.0
    )


def same(one: Any, other: Any) -> bool:
    """Say whether two lists of values are the same; a NaN equals a NaN."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one.items()], [*other.items()])
    both = isinstance(one, float) and isinstance(other, float)
    return (both and math.isnan(one) and math.isnan(other)) or bool(one == other)


@given(table=tables())
def test_arrow_tables_come_back_as_they_were(table: pa.Table, tmp_path_factory: Any) -> None:
    """Values and types; only dictionaries get room for the values of other mini-batches."""
    back = result_of(tmp_path_factory.mktemp("job"), table, table).to_arrow()
    assert same(back.to_pylist(), pa.concat_tables([table, table]).to_pylist())
    for now, before in zip(back.schema, table.schema, strict=True):
        assert now.type == before.type or pa.types.is_dictionary(before.type)
    back.validate(full=True)


@given(table=tables(IN_POLARS))
def test_frames_of_polars_come_back_as_they_were(table: pa.Table, tmp_path_factory: Any) -> None:
    """At once or lazily, and each mini-batch for itself."""
    frame = pl.DataFrame(pl.from_arrow(table))
    result = result_of(tmp_path_factory.mktemp("job"), frame, frame)
    assert_polars_equal(result.to_polars(), pl.concat([frame, frame]))
    assert_polars_equal(result.to_polars(lazy=True).collect(), pl.concat([frame, frame]))
    for one in result.iter_batches("polars"):
        assert_polars_equal(one, frame)


@given(frame=frames())
def test_frames_of_pandas_are_what_arrow_makes_of_them(
    frame: pd.DataFrame, tmp_path_factory: Any
) -> None:
    """A NaN is null. A column that Arrow has no type for is named."""
    result = result_of(tmp_path_factory.mktemp("job"), frame)
    try:
        expected = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        with pytest.raises(ReturnTypeError, match=r"column .* in what run\(\) returned for mini-b"):
            result.to_arrow()
        assert len(result.to_pandas()) == len(frame)
        return
    made = result.to_arrow()
    assert same(made.to_pylist(), expected.to_pylist())
    assert made.column_names == expected.column_names


@given(rows=frames() | tables(), cut=st.integers(0, 6))
def test_every_part_has_the_types_of_all(rows: Any, cut: int, tmp_path_factory: Any) -> None:
    """Whatever its rows hold, and however few they are; categories alone are its own."""
    assume(rows.shape[1])
    halves = (
        [rows.iloc[:cut], rows.iloc[cut:]]
        if isinstance(rows, pd.DataFrame)
        else [rows.slice(0, cut), rows.slice(cut)]
    )
    kept = KeptRows.of(JobFolder(result_of(tmp_path_factory.mktemp("job"), *halves).job_dir))
    try:
        meta = kept.frame_form.meta
        parts = [kept.frame(part, list(meta.columns)) for part in kept.parts(1)]
    except ReturnTypeError:  # for a column without a type of Arrow, or of pandas
        return
    for part in parts:
        assert list(part.columns) == list(meta.columns)
        for name in meta.columns:
            if not isinstance(meta[name].dtype, pd.CategoricalDtype):
                assert part[name].dtype == meta[name].dtype
    assert sum(map(len, parts)) == len(rows)


@pytest.mark.skipif(ARROW < 25, reason="Arrow 24 has no categories that are periods")
def test_categories_that_are_periods_have_one_type_in_arrow(tmp_path: Path) -> None:
    """Arrow takes dictionaries of them for equal, whatever the type of their indices."""
    days = pd.Categorical(pd.period_range("2020", periods=3, freq="D"))
    frame = pd.DataFrame({"a": days})
    table = result_of(tmp_path, frame, frame).to_arrow()
    assert {one.indices.type for one in table["a"].chunks} == {table["a"].type.index_type}


def test_categories_that_pandas_cannot_hold_are_readable_otherwise(tmp_path: Path) -> None:
    """The error says how."""
    table = pa.table({"a": pa.array(["x", None]).dictionary_encode("encode")})
    result = result_of(tmp_path, table)
    with pytest.raises(ReturnTypeError, match=r"Read the rows by to_arrow\(\)"):
        result.to_pandas()
    assert result.to_arrow()["a"].to_pylist() == ["x", None]


@pytest.mark.parametrize(
    ("returned", "values", "type_"),
    [
        ([[1, 2], [None, 3]], [1, 2, None, 3], pa.int64()),
        ([[None], [None, "a"]], [None, None, "a"], pa.string()),
        ([[1.5] * 40, [2]], [*[1.5] * 40, 2.0], pa.float64()),
        ([np.arange(3, dtype="uint8"), []], [0, 1, 2], pa.uint8()),
        ([[{"a": 1}], [{"a": None}]], [{"a": 1}, {"a": None}], pa.struct({"a": pa.int64()})),
        ([iter(["x"] * 150)], ["x"] * 150, ARROW_TEXT),
    ],
)
def test_elements_are_one_column(
    tmp_path: Path, returned: list[Any], values: list[Any], type_: pa.DataType
) -> None:
    """Of the first type in input order."""
    table = result_of(tmp_path, *returned).to_arrow()
    assert table.column_names == ["result"]
    assert table["result"].to_pylist() == values
    assert table.schema.field("result").type == type_


def test_a_misfit_is_named(tmp_path: Path) -> None:
    """Whatever came first: mini-batch, column and both types; so are elements of two kinds."""
    result = result_of(tmp_path, pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2.5]}))
    with pytest.raises(
        ReturnTypeError, match=r"'a' is double in mini-batch 1, .* has int64: .*2.5"
    ):
        result.to_arrow()
    result = result_of(tmp_path / "other", [1, "a"])
    with pytest.raises(ReturnTypeError, match=r"'result' \(object of int, str\) in what run"):
        result.to_polars()
    result = result_of(tmp_path / "frames", [1], pd.DataFrame({"a": [1]}))
    with pytest.raises(ReturnTypeError, match=r"lacks the columns \['result'\] and has"):
        result.to_arrow()


def test_decimals_have_room_for_those_of_later_mini_batches(tmp_path: Path) -> None:
    """They have most digits, whatever the first ones need."""
    frames = [pd.DataFrame({"a": [Decimal(text)]}) for text in ("0.50", "1234.00")]
    table = result_of(tmp_path, *frames).to_arrow()
    assert table.schema.types == [pa.decimal128(38, 2)]
    assert table["a"].to_pylist() == [Decimal("0.50"), Decimal("1234.00")]


def test_without_rows_the_columns_are_kept(tmp_path: Path) -> None:
    """Those of the first frame."""
    empty = pd.DataFrame({"a": pd.Series(dtype="int32"), "b": pd.Series(dtype=TEXT)})
    result = result_of(tmp_path, empty)
    assert result.to_arrow().schema.types == [pa.int32(), ARROW_TEXT]
    assert result.to_polars(lazy=True).collect().columns == ["a", "b"]
    assert list(result.to_dask_dataframe().compute().columns) == ["a", "b"]
    assert list(result.iter_batches()) == []


@pytest.mark.parametrize("names", [["n"], ["lists"], ["lists", "n"]])
def test_dask_reads_some_columns_where_one_is_of_lists(tmp_path: Path, names: list[str]) -> None:
    """Integers within the lists stay what they are, though a float would not hold them."""
    lists = [[2**53 + 1, None], [3]]
    lazy = result_of(tmp_path, pd.DataFrame({"n": [1, 2], "lists": lists})).to_dask_dataframe()
    seen = lazy[names].compute(scheduler="sync")
    assert list(seen.columns) == names
    if "lists" in names:
        assert [list(one) for one in seen["lists"]] == lists


def test_a_stream_reads_a_mini_batch_when_it_is_asked_for(tmp_path: Path) -> None:
    """Where later rows are damaged, those before are read, and then the error comes."""
    result = result_of(tmp_path, *([number] * 50 for number in range(4)))
    whole = KeptRows.of(JobFolder(result.job_dir))
    last = KeptPart(3, 4)
    spool = next((result.job_dir / "typed.1").iterdir())
    body = spool.read_bytes()
    spool.write_bytes(body[:10] + bytes(10) + body[20:])  # the last mini-batch was written first
    seen = []
    with pytest.raises((JournalError, pa.ArrowException), match=r"mini-batch 3 .* are damaged"):
        seen.extend(batch.num_rows for batch in pa.RecordBatchReader.from_stream(result))
    assert seen == [50, 50, 50]
    with pytest.raises(JournalError, match=r"mini-batch 3 .* resume=True"):
        list(whole.tables(last))
    assert [len(table) for _, table in whole.tables(KeptPart(1, 3))] == [50, 50]


def test_no_task_reads_other_rows_for_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a column has only nulls: the call has read them."""
    monkeypatch.setattr("daskprs._job.lazy_rows.PARTITION_BYTES", 1)
    result = result_of(tmp_path, *(pd.DataFrame({"n": [n], "never": [None]}) for n in range(4)))
    lazy = result.to_dask_dataframe()
    assert lazy.npartitions == 4
    kept_rows._kept.cache_clear()  # a worker reads the journals anew
    read: list[int] = []
    pieces = kept_rows.pieces_of_each

    def noted(folder: Any, commits: Any, rows: Any) -> Any:
        read.extend(rows.tolist())
        return pieces(folder, commits, rows)

    monkeypatch.setattr(kept_rows, "pieces_of_each", noted)
    assert lazy.partitions[1].compute(scheduler="sync")["n"].tolist() == [1]
    assert len(read) == 1


def test_a_class_of_the_script_needs_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every reader."""
    module = ModuleType("hits_of_this_test")
    module.Hit = type("Hit", (), {"__module__": module.__name__})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        result = result_of(tmp_path, [1], [module.Hit()])
        with pytest.raises(ReturnTypeError, match=r"'result' \(object of hits_of_this_test.Hit\)"):
            result.to_arrow()
    for read in (result.to_arrow, result.to_polars, lambda: list(result.iter_batches())):
        with pytest.raises(JournalError, match=r"hits_of_this_test.*make it importable"):
            read()


def test_parts_hold_whole_mini_batches(tmp_path: Path) -> None:
    """As many as fit, and one that is larger alone."""
    result = result_of(tmp_path, [0] * 50, [1] * 5_000, [2] * 50, [], [3] * 50)
    kept = KeptRows.of(JobFolder(result.job_dir))
    assert kept.parts(10_000) == [(0, 1), (1, 2), (2, 5)]
    assert kept.parts(1) == [(0, 1), (1, 2), (2, 3), (4, 5)]
    assert kept.frame(KeptPart(2, 5), ["result"])["result"].tolist() == [2] * 50 + [3] * 50
    assert len(kept.frame(KeptPart(2, 5), [])) == 100


def test_a_null_needs_a_type_that_has_one(tmp_path: Path) -> None:
    """Integers of Arrow and of lists are nullable; those of a frame stay what they are."""
    result = result_of(tmp_path, pa.table({"a": [1]}), pa.table({"a": pa.array([None, 3])}))
    assert result.to_dask_dataframe().compute()["a"].tolist() == [1, pd.NA, 3]
    frames = [pd.DataFrame({"a": [1]}), pd.DataFrame({"a": pd.array([None], "Int64")})]
    result = result_of(tmp_path / "frames", *frames)
    assert result.to_arrow()["a"].to_pylist() == [1, None]
    with pytest.raises(ReturnTypeError, match=r"'a' has a null in mini-batch 1, .* are int64"):
        result.to_dask_dataframe().compute(scheduler="sync")


def test_objects_may_have_a_null_in_any_mini_batch(tmp_path: Path) -> None:
    """Integers and booleans that are objects get types of pandas with a null."""
    rows = [{"ok": True, "n": 2**60}, {"ok": None, "n": None}, {"ok": False, "n": 1}]
    frames = [pd.DataFrame([row], dtype=object).assign(sure=True) for row in rows]
    made = result_of(tmp_path, *frames).to_dask_dataframe().compute(scheduler="sync")
    assert made.dtypes.astype(str).to_dict() == {"ok": "boolean", "n": "Int64", "sure": "bool"}
    assert made["ok"].tolist() == [True, pd.NA, False]
    assert made["n"].tolist() == [2**60, pd.NA, 1]


def test_a_column_that_a_mini_batch_lacks_is_named_alone(tmp_path: Path) -> None:
    """Columns that nobody asked for are no reason."""
    result = result_of(tmp_path, pa.table({"a": [1], "b": [2], "c": [3]}), pa.table({"a": [1]}))
    with pytest.raises(ReturnTypeError, match=r"lacks the columns \['b'\]\. Return"):
        result.to_dask_dataframe()[["a", "b"]].compute(scheduler="sync")


def test_journals_are_read_again_when_they_have_grown(tmp_path: Path) -> None:
    """The rows that a process has seen before are not all that there are."""
    result = result_of(tmp_path, [1])
    folder = JobFolder(result.job_dir)
    before = KeptRows.of(folder)
    assert KeptRows.of(folder) is before
    with driving(folder.path, None, TYPED, resume=True) as driver:
        driver.commit(1, [2])
    assert result.to_arrow()["result"].to_pylist() == [1, 2]
    assert len(list(before.frames())) == 1


def test_a_process_that_does_not_see_the_folder_says_what_to_do(tmp_path: Path) -> None:
    """It may be a worker."""
    read = PartReader(str(tmp_path / "elsewhere"), 1, ())
    with pytest.raises(JobFolderError, match=r"elsewhere is gone, or .* a job_dir that all"):
        read(KeptPart(0, 1), ["result"])
    numbered_anew = PartReader(str(result_of(tmp_path, [1]).job_dir), 2, ())
    with pytest.raises(JobFolderError, match=r"Call to_dask_dataframe\(\) again"):
        numbered_anew(KeptPart(0, 1), ["result"])


def test_threads_read_side_by_side(tmp_path: Path) -> None:
    """Each of them gets all rows."""
    result = result_of(tmp_path, *([number] * 50 for number in range(20)))
    sums: list[int] = []

    def read() -> None:
        for batch_format in ("pandas", "pyarrow"):
            batches = result.iter_batches(batch_format)
            sums.append(sum(sum(pd.Series(batch["result"])) for batch in batches))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [sum(range(20)) * 50] * 4


def test_a_job_without_typed_rows_has_none_to_read(tmp_path: Path) -> None:
    """The error names the option; so does that for a format that there is not."""
    with driving(tmp_path / "job", tmp_path / "rows.txt") as driver:
        driver.commit(0, ["a"])
    places = tmp_path, tmp_path, tmp_path / "job"
    result = ParallelRunResult("Completed", Counts(), Counts(), None, *places, 0.0)
    for method in ("to_arrow", "to_polars", "to_dask_dataframe", "iter_batches"):
        with pytest.raises(OptionError, match=f"{method}: this job kept no typed rows.*keep_rows"):
            getattr(result, method)()
    with pytest.raises(OptionError, match="'numpy' is none of"):
        result.iter_batches("numpy")  # type: ignore[call-overload]


def test_nulls_of_a_mini_batch_without_types_are_those_of_others(tmp_path: Path) -> None:
    """Days are objects in pandas, and a null of Arrow among them is None."""
    day = dt.date(2024, 2, 29)
    some, none = (
        pa.table({"day": pa.array([day, None], pa.date32())}),
        pa.table({"day": pa.nulls(1)}),
    )
    rows = result_of(tmp_path, some, none).to_pandas()
    assert rows["day"].tolist() == [day, None, None]
