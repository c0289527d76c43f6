"""MLTable over Delta Lake: one version of a table, whatever has been written since."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, YamlError
from tests.support.mltables import mltable, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")


@pytest.fixture(scope="module", autouse=True)
def _runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start what the package keeps for as long as the process lives."""
    place = str(tmp_path_factory.mktemp("delta"))
    deltalake.write_deltalake(place, pa.table({"a": [1]}))
    deltalake.DeltaTable(place).to_pyarrow_dataset().to_table()


def delta_table(tmp_path: Path, **options: Any) -> Path:
    """Return an MLTable of a Delta table with two versions: the second has a column more."""
    content = {
        "paths": [{"folder": "data"}],
        "transformations": [{"read_delta_lake": options or None}],
    }
    folder = mltable(tmp_path, content, {})
    place = str(folder / "data")
    first = pa.table({"a": [1, 2, 3], "key": ["x", "y z", "x"]})
    deltalake.write_deltalake(place, first, partition_by=["key"])
    second = pa.table({"a": [4], "key": ["x"], "b": [True]})
    deltalake.write_deltalake(place, second, mode="append", schema_mode="merge")
    return folder


def sorted_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows by their first column: the order of files is that of their names, by chance."""
    return frame.sort_values("a").to_dict("records")


@pytest.mark.parametrize("size", [1, 1000])
def test_a_version_is_read_with_the_columns_of_its_folders(tmp_path: Path, size: int) -> None:
    """By its number."""
    got = rows_of(delta_table(tmp_path, version_as_of=0), mini_batch_size=size)
    assert sorted_rows(got) == [
        {"a": 1, "key": "x"},
        {"a": 2, "key": "y z"},
        {"a": 3, "key": "x"},
    ]
    assert got["a"].dtype == "int64"


@pytest.mark.parametrize("options", [{}, {"timestamp_as_of": "2999-08-26T00:00:00Z"}])
def test_the_latest_version_is_the_default_and_that_of_a_far_future(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Columns that came later are null before."""
    got = rows_of(delta_table(tmp_path, **options))
    assert list(got.columns) == ["a", "key", "b"]
    assert got.sort_values("a")["b"].notna().tolist() == [False, False, False, True]


def test_mini_batches_of_one_row_group_are_leased_together(tmp_path: Path) -> None:
    """So that it is decoded once, as of Parquet."""
    batches = list(
        open_source(delta_table(tmp_path), ReadOptions(mini_batch_size=1)).mini_batches()
    )
    groups = {(one.load_group, one.piece.base.piece[:2]) for one in batches}
    assert sorted(group for group, _ in groups) == [0, 1, 2]
    assert len(batches) == 4


def test_a_sample_stays_the_same_where_the_table_is_moved(tmp_path: Path) -> None:
    """It is drawn by the paths below the table's folder."""
    folder = delta_table(tmp_path)
    sample = {"take_random_sample": {"probability": 0.5}}
    content = {
        "paths": [{"folder": "data"}],
        "transformations": [{"read_delta_lake": None}, sample],
    }
    more = pa.table({"a": list(range(5, 105)), "key": ["x"] * 100})
    deltalake.write_deltalake(str(folder / "data"), more, mode="append", schema_mode="merge")
    (folder / "MLTable").write_text(yaml.safe_dump(content))
    before = rows_of(folder)
    after = rows_of(folder.rename(tmp_path / "moved"))
    assert 20 < len(before) < 80
    assert list(before["a"]) == list(after["a"])


def test_keys_that_are_folders_need_no_shuffle(tmp_path: Path) -> None:
    """Their values come from the log."""
    source = open_source(delta_table(tmp_path), ReadOptions(partition_keys=("key",)))
    assert type(source).__name__ == "FolderKeySource"
    keys = {one.partition_key[0][1]: one.items for one in source.mini_batches()}
    assert keys == {"x": 3, "y z": 1}


def test_a_newer_version_makes_another_job(tmp_path: Path) -> None:
    """Unless the MLTable names one."""
    fixed, latest = delta_table(tmp_path, version_as_of=1), delta_table(tmp_path)
    for folder, stays in ((fixed, True), (latest, False)):
        before = open_source(folder, ReadOptions()).fingerprint()
        more = pa.table({"a": [5], "key": ["x"], "b": [None]}, schema=None)
        more = more.set_column(2, "b", pa.array([None], pa.bool_()))
        deltalake.write_deltalake(str(folder / "data"), more, mode="append")
        assert (open_source(folder, ReadOptions()).fingerprint() == before) is stays


def test_what_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    """A version that there is not, a time that is none, both at once."""
    for options, told in (
        ({"version_as_of": 7}, "MLTable:5:5: transformations[0].read_delta_lake: the Delta table"),
        ({"timestamp_as_of": "rubbish"}, "the Delta table"),
        ({"timestamp_as_of": "2999-01-01T00:00:00Z", "version_as_of": 1}, "say the same thing"),
        ({"include_path_column": True}, "a Delta table has no paths of its own"),
    ):
        with pytest.raises((YamlError, InputError)) as caught:
            rows_of(delta_table(tmp_path, **options))
        assert told in str(caught.value)


@pytest.mark.parametrize("form", ["{way}", "{path}", "file://{path}"])
def test_a_log_that_names_a_file_outside_of_its_table_is_refused(tmp_path: Path, form: str) -> None:
    """Whoever wrote the log must not choose which files are read. The message is plain text."""
    folder = delta_table(tmp_path, version_as_of=0)
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"a": [7], "key": ["x"]}), secret)
    way = os.path.relpath(secret, folder / "data")
    log = folder / "data" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"] |= {"path": form.format(way=way, path=secret), "stats": None}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(YamlError, match=r"the Delta table .* cannot be read") as refused:
        open_source(folder, ReadOptions())
    assert "\x1b" not in str(refused.value)
