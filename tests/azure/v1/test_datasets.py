"""Datasets: paths, and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs.azure.v1 import (
    AmlCompute,
    ComputeTarget,
    Dataset,
    Datastore,
    DataType,
    OutputFileDatasetConfig,
    PipelineData,
    PromoteHeadersBehavior,
    Workspace,
)
from daskprs.azure.v1.dataset import dataset_of_record
from daskprs.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Datastore:
    """Return a datastore with tables and files."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "store"
    for name, text in [
        ("tables/2024/a.csv", "n;t\n1;x\n2;007\n"),
        ("tables/2025/b.csv", "n;t\n3;y\n"),
        ("lines/c.jsonl", '{"n": 1}\n{"n": 2}\n'),
    ]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pd.DataFrame({"n": [1, 2], "t": ["x", "y"]}).to_parquet(root / "d.parquet")
    return Workspace(root="store").get_default_datastore()


def test_tables_are_read_as_they_are_described(store: Datastore) -> None:
    """Types, separators, headers, columns of paths, and a few of the rows."""
    tables = Dataset.Tabular.from_delimited_files(
        path=store.path("tables"),
        separator=";",
        set_column_types={"n": DataType.to_float()},
        partition_format="tables/{year}/{name}.csv",
    )
    assert tables.partition_keys == ["year", "name"]
    frame = tables.to_pandas_dataframe()
    assert frame.to_dict("list") == {
        "n": [1.0, 2.0, 3.0],
        "t": ["x", "007", "y"],
        "year": [2024, 2024, 2025],
        "name": ["a", "a", "b"],
    }
    assert tables.take(2).to_pandas_dataframe().equals(frame.head(2))
    assert tables.skip(2).to_pandas_dataframe()["n"].tolist() == [3.0]
    with pytest.raises(UsageError, match=r"TabularDataset\.filter .*register_pandas_dataframe"):
        tables.filter(None)  # type: ignore[attr-defined]
    for one in (tables.keep_columns(["t"]), tables.drop_columns("n")):
        assert list(one.to_pandas_dataframe()) == ["t", "year", "name"]

    as_text = Dataset.Tabular.from_delimited_files(
        (store, "tables/*/b.csv"), separator=";", infer_column_types=False, include_path=True
    ).to_pandas_dataframe()
    assert as_text.drop(columns="Path").to_dict("list") == {"n": ["3"], "t": ["y"]}
    (store.root / "e.csv").write_text("Path\n007\n")
    paths = Dataset.Tabular.from_delimited_files((store, "e.csv"), infer_column_types=False)
    assert paths.to_pandas_dataframe()["Path"].tolist() == ["007"]
    without = Dataset.Tabular.from_delimited_files(
        [(store, "tables/2025/b.csv")], separator=";", header=False
    )
    assert len(without.to_pandas_dataframe()) == 2
    for header, rows in (
        (PromoteHeadersBehavior.NO_HEADERS, 5),
        (PromoteHeadersBehavior.ONLY_FIRST_FILE_HAS_HEADERS, 4),
        (PromoteHeadersBehavior.ALL_FILES_HAVE_SAME_HEADERS, 3),
    ):
        one = Dataset.Tabular.from_delimited_files(
            store.path("tables"), separator=";", header=header, infer_column_types=False
        )
        assert len(one.register(Workspace(root=store.root), "t").to_pandas_dataframe()) == rows


@pytest.mark.parametrize(
    ("text", "form", "dtype"),
    [
        ("2026/01/31", ["%Y/%m/%d"], "datetime64[ns]"),
        ("2026-01-31T00:00:00Z", "%Y-%m-%dT%H:%M:%SZ", "datetime64[ns, UTC]"),
    ],
)
def test_dates_with_the_year_first_are_read(
    tmp_path: Path, text: str, form: Any, dtype: str
) -> None:
    """In one format, which is found by looking at them."""
    (tmp_path / "a.csv").write_text(f"day\n{text}\n")
    days = Dataset.Tabular.from_delimited_files(
        str(tmp_path / "a.csv"), set_column_types={"day": DataType.to_datetime(form)}
    ).to_pandas_dataframe()["day"]
    assert (str(days.dtype), days[0].strftime("%d.%m.%Y")) == (dtype, "31.01.2026")


def test_parquet_json_lines_and_frames_are_tables_too(store: Datastore) -> None:
    """Each by its own way in."""
    parquet = Dataset.Tabular.from_parquet_files((store, "d.parquet")).to_pandas_dataframe()
    assert parquet.to_dict("list") == {"n": [1, 2], "t": ["x", "y"]}
    of_lines = Dataset.Tabular.from_json_lines_files((store, "lines"), encoding="utf8bom")
    lines = of_lines.to_pandas_dataframe()
    assert lines.to_dict("list") == {"n": [1, 2]}
    frame = Dataset.Tabular.register_pandas_dataframe(parquet, (store, "x"), "frame")
    assert Dataset.get_by_name(Workspace(root="store"), "frame").record() == frame.record()
    assert frame.take(1).to_pandas_dataframe()["t"].tolist() == ["x"]
    assert frame.partition_by(["t"]).get_partition_key_values() == [{"t": "x"}, {"t": "y"}]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["n"], ["t", "year", "name", "n"]),
        (["t", "n"], ["year", "name", "t", "n"]),
        (["year"], ["n", "t", "name", "year"]),
        (["name", "t", "year"], ["n", "name", "t", "year"]),
    ],
)
@pytest.mark.parametrize("paths", [False, True])
def test_the_keys_of_partition_by_are_the_last_columns(
    store: Datastore,
    keys: list[str],
    expected: list[str],
    paths: bool,  # noqa: FBT001 - a case
) -> None:
    """In their order, whether files or paths carry them; the values move with the names."""
    tables = Dataset.Tabular.from_delimited_files(
        path=store.path("tables"),
        separator=";",
        partition_format="tables/{year}/{name}.csv",
        include_path=paths,
    )
    first = ["Path"] if paths else []
    before = tables.to_pandas_dataframe()
    parts = tables.partition_by(keys)
    pd.testing.assert_frame_equal(parts.to_pandas_dataframe(), before[[*first, *expected]])
    assert parts.partition_keys == keys
    left = list(parts.drop_columns(expected[0]).to_pandas_dataframe())
    assert left[-len(keys) :] == keys
    with pytest.raises(UsageError, match="no column 'nn'"):
        tables.partition_by(["nn"])


@pytest.mark.parametrize("kind", ["parquet", "lines", "frame"])
def test_the_keys_of_any_table_are_the_last_columns(store: Datastore, kind: str) -> None:
    """Of Parquet, JSON lines and frames, too."""
    frame = pd.DataFrame({"k": [1, 2], "x": [3, 4], "l": ["a", "b"]})
    for part in ("q=7", "q=8"):
        (store.root / "k" / part).mkdir(parents=True)
        frame.to_parquet(store.root / "k" / part / "k.parquet")
        frame.to_json(store.root / "k" / part / "k.jsonl", orient="records", lines=True)
    table = {
        "parquet": lambda: Dataset.Tabular.from_parquet_files((store, "k/**/*.parquet")),
        "lines": lambda: Dataset.Tabular.from_json_lines_files((store, "k/**/*.jsonl")),
        "frame": lambda: Dataset.Tabular.register_pandas_dataframe(frame, (store, "x"), "f"),
    }[kind]().partition_by(["l", "k"])
    mine = {"x": [3, 4], "l": ["a", "b"], "k": [1, 2]}
    given = run_of(table)
    folders = ["x", "q", "l", "k"] if kind != "frame" else ["x", "l", "k"]
    assert list(given) == folders
    for name, values in mine.items():
        assert sorted(set(given[name])) == values


def test_columns_of_a_frame_are_kept_dropped_and_ordered() -> None:
    """A frame in memory gives the same columns to a reader as to a script."""
    frame = pd.DataFrame({"k": [1, 2], "Path": [3, 4], "l": ["a", "b"]})
    table = Dataset.Tabular.register_pandas_dataframe(frame)
    assert table.to_pandas_dataframe().equals(frame)
    for one, expected in [
        (table.keep_columns(["l", "k"]), ["l", "k"]),
        (table.drop_columns(["Path", "other"]), ["k", "l"]),
        (table.partition_by(["k"]), ["Path", "l", "k"]),
    ]:
        assert list(one.to_pandas_dataframe()) == expected


def run_of(table: Any) -> pd.DataFrame:
    """Return the mini-batches that a script gets of a table."""
    result = daskprs.parallel_run(
        table.data,
        lambda mini_batch: mini_batch,
        **table.reading,
        partition_keys=table.partition_keys,
        job_dir="job",
        progress=False,
    )
    rows: pd.DataFrame = result.to_pandas()
    return rows


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.Tabular.from_delimited_files("a.csv", validate=False, empty_as_string=True),
        lambda: Dataset.Tabular.from_json_lines_files("a.jsonl", False, invalid_lines="drop"),
        lambda: Dataset.Tabular.from_parquet_files("a.parquet", False, set_column_types={"a": 1}),
        lambda: PipelineData("p").as_dataset().parse_parquet_files(set_column_types={"a": 1}),
        lambda: DataType.to_datetime("%d.%m.%Y"),
        lambda: DataType.to_float(","),
    ],
)
def test_what_is_not_read_here_says_so(make: Callable[[], Any]) -> None:
    """With the way to have it, where there is one."""
    with pytest.raises(UsageError, match=r"MLTable|with a point"):
        make()


def test_outputs_are_read_by_extension_glob_and_format(store: Datastore) -> None:
    """What else lies in their folder is no part of a table."""
    output = OutputFileDatasetConfig("o", partition_format="{year}/{name}.csv")
    output.place = store.root / "tables"
    assert output.as_dataset().located().partition_keys == ["year", "name"]
    (output.place / "notes.txt").write_text("none")
    table = output.as_dataset().parse_delimited_files(separator=";", file_extension=".csv")
    assert table.located().data == [str(output.place / "**/*.csv")]
    output.read_delimited_files(separator=";", path_glob="*/a.csv", quoted_line_breaks=True)
    read: Any = output.as_dataset().located()
    assert read.to_pandas_dataframe()["n"].tolist() == [1, 2]


@pytest.mark.usefixtures("store")
def test_words_for_null_stay_in_columns_of_text() -> None:
    """Else they are null, unlike in Azure: the page of SDK v1 says so."""
    Path("towns.csv").write_text("country,n\nNA,1\n")
    text = DataType.to_string()
    for given in ({}, {"set_column_types": {"country": text}}, {"infer_column_types": False}):
        table = Dataset.Tabular.from_delimited_files("towns.csv", **given)
        (found,) = table.to_pandas_dataframe()["country"]
        assert found == "NA" if given else pd.isna(found)


def test_a_dataset_is_cut_into_parts(store: Datastore) -> None:
    """By position, or by chance, which a seed repeats; no row and no file is in two parts."""
    files = Dataset.File.from_files(store.path("**/*.csv"))
    assert files.take(1).to_path() == ["/tables/2024/a.csv"] == files.to_path()[:1]
    assert files.skip(1).to_path() == files.to_path()[1:] != []
    for folder in ("", "x", "y"):
        (Path(store.root) / "deep" / folder).mkdir(parents=True, exist_ok=True)
        (Path(store.root) / "deep" / folder / "one").touch()
    deep = Dataset.File.from_files(store.path("deep/**"))
    for one in (deep.take(3), dataset_of_record(deep.skip(0).record())):
        assert one.to_path() == deep.to_path() == ["/one", "/x/one", "/y/one"]
        assert len({*one.download()}) == 3
    rows = Dataset.Tabular.register_pandas_dataframe(
        pd.DataFrame({"n": range(100)}), store, "hundred"
    )
    first, second = rows.random_split(0.3, seed=1)
    again, rest = (one.to_pandas_dataframe()["n"].tolist() for one in (first, second))
    assert 15 < len(again) < 45
    assert sorted(again + rest) == [*range(100)]
    sample = rows.take_sample(0.3, seed=1).to_pandas_dataframe()
    assert sample["n"].tolist() == again
    assert sample.index.tolist() == [*range(len(again))]


def test_files_are_found_copied_and_told(store: Datastore) -> None:
    """What is not there is refused at once, unless nothing is to be validated."""
    files = Dataset.File.from_files((store, "tables"))
    assert files.to_path() == ["/2024/a.csv", "/2025/b.csv"]
    copied = files.download("copies")
    assert [Path(one).relative_to(Path("copies").absolute()).as_posix() for one in copied] == [
        *("2024/a.csv", "2025/b.csv"),
    ]
    with pytest.raises(UsageError, match="overwrite=True"):
        files.download("copies")
    assert Dataset.File.from_files((store, "tables/*/*.csv")).root() == str(store.root / "tables")
    url = "https://example.org/data/*/a.csv"
    assert Dataset.File.from_files(url, validate=False).root() == "https://example.org/data"
    with pytest.raises(InputError, match="no file or folder"):
        Dataset.File.from_files((store, "tablets"))
    assert Dataset.File.from_files((store, "tablets"), validate=False).data
    with pytest.raises(InputError, match="path: 7 is not a path"):
        Dataset.File.from_files(7)


def test_a_datastore_takes_and_gives_files(store: Datastore) -> None:
    """What is there stays, unless it is to be overwritten."""
    Path("new").mkdir()
    Path("new", "a.txt").write_text("1")
    assert store.upload("new", "in", show_progress=False).place == str(store.root / "in")
    Path("new", "a.txt").write_text("2")
    store.upload("new", "in")
    assert (store.root / "in" / "a.txt").read_text() == "1"
    store.upload_files(["new/a.txt"], ".", "in2", overwrite=True)
    assert (store.root / "in2" / "new" / "a.txt").read_text() == "2"
    assert store.download("got", prefix="in2") == 1
    assert Path("got/in2/new/a.txt").read_text() == "2"
    uploaded = Dataset.File.upload_directory("new", (store, "in3"))
    assert uploaded.to_path() == ["/a.txt"]
    assert uploaded.data == [str(store.root / "in3")]


def test_registered_datasets_and_computes_are_found_by_their_names(store: Datastore) -> None:
    """Whatever a compute is called, it is here."""
    ws = store.workspace
    assert ws is not None
    table = Dataset.Tabular.from_parquet_files((store, "d.parquet")).register(ws, "table")
    again = Dataset.get_by_name(Workspace(root="store"), "table")
    assert (type(again), again.name, again.record()) == (type(table), "table", table.record())
    few = table.take(1)
    assert few.register(ws, "few") is ws.datasets["few"]
    assert "cpu" not in ws.compute_targets
    sizes = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=2)
    compute = ComputeTarget.create(ws, "cpu", sizes)
    compute.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
    assert compute.get_status().serialize()["location"] == "local"
    assert type(ws.compute_targets["cpu"]) is type(ComputeTarget(ws, "cpu")) is AmlCompute
    compute.delete()
    assert not ws.compute_targets
