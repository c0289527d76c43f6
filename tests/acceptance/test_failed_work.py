"""What failed is an output: `failed.parquet`, and what makes good for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.copying import Place

pytestmark = pytest.mark.usefixtures("inline")


@pytest.mark.processes
def test_what_failed_is_a_table_with_every_attempt(place: Place) -> None:
    """With the items, where each attempt was made, and its traceback; the message names it."""
    place.add("a.jpg", "b.jpg", "c.jpg")
    place.spoil("b.jpg")
    with pytest.raises(
        daskprs.ParallelRunFailed, match=r"why, and how .*: daskprs report .* --text"
    ):
        place.run(allowed_failed_count=0)
    (row,) = pq.read_table(place.failed).to_pylist()
    assert row["mini_batch"] == 1
    assert row["label"] == "b.jpg"
    assert row["items"] == 1
    assert row["paths"] == [str(place.input / "b.jpg")]
    assert row["error"] == "ValueError: b.jpg is bad"
    first, second = _charged(row)
    assert first["attempt"] == 1 < second["attempt"]
    assert first["run"] == second["run"] == 1
    assert first["status"] == "RUN_EXCEPTION"
    assert first["kind"] == "ValueError"
    assert first["message"] == "b.jpg is bad"
    assert f'File "{place.script}", line' in first["traceback"]
    assert first["node"] == 0
    assert first["process"].startswith("process")
    assert first["pid"] > 0
    assert first["charged"] is True
    assert 0 <= first["run_s"] <= first["elapsed_s"]
    assert first["started"] <= second["started"]


def test_the_table_keeps_the_attempts_of_earlier_runs_and_goes_when_all_is_well(
    place: Place,
) -> None:
    """It is there as long as something has failed in the end."""
    place.add("a.jpg", "b.jpg")
    place.spoil("b.jpg")
    result = place.run()
    assert result.failed_file == place.failed
    result = place.run(resume=True, run_max_try=1)
    (row,) = pq.read_table(place.failed).to_pylist()
    assert [one["run"] for one in _charged(row)] == [1, 1, 2]
    place.mend()
    result = place.run(resume=True)
    assert result.failed_file is None
    assert not place.failed.exists()
    assert place.output() == place.serial()


def test_the_table_has_keys_whose_columns_have_whole_numbers_as_names(tmp_path: Path) -> None:
    """As columns of a frame may."""

    def run(rows: pd.DataFrame) -> list[int]:
        return [6 // n for n in rows[0]]

    call: Any = {"job_dir": tmp_path / "job", "allowed_failed_count": 1, "progress": False}
    frame = pd.DataFrame({0: [0, 1]})
    result = daskprs.parallel_run(frame, run, partition_keys=[0], run_max_try=1, **call)
    (row,) = pq.read_table(result.failed_file).to_pylist()
    assert row["partition_key"] == [("0", "0")]


@pytest.mark.parametrize(
    ("table", "option"),
    [("failed", {"allowed_failed_count": 1}), ("failed_rows", {"on_error": "isolate"})],
)
def test_a_job_is_not_completed_without_the_table_of_what_failed(
    tmp_path: Path, table: str, option: dict[str, Any]
) -> None:
    """Without the table, its result would say that nothing has failed. A resume writes it."""

    def run(rows: pd.DataFrame) -> list[int]:
        return [6 // n for n in rows["n"]]

    in_the_way = tmp_path / "job" / f"{table}.parquet"
    in_the_way.mkdir(parents=True)
    call: Any = {"mini_batch_size": "2 rows", "job_dir": tmp_path / "job", "progress": False}
    call |= {"output_dir": tmp_path / "out", **option}
    frame = pd.DataFrame({"n": [0, 1, 2, 3]})
    with pytest.raises(daskprs.ParallelRunFailed, match=f"{table}.*mend the folder, and resume"):
        daskprs.parallel_run(frame, run, **call)
    assert not list((tmp_path / "out").iterdir())
    in_the_way.rmdir()
    result = daskprs.parallel_run(frame, run, resume=True, **call)
    assert len(getattr(result, table)) == 1
    assert result.output_file is not None


def test_a_table_says_where_rows_lie(tmp_path: Path) -> None:
    """In bytes of text, in rows of a row group, as the values of keys."""
    frame = pd.DataFrame({"key": ["x", "y", "x", None], "n": range(4)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")

    def rows(data: Any, **options: Any) -> list[dict[str, Any]]:
        result = daskprs.parallel_run(
            data,
            _fail,
            job_dir=tmp_path / f"job{len(list(tmp_path.iterdir()))}",
            allowed_failed_count=-1,
            run_max_try=1,
            output_action="summary_only",
            process_count_per_node=1,
            progress=False,
            **options,
        )
        table: list[dict[str, Any]] = pq.read_table(result.failed_file).to_pylist()
        return table

    (text,) = rows(str(tmp_path / "t.csv"))
    assert text["paths"] == [str(tmp_path / "t.csv")]
    assert (text["first_byte"], text["end_byte"]) == (0, (tmp_path / "t.csv").stat().st_size)
    (group,) = rows(str(tmp_path / "t.parquet"))
    assert (group["row_group"], group["first_row"], group["end_row"]) == (0, 0, 4)
    assert group["items"] == 4
    keys = rows(str(tmp_path / "t.parquet"), partition_keys="key")
    assert [dict(key["partition_key"]) for key in keys] == [
        {"key": "x"},
        {"key": "y"},
        {"key": None},
    ]
    (whole,) = rows(frame)
    assert (whole["first_row"], whole["end_row"]) == (0, 4)


def _charged(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the attempts that count: others were held in a process that had failed before."""
    return [one for one in row["attempts"] if one["charged"]]


def _fail(rows: pd.DataFrame) -> None:
    raise ValueError(str(len(rows)))
