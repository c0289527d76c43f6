"""Included columns in whole jobs: of every kind of input, in text and with types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import daskprs
from daskprs import OptionError, ParallelRunFailed

pytestmark = pytest.mark.usefixtures("inline")

ROWS = 300
TABLE = pd.DataFrame(
    {"id": [f"id{row}" for row in range(ROWS)], "x": range(ROWS), "key": list("abc") * 100}
)
OPTIONS: dict[str, Any] = {"process_count_per_node": 2, "progress": False}


def even(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return some of the rows, the last ones first."""
    assert list(mini_batch) == ["id", "x", "key"]
    rows = mini_batch[mini_batch["x"] % 2 == 0]
    return pd.DataFrame({"double": rows["x"] * 2})[::-1]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Return a folder of two Parquet files."""
    folder = tmp_path / "table"
    folder.mkdir()
    for part in (0, 1):
        rows = TABLE[part * 150 : (part + 1) * 150]
        rows.to_parquet(folder / f"{part}.parquet", row_group_size=40, index=False)
    return folder


def checked(found: pd.DataFrame) -> None:
    """Compare the rows with those of a run over all at once."""
    assert list(found["id"]) == [f"id{double // 2}" for double in found["double"]]
    assert sorted(found["double"]) == list(range(0, 2 * ROWS, 4))


def test_of_a_frame_with_labels(tmp_path: Path) -> None:
    """The labels of `to_pandas` are those of the rows, too."""
    frame = TABLE.set_index(TABLE["id"].rename("label"))
    result = daskprs.parallel_run(
        frame,
        even,
        include_columns=["id", "row_number"],
        mini_batch_size="1 KB",
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    assert result.mini_batches.total > 2
    found = result.to_pandas()
    assert list(found) == ["id", "row_number", "double"]
    checked(found)
    assert list(found.index) == list(found["id"])
    assert list(found["row_number"] * 2) == list(found["double"])


def test_of_parquet_files_in_text(tmp_path: Path, parquet: Path) -> None:
    """Each row has its file, and its number in the whole input."""
    result = daskprs.parallel_run(
        parquet,
        even,
        include_columns=["row_number", "path", "id"],
        mini_batch_size="300 B",
        output_dir=tmp_path / "out",
        append_row_dataframe_header=True,
        keep_rows=True,
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    assert result.output_file is not None
    found = pd.read_csv(result.output_file, sep=" ")
    assert list(found) == ["row_number", "path", "id", "double"]
    checked(found)
    assert list(found["row_number"] * 2) == list(found["double"])
    files = [str(parquet / f"{int(number >= 150)}.parquet") for number in found["row_number"]]
    assert list(found["path"]) == files
    pd.testing.assert_frame_equal(result.to_pandas(), found)


def test_of_text_by_keys(tmp_path: Path) -> None:
    """Rows that were brought together by key keep their paths; the columns need no order."""
    for part in (0, 1):
        rows = TABLE[part * 150 : (part + 1) * 150]
        rows.to_csv(tmp_path / f"{part}.csv", index=False)
    result = daskprs.parallel_run(
        tmp_path / "*.csv",
        even,
        include_columns=["id", "key", "path"],
        partition_keys="key",
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    found = result.to_pandas()
    checked(found)
    number = found["id"].str[2:].astype(int)
    assert list(found["key"]) == list(TABLE["key"].loc[number])
    assert list(found["path"]) == [str(tmp_path / f"{int(one >= 150)}.csv") for one in number]


@pytest.mark.processes
def test_of_a_dask_frame(tmp_path: Path) -> None:
    """Workers write its partitions, and agents read them."""
    result = daskprs.parallel_run(
        dd.from_pandas(TABLE, npartitions=3),
        even,
        include_columns=["id"],
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    checked(result.to_pandas())


@pytest.mark.parametrize("batch_format", ["pyarrow", "polars", "numpy"])
def test_of_other_formats(tmp_path: Path, parquet: Path, batch_format: str) -> None:
    """As many rows in their order."""
    result = daskprs.parallel_run(
        parquet,
        lambda rows: [f"{path} {x}" for path, x in zip(rows["id"], rows["x"], strict=True)],
        batch_format=batch_format,
        include_columns=["id", "path"],
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    found = result.to_pandas()
    assert list(found) == ["id", "path", "result"]
    assert list(found["id"]) == list(TABLE["id"])
    assert list(found["result"]) == [
        f"{one} {x}" for one, x in zip(TABLE["id"], TABLE["x"], strict=True)
    ]
    assert set(found["path"]) == {str(parquet / "0.parquet"), str(parquet / "1.parquet")}


def test_of_a_data_set(tmp_path: Path, parquet: Path) -> None:
    """The columns have the types of the input."""
    result = daskprs.parallel_run(
        parquet,
        lambda rows: pa.table({"twice": pc.multiply(rows["x"], 2)}),
        batch_format="pyarrow",
        include_columns=["id", "path", "row_number"],
        output_format="parquet",
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    assert result.output_file is not None
    found = pq.read_table(result.output_file)
    assert found.column_names == ["id", "path", "row_number", "twice"]
    assert found.schema.field("id").type == pq.read_schema(parquet / "0.parquet").field("id").type
    assert found["id"].to_pylist() == list(TABLE["id"])
    assert found["row_number"].to_pylist() == list(range(ROWS))


def test_of_files(tmp_path: Path) -> None:
    """The path is that in the input, whatever `run` returns."""
    names = [f"{number}.txt" for number in range(5)]
    for number, name in enumerate(names):
        (tmp_path / name).write_text("a" * number)
    result = daskprs.parallel_run(
        tmp_path / "*.txt",
        lambda paths: [len(Path(path).read_text()) for path in paths],
        include_columns=["path", "row_number"],
        mini_batch_size=2,
        job_dir=tmp_path / "job",
        **OPTIONS,
    )
    found = result.to_pandas()
    assert list(found["path"]) == [str(tmp_path / name) for name in names]
    assert list(found["result"]) == list(found["row_number"]) == list(range(5))


def test_rows_without_a_match_fail_the_mini_batch_at_once(tmp_path: Path) -> None:
    """A second try would return the same."""
    with pytest.raises(ParallelRunFailed, match=r"3 rows for a mini-batch of 300") as caught:
        daskprs.parallel_run(
            TABLE,
            lambda rows: rows.groupby("key", as_index=False)["x"].sum(),
            include_columns=["id"],
            job_dir=tmp_path / "job",
            **OPTIONS,
        )
    failed = pd.read_parquet(caught.value.result.job_dir / "failed.parquet")
    assert list(failed["attempts"].map(len)) == [1]


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a slip": (TABLE, {"include_columns": ["ids"]}, "no column 'ids'. Near it: id"),
    "a slip in a text": ("x.csv", {"include_columns": ["idd"]}, "no column 'idd'. Near it: id"),
    "a frame has no path": (TABLE, {"include_columns": ["path"]}, "have no path. Files have one"),
    "text has no numbers": (
        "x.csv",
        {"include_columns": ["row_number"]},
        "does not know the numbers of rows",
    ),
    "keys have no numbers": (
        TABLE,
        {"include_columns": ["row_number"], "partition_keys": "key"},
        "does not know the numbers of rows",
    ),
    "an input that has grown": (
        TABLE,
        {"include_columns": ["row_number"], "resume": "extend"},
        "would keep numbers that are wrong by now",
    ),
    "a file has no columns": (
        "x.csv",
        {"include_columns": ["id"], "input_type": "files"},
        "the input has no column 'id'",
    ),
    "two of a name": (
        TABLE.rename(columns={"key": "id"}),
        {"include_columns": ["id"]},
        "more than one column 'id'",
    ),
    "the name of the index": (
        TABLE.rename(columns={"key": "daskprs_row"}),
        {"include_columns": ["id"]},
        "the input has a column 'daskprs_row'",
    ),
    "an array": (
        dd.from_pandas(TABLE[["x"]], npartitions=1).to_dask_array(lengths=True),
        {"include_columns": ["x"]},
        "no columns that are known before the start",
    ),
    "nothing is kept": (
        TABLE,
        {"include_columns": ["id"], "output_action": "summary_only"},
        "which drops what run\\(\\) returns",
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        # Inline, a collection is refused for another reason.
        pytest.param(case, marks=pytest.mark.processes if case == "an array" else [])
        for case in REFUSED
    ],
)
def test_columns_that_are_not_there_are_refused_before_anything_starts(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what there is."""
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("x.csv", index=False)
    data, options, said = REFUSED[case]
    with pytest.raises(OptionError, match=said):
        daskprs.parallel_run(data, even, job_dir=tmp_path / "job", **options)
    assert not (tmp_path / "job").exists()
