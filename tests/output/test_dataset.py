"""A data set: rows in input order, one schema whatever finishes first, published whole."""

from __future__ import annotations

import fcntl
import random
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from daskprs._output.dataset import ordered_parts
from daskprs._output.publish import output_file
from daskprs._output.rows import part_formats
from daskprs.errors import OutputError, ReturnTypeError
from tests.support.datasets import PARQUET, AtOnce, files_in, manifest, table_of, text_of
from tests.support.growth import drive
from tests.support.growth import serial as serial_of_files
from tests.support.growth import target_of as target_of_files
from tests.support.store_driver import BOTH, driving, failed_outcome, frame_of, mini_batch, serial
from tests.support.versions import ARROW_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

N = 20
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def target_of(base: Path) -> Path:
    """Return the data set of the tests; its suffix decides nothing."""
    return base / "out" / "rows.txt"


def names_in(folder: Path) -> list[str]:
    """Return what a folder holds, hidden names too."""
    return sorted(path.name for path in folder.iterdir())


def publish(
    base: Path, results: dict[int, Any], spec: Any = PARQUET, **options: Any
) -> pa.Table | None:
    """Commit results in the order of the mapping, publish, and return the rows."""
    with driving(base / "job", target_of(base), spec, **options) as driver:
        for index, result in results.items():
            if not driver.has(index):
                driver.commit(index, result)
        assert driver.store.publish() == target_of(base)
    has_files = target_of(base).is_dir() and files_in(target_of(base))
    return table_of(target_of(base)) if has_files else None


def shuffled(count: int, seed: int = 7) -> list[int]:
    """Return numbers in any order."""
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311 - any order will do
    return order


# ---- rows and files ----


def test_rows_are_in_input_order_by_name_whatever_order_results_come_in(tmp_path: Path) -> None:
    """The files hold the same rows, of whole mini-batches, and no other name is left."""
    layouts = []
    for seed in (1, 2):
        base = tmp_path / str(seed)
        publish(base, {index: frame_of(index) for index in shuffled(N, seed)})
        assert text_of(target_of(base)) == serial(range(N))
        assert names_in(target_of(base).parent) == ["rows.txt"]
        assert not list((base / "job").glob("spool.*"))
        files = manifest(target_of(base))["files"]
        layouts.append([(one["rows"], one["mini_batches"], one["bytes"]) for one in files])
    assert layouts[0] == layouts[1]
    assert len(layouts[0]) > 3


def test_parts_are_written_while_the_job_runs(tmp_path: Path) -> None:
    """What has no gap before it does not wait for the end."""
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET) as driver:
        for index in range(1, N):
            driver.commit(index, frame_of(index))
        hidden = tmp_path / "out" / ".rows.txt.job.1.part"
        assert not hidden.exists()
        driver.commit(0, frame_of(0))
        assert hidden.is_dir()
    assert names_in(tmp_path / "out") == []


def test_a_driver_that_another_one_has_followed_removes_none_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a folder of its own, where both believe that the job folder is theirs."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    monkeypatch.setattr(ordered_parts, "_threads", AtOnce)
    with ExitStack() as older_at_work:
        older_at_work.enter_context(driving(tmp_path / "job", target_of(tmp_path), PARQUET))
        with driving(tmp_path / "job", target_of(tmp_path), PARQUET, resume=True) as newer:
            for index in range(N):
                newer.commit(index, frame_of(index))
            older_at_work.close()
            newer.store.publish()
    assert text_of(target_of(tmp_path)) == serial(range(N))
    assert names_in(tmp_path / "out") == ["rows.txt"]


def test_rows_that_came_with_their_outcomes_are_put_among_those_in_spools(tmp_path: Path) -> None:
    """From agents that do not see the job folder."""
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET) as driver:
        for index in shuffled(N):
            (driver.commit_carried if index % 2 else driver.commit)(index, frame_of(index))
        driver.store.publish()
    assert text_of(target_of(tmp_path)) == serial(range(N))


def test_folders_are_made_of_categories_and_numbers(tmp_path: Path) -> None:
    """Whatever the types of pandas are."""
    spec = PARQUET._replace(partition_by=("kind", "n", "flag"))
    kinds = pd.Categorical(["b", "a", "b"])
    frame = pd.DataFrame({"kind": kinds, "n": [1, 2, 1], "flag": [True, False, True], "x": 7})
    publish(tmp_path, {0: frame}, spec)
    folders = [name.rpartition("/")[0] for name in files_in(target_of(tmp_path))]
    assert folders == ["kind=a/n=2/flag=false", "kind=b/n=1/flag=true"]


def test_the_manifest_names_the_mini_batches_with_rows_in_each_file(tmp_path: Path) -> None:
    """Not all those of the part: it has a file in each folder."""
    towns = [["Lima"], ["Lima", "Rome"], [], ["Rome"], []]
    of_town = {i: pd.Series(of, dtype="str") for i, of in enumerate(towns)}
    results = {i: pd.DataFrame({"town": of, "x": i}) for i, of in of_town.items()}
    for by, expected in (("town",), [[0, 1], [1, 3]]), ((), [[0, 3]]):
        base = tmp_path / str(len(by))
        publish(base, results, PARQUET._replace(partition_by=by, file_size_bytes=1 << 20))
        files = manifest(target_of(base))["files"]
        assert [one["mini_batches"] for one in files] == expected


def test_a_mini_batch_that_failed_leaves_no_gap(tmp_path: Path) -> None:
    """Those behind it do not wait."""
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET) as driver:
        driver.store.attempt_failed(mini_batch(0), failed_outcome(0), final=True)
        for index in range(1, N):
            driver.commit(index, frame_of(index))
        driver.store.publish()
    assert text_of(target_of(tmp_path)) == serial(range(1, N))


def test_elements_make_the_column_result(tmp_path: Path) -> None:
    """Of lists, arrays and generators."""
    results = {0: [1, None, 3], 1: pd.array([4.0]).to_numpy(), 2: iter([5, 6])}
    table = publish(tmp_path, results)
    assert table is not None
    assert table.to_pydict() == {"result": [1, None, 3, 4, 5, 6]}


def test_decimals_have_room_for_those_of_later_mini_batches(tmp_path: Path) -> None:
    """The first ones may have few digits; a type that Arrow holds stays as it is."""
    frames = [pd.DataFrame({"a": [Decimal(text), None]}) for text in ("0.50", "1234.00")]
    exact = pd.Series([Decimal("0.50"), None], dtype=pd.ArrowDtype(pa.decimal128(3, 2)))
    frames = [frame.assign(b=exact, c=[10**40 * Decimal(1), None]) for frame in frames]
    frames = [frame.assign(d=[[{"e": frame["a"][0]}], None]) for frame in frames]
    table = publish(tmp_path, dict(enumerate([*frames, frames[1][:0]])))
    assert table is not None
    assert table["a"].to_pylist() == [Decimal("0.50"), None, Decimal("1234.00"), None]
    wide, wider = pa.decimal128(38, 2), pa.decimal256(76, 0)
    lists = pa.list_(pa.struct([("e", wide)]))
    assert table.schema.types == [wide, pa.decimal128(3, 2), wider, lists]


@pytest.mark.parametrize("kind", [list, tuple])
def test_elements_of_a_long_list_have_one_type(tmp_path: Path, kind: Any) -> None:
    """The last one decides, too."""
    table = publish(tmp_path, {0: kind([1] * 10_000 + [1.5])})
    assert table is not None
    assert table.schema.field("result").type == pa.float64()
    assert table.column("result")[-1].as_py() == 1.5


def test_folders_are_made_of_values(tmp_path: Path) -> None:
    """Names are quoted as Hive does, nulls have a folder, and a file lacks the columns."""
    spec = PARQUET._replace(partition_by=("town", "day"))
    towns, days = ["Lima", "a/b é", None], [pd.Timestamp("2020-01-02").date(), None]
    results = {
        index: pd.DataFrame(
            {"town": [*towns, *towns], "n": [*range(6 * index, 6 * index + 6)], "day": days * 3}
        )
        for index in shuffled(N)
    }
    publish(tmp_path, results, spec)
    whole = ds.dataset(
        target_of(tmp_path),
        partitioning=ds.partitioning(
            pa.schema([("town", pa.string()), ("day", pa.date32())]), flavor="hive"
        ),
    ).to_table()
    assert whole.num_rows == 6 * N
    expected = pd.concat(results[index] for index in range(N)).sort_values("n")
    found = whole.sort_by("n").to_pandas()
    assert found["n"].tolist() == expected["n"].tolist()
    assert [town or None for town in found["town"]] == expected["town"].tolist()
    assert [day or None for day in found["day"]] == expected["day"].tolist()
    files = files_in(target_of(tmp_path))
    assert any(name.startswith("town=a%2Fb%20%C3%A9/day=2020-01-02/part-0000") for name in files)
    first = pq.read_table(target_of(tmp_path) / files[0], partitioning=None)
    assert first.column_names == ["n"]
    assert first["n"].to_pylist() == sorted(first["n"].to_pylist())


def test_too_many_folders_are_refused(tmp_path: Path) -> None:
    """Each has an open file, and a reader would not like them."""
    spec = PARQUET._replace(partition_by=("n",))
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        driver.commit(0, pd.DataFrame({"n": range(1_001), "m": 1}))
        with pytest.raises(OutputError, match=r"the values of n make more than 1,000 .*_file_size"):
            driver.store.publish()


def test_a_value_too_long_for_a_folder_ends_the_job_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems take only short names; a resume with another column has all rows."""
    monkeypatch.setattr(part_formats, "LONGEST_NAME_BYTES", 10_000)
    monkeypatch.setattr(ordered_parts, "_threads", AtOnce)
    spec = PARQUET._replace(partition_by=("town", "n"), file_size_bytes=1)
    frame = pd.DataFrame({"n": [1], "m": [2], "town": ["é" * 100]})
    said = r"column 'town' makes .* of 600 characters, .*: %C3%A9.*…"
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        with pytest.raises(OutputError, match=said):
            driver.commit(0, frame)
        assert (tmp_path / "out" / ".rows.txt.job.1.part").is_dir()
    publish(tmp_path, {0: frame}, spec._replace(partition_by=("m",)), resume=True)
    assert files_in(target_of(tmp_path))[0].startswith("m=2/")


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_one_file_in_place_of_the_folder(tmp_path: Path, format_: Any) -> None:
    """It has all rows, and nothing lies beside it."""
    spec = PARQUET._replace(format=format_, single_file=True)
    publish(tmp_path, {index: frame_of(index) for index in shuffled(N)}, spec)
    file = target_of(tmp_path)
    if format_ == "jsonl":
        frame = pd.read_json(file, lines=True, dtype={"name": str})
    else:
        frame = ds.dataset(file, format=format_).to_table().to_pandas()
    assert frame.to_csv(sep=" ", header=False, index=False).encode() == serial(range(N))
    assert names_in(file.parent) == [file.name]


def test_a_job_without_rows_publishes_a_data_set_without_rows(tmp_path: Path) -> None:
    """With the columns of empty frames, or no file at all."""
    table = publish(tmp_path / "columns", {0: [], 1: pd.DataFrame({"n": pd.array([], "int8")})})
    assert table is not None
    assert table.schema.remove_metadata() == pa.schema([("n", pa.int8())])
    publish_nothing = tmp_path / "nothing"
    with driving(publish_nothing / "job", target_of(publish_nothing), PARQUET) as driver:
        driver.store.publish()
    assert names_in(target_of(publish_nothing)) == ["_manifest.json"]


def test_folders_that_some_readers_refuse_are_named(tmp_path: Path) -> None:
    """Those of nulls and of an empty text, once each, with what reads them."""
    told: list[str] = []
    spec = PARQUET._replace(partition_by=("k",))
    frame = pd.DataFrame({"k": ["a", None, ""], "v": range(3)})
    publish(tmp_path / "odd", {0: frame, 1: frame}, spec, warn=told.append)
    assert [text.split(" has ")[0] for text in told] == [
        "the folder k=",
        f"the folder k={HIVE_NULL}",
    ]
    hive = ds.partitioning(flavor="hive")
    back = pd.read_parquet(target_of(tmp_path / "odd"), partitioning=hive).sort_values("v")
    assert back["k"].fillna("null").tolist() == ["a", "a", "null", "null", "", ""]
    told.clear()
    publish(tmp_path / "plain", {0: frame.iloc[:1]}, spec, warn=told.append)
    assert not told


def test_types_of_pandas_are_noted(tmp_path: Path) -> None:
    """A nullable integer comes back as one, and a category too."""
    frame = pd.DataFrame({"n": pd.array([1, None], "Int64"), "c": pd.Categorical(["a", "b"])})
    publish(tmp_path, {0: frame, 1: frame})
    back = pd.read_parquet(target_of(tmp_path))
    pd.testing.assert_frame_equal(back, pd.concat([frame, frame], ignore_index=True))


# ---- the schema ----


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_the_schema_is_the_same_whatever_finishes_first(tmp_path: Path, order: list[int]) -> None:
    """The first mini-batch with rows fixes it; empty ones do not, and nulls take a later type."""
    results = {
        0: pd.DataFrame({"a": [], "b": [], "c": []}),
        1: pd.DataFrame({"a": [1.0], "b": [None], "c": [None]}),
        2: pd.DataFrame({"a": [2], "b": [None], "c": ["x"]}),
        3: pd.DataFrame({"c": ["y"], "a": [3], "b": [7]}),
    }
    table = publish(tmp_path, {index: results[index] for index in order})
    assert table is not None
    assert [field.type for field in table.schema] == [pa.float64(), pa.int64(), ARROW_TEXT]
    assert table.to_pydict() == {"a": [1, 2, 3], "b": [None, None, 7], "c": [None, "x", "y"]}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"a": [2.5]}, "column 'a' is double in mini-batch 1, and mini-batch 0 has int64"),
        ({"a": ["x"]}, "column 'a' is (large_)?string in mini-batch 1, and mini-batch 0 has int64"),
        ({"a": [True]}, "column 'a' is bool in mini-batch 1"),
        ({"b": [1]}, r"mini-batch 1 lacks the columns \['a'\]"),
    ],
)
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_change_of_the_schema_fails_the_job(
    tmp_path: Path, second: dict[str, Any], said: str, order: list[int]
) -> None:
    """The error names mini-batches, column and types; nothing is published."""
    results = {0: pd.DataFrame({"a": [1]}), 1: pd.DataFrame(second)}
    with pytest.raises(ReturnTypeError, match=said):
        publish(tmp_path, {index: results[index] for index in order})
    assert names_in(tmp_path / "out") == []


def test_a_change_of_the_schema_ends_the_job_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when all is done: as soon as the part cannot be written."""
    monkeypatch.setattr(ordered_parts, "_threads", AtOnce)
    spec = PARQUET._replace(file_size_bytes=1)
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        driver.commit(0, frame_of(0))
        with pytest.raises(ReturnTypeError, match=r"'mini_batch' is .*string in mini-batch 1"):
            driver.commit(1, frame_of(1).astype({"mini_batch": str}))


def test_a_result_looks_at_no_part_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of each."""
    looked_at = []

    class Counted(AtOnce):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = super().submit(function, *args, **kwargs)
            done = future.done
            future.done = lambda: looked_at.append(1) or done()  # type: ignore[method-assign,func-returns-value]
            return future

    monkeypatch.setattr(ordered_parts, "_threads", Counted)
    publish(tmp_path, {i: frame_of(i) for i in range(N)}, PARQUET._replace(file_size_bytes=1))
    assert len(files_in(target_of(tmp_path))) == len(looked_at) == N


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (pd.DataFrame({"a": [1, 2, "x"]}), r"column 'a' \(object\) .* row 2 shows, a str"),
        ([1, "x"], r"column 'result' \(object\) .* row 1 shows, a str"),
        ([1j], r"column 'result' \(object\) .* row 0 shows, a complex"),
        (["\ud800"], r"row 0 shows, a str: 'utf-8' codec can't encode .* surrogates not allowed"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns 'a'"),
        (pd.DataFrame(index=[0, 1]), "rows without columns"),
        (
            pa.table({"a": pa.array([None], pa.month_day_nano_interval())}),
            "'a' of the type month_day_nano_interval, which output_format='parquet' cannot hold",
        ),
        (
            pa.table({"a": pa.array([None], pa.decimal128(9, -2))}),
            r"'a' of the type decimal128\(9, -2\), which output_format='parquet' cannot hold",
        ),
    ],
)
def test_what_a_part_file_cannot_hold_is_a_failed_mini_batch(
    tmp_path: Path, result: Any, said: str
) -> None:
    """The message names column, type and row."""
    with (
        driving(tmp_path / "job", target_of(tmp_path), PARQUET) as driver,
        pytest.raises(ReturnTypeError, match=said),
    ):
        driver.commit(0, result)


@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_categories_that_arrow_cannot_decode_are_a_failed_mini_batch(
    tmp_path: Path, format_: Any
) -> None:
    """Those of `pandas.cut`, say: the driver would fail when all rows are there."""
    frame = pd.DataFrame({"a": pd.cut([1, 2, 3], 2)})
    spec = PARQUET._replace(format=format_)
    with (
        driving(tmp_path / "job", target_of(tmp_path), spec) as driver,
        pytest.raises(ReturnTypeError, match=f"'a' .* output_format='{format_}' cannot hold"),
    ):
        driver.commit(0, frame)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"a": [1]}, "no column 'k', by which output_partition_by makes folders"),
        ({"k": [1.5], "a": [1]}, "'k' of the type double, which makes no folders"),
        ({"k": [1]}, "no other columns than those"),
        (
            {"k": ["a", HIVE_NULL], "a": [1, 2]},
            f"the text '{HIVE_NULL}' in the column 'k', .* null",
        ),
        ({"k": pd.Categorical([HIVE_NULL]), "a": [1]}, f"the text '{HIVE_NULL}' in the column 'k'"),
        (
            {"k": ["a", "a\0b"], "a": [1, 2]},
            r"the text 'a\\x00b' in the column 'k', .* \\x00\. Ret",
        ),
        ({"k": ["b", "é" * 43], "a": [1, 2]}, r"43 characters .* folder of 260 bytes, .* 255"),
        ({"k": pd.Categorical(["a" * 254]), "a": [1]}, "folder of 256 bytes"),
    ],
)
def test_columns_that_make_no_folders_are_a_failed_mini_batch(
    tmp_path: Path, columns: dict[str, Any], said: str
) -> None:
    """At the first mini-batch, not at publishing."""
    spec = PARQUET._replace(partition_by=("k",))
    with (
        driving(tmp_path / "job", target_of(tmp_path), spec) as driver,
        pytest.raises(ReturnTypeError, match=said),
    ):
        driver.commit(0, pd.DataFrame(columns))


def test_the_longest_names_make_folders(tmp_path: Path) -> None:
    """Their bytes count as they are written, and a part of the name of nulls is a text."""
    texts = ["a" * 253, "é" * 42, HIVE_NULL[1:]]
    frame = pd.DataFrame({"k": texts, "a": range(3)})
    publish(tmp_path, {0: frame}, PARQUET._replace(partition_by=("k",)))
    folders = {unquote(name.split("/")[0]) for name in files_in(target_of(tmp_path))}
    assert folders == {f"k={text}" for text in texts}


# ---- going on ----


def test_what_was_committed_before_a_death_is_not_done_again(tmp_path: Path) -> None:
    """A resume makes the same files as a run without a death."""
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET) as driver:
        for index in shuffled(N)[: N // 2]:
            driver.commit(index, frame_of(index))
    publish(tmp_path, {index: frame_of(index) for index in range(N)}, resume=True)
    assert text_of(target_of(tmp_path)) == serial(range(N))
    publish(tmp_path / "once", {index: frame_of(index) for index in range(N)})
    sizes = [
        [one["bytes"] for one in manifest(target_of(base))["files"]]
        for base in (tmp_path, tmp_path / "once")
    ]
    assert sizes[0] == sizes[1]


def test_a_resume_of_a_published_data_set_does_nothing(tmp_path: Path) -> None:
    """It is recognized by its bytes."""
    publish(tmp_path, {index: frame_of(index) for index in range(N)})
    before = manifest(target_of(tmp_path))["publication"]
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET, resume=True) as driver:
        assert all(driver.has(index) for index in range(N))
        driver.store.publish()
    assert manifest(target_of(tmp_path))["publication"] == before


@pytest.mark.parametrize("spec", [PARQUET, PARQUET._replace(partition_by=("row",))])
@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl"])
def test_full_parts_without_a_change_stay_when_a_job_grows(
    tmp_path: Path, spec: Any, format_: Any
) -> None:
    """The others are made anew of published rows and new ones; no two share a name."""
    spec = spec._replace(format=format_)
    drive(tmp_path, "bcdefghx", fails="x", spec=spec)
    target = target_of_files(tmp_path)
    before = {(target / name).stat().st_ino: name for name in files_in(target)}
    held = [(target / name).open("rb") for name in files_in(target)]  # no number comes again
    rows_before = rows_in(target, format_)
    drive(tmp_path, "bcdefghix", "what is new", spec=spec)
    after = {(target / name).stat().st_ino: name for name in files_in(target)}
    assert before.keys() & after.keys()
    assert set(before.values()).isdisjoint(after.values())
    drive(tmp_path, "abcdefghix", "what is new", spec=spec)
    drive(tmp_path, "abcdefghix", "what failed", spec=spec)
    drive(tmp_path / "once", "abcdefghix", spec=spec)
    expected = rows_in(target_of_files(tmp_path / "once"), format_)
    assert rows_in(target, format_) == expected
    assert len(rows_before) < len(expected)
    for file in held:
        file.close()


def rows_in(target: Path, format_: str) -> list[str]:
    """Return all rows of a data set as text, sorted if they are in folders."""
    rows: list[str] = []
    names = files_in(target)
    for name in names:
        if format_ == "jsonl":
            rows += (target / name).read_text().splitlines()
        else:
            table = ds.dataset(target / name, format=format_).to_table()
            rows += map(str, table.to_pylist())
    return sorted(rows) if "/" in names[0] else rows


@pytest.mark.parametrize("partition_by", [(), ("row",)])
def test_empty_results_keep_their_places_when_a_job_grows(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """Twice, so that they come from parts of parts, some of which have no files."""
    spec = PARQUET._replace(partition_by=partition_by, file_size_bytes=2_000)
    results = {index: frame_of(index).iloc[: int(index % 3 == 2)] for index in range(12)}
    for count in (2, 5, 8, 12):
        publish(tmp_path, {i: results[i] for i in range(count)}, spec, resume=count > 2)
        whole = table_of(target_of(tmp_path)) if count > 2 else None
        expected = [index for index in range(count) if index % 3 == 2]
        assert whole is None or whole["mini_batch"].to_pylist() == expected


def test_the_published_schema_stays(tmp_path: Path) -> None:
    """Though an earlier mini-batch would fix another one now; a column of nulls takes a type."""
    first = {1: pd.DataFrame({"a": [1], "b": [None]}), 2: pd.DataFrame({"a": [2], "b": [None]})}
    publish(tmp_path, first)
    results = {0: pd.DataFrame({"a": [0.0], "b": ["x"]}), **first}
    table = publish(tmp_path, results, resume=True)
    assert table is not None
    assert [field.type for field in table.schema] == [pa.int64(), ARROW_TEXT]
    assert table.to_pydict() == {"a": [0, 1, 2], "b": ["x", None, None]}


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_the_mini_batches_of_a_damaged_part_run_again(tmp_path: Path, damage: str) -> None:
    """The other parts are kept."""
    publish(tmp_path, {index: frame_of(index) for index in range(N)})
    second = manifest(target_of(tmp_path))["files"][1]
    path = target_of(tmp_path) / second["path"]
    if damage == "change":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET, resume=True) as driver:
        gone = [index for index in range(N) if not driver.has(index)]
        first, last = second["mini_batches"]
        assert gone == list(range(first, last + 1))
        for index in gone:
            driver.commit(index, frame_of(index))
        driver.store.publish()
    assert text_of(target_of(tmp_path)) == serial(range(N))


def test_without_its_manifest_a_data_set_is_not_recognized(tmp_path: Path) -> None:
    """All runs again; the folder is not one that anything replaces."""
    publish(tmp_path, {0: frame_of(0)})
    (target_of(tmp_path) / "_manifest.json").unlink()
    with (
        pytest.raises(OutputError, match="which does not belong to a data set of daskprs"),
        driving(tmp_path / "job", target_of(tmp_path), PARQUET, resume=True),
    ):
        pass


# ---- replacing ----


def test_only_a_data_set_is_replaced(tmp_path: Path) -> None:
    """And only with `overwrite`; a folder with other files never is."""
    publish(tmp_path, {0: frame_of(0)})
    again = {1: frame_of(1)}
    with pytest.raises(OutputError, match=r"exists\. Replace it by overwrite=True"):
        publish_in(tmp_path, "second", again)
    publish_in(tmp_path, "second", again, overwrite=True)
    assert text_of(target_of(tmp_path)) == serial([1])
    (target_of(tmp_path) / "_manifest.json").unlink()
    with pytest.raises(OutputError, match="which does not belong to a data set of daskprs"):
        publish_in(tmp_path, "third", again, overwrite=True)
    with pytest.raises(OutputError, match="is a folder"):
        publish_in(tmp_path, "fourth", again, BOTH, overwrite=True)


def publish_in(
    base: Path, job: str, results: dict[int, Any], spec: Any = PARQUET, **options: Any
) -> None:
    """Publish by another job."""
    with driving(base / job, target_of(base), spec, **options) as driver:
        for index, result in results.items():
            driver.commit(index, result)
        driver.store.publish()


@pytest.mark.parametrize("dies_after", [1, 2])
def test_where_names_cannot_be_exchanged_a_death_between_two_renames_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: int
) -> None:
    """The old data set is put back by the next driver, which then publishes the new one."""
    publish(tmp_path, {0: frame_of(0)})
    monkeypatch.setattr(output_file, "exchanged", lambda *_: False)
    path, renames = type(tmp_path), []
    real = path.replace

    def replace(self: Path, other: Path) -> Path:
        if other.name.startswith("rows.txt") or self.name.startswith("rows.txt"):
            renames.append(other)
            if len(renames) == dies_after:
                raise KeyboardInterrupt
        return real(self, other)

    with monkeypatch.context() as patched:
        patched.setattr(path, "replace", replace)
        patched.setattr(ordered_parts.OrderedParts, "close", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path, {0: frame_of(0), 1: frame_of(1)}, resume=True)
    assert target_of(tmp_path).exists() == (dies_after == 1)
    with driving(tmp_path / "job", target_of(tmp_path), PARQUET, resume=True) as driver:
        assert text_of(target_of(tmp_path)) == serial([0])
        assert driver.has(0)
        assert driver.has(1)
        driver.store.publish()
    assert text_of(target_of(tmp_path)) == serial([0, 1])
    assert names_in(tmp_path / "out") == ["rows.txt"]


def test_files_of_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    """Nothing but their names says when they were made."""
    contents: list[Sequence[bytes]] = []
    for name in "ab":
        publish(tmp_path / name, {index: frame_of(index) for index in shuffled(N)})
        target = target_of(tmp_path / name)
        contents.append([(target / file).read_bytes() for file in files_in(target)])
    assert contents[0] == contents[1]


def test_a_job_over_files_that_come_and_go_has_the_rows_of_a_serial_run(tmp_path: Path) -> None:
    """Extended, shrunk, and with what failed tried again."""
    drive(tmp_path, "bdf", fails="d", spec=PARQUET)
    drive(tmp_path, "abcdefg", "what is new", fails="c", spec=PARQUET)
    assert text_of(target_of_files(tmp_path)) == serial_of_files("abefg")
    drive(tmp_path, "abcdefg", "what failed", spec=PARQUET)
    assert text_of(target_of_files(tmp_path)) == serial_of_files("abcdefg")
    drive(tmp_path, "acg", accepted=["input"], spec=PARQUET)
    assert text_of(target_of_files(tmp_path)) == serial_of_files("acg")
