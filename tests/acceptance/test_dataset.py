"""A job whose output is a data set, as its user sees it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.dataset as ds
import pytest

import daskprs
from tests.support.datasets import files_in, manifest
from tests.support.versions import ARROW_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("inline")

FRAME = pd.DataFrame({"n": range(4_000), "town": ["Lima", "Rome"] * 2_000})
OPTIONS: dict[str, Any] = {
    "mini_batch_size": 4_000,
    "output_file_size": 20_000,
    "process_count_per_node": 3,
    "progress": False,
}


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what a serial run makes of some rows."""
    return rows.assign(half=rows["n"] / 2, note=None)


def dying_once(marks: Path) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a script that dies at some first attempts, and takes any time."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        number = int(rows["n"].iloc[0])
        chance = random.Random(number)  # noqa: S311 - any order will do
        time.sleep(chance.random() / 50)
        mark = marks / str(number)
        if chance.random() < 0.3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return scored(rows) if number else scored(rows).iloc[:0]

    return run


def rows_of(target: Path | str | None) -> pd.DataFrame:
    """Return the rows of a data set, as any reader of Parquet finds them."""
    assert isinstance(target, Path)
    return ds.dataset(target).to_table().to_pandas()


@pytest.mark.processes
def test_deaths_and_the_order_of_completion_do_not_show(tmp_path: Path) -> None:
    """Rows and schema are those of a serial run, and so is the cut into files."""
    made = []
    for name in "ab":
        marks = tmp_path / f"marks-{name}"
        marks.mkdir()
        result = daskprs.parallel_run(
            FRAME,
            dying_once(marks),
            output_dir=tmp_path / name,
            job_dir=tmp_path / f"job-{name}",
            output_format="parquet",
            **OPTIONS,
        )
        assert len(list(marks.iterdir())) >= 3
        assert result.output_file == tmp_path / name / "parallel_run_step.parquet"
        rows = rows_of(result.output_file)
        skipped = len(FRAME) - len(rows)
        assert 0 < skipped < 500
        expected = scored(FRAME).iloc[skipped:].reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, expected, check_dtype=False)
        told = manifest(result.output_file)
        made.append((told["schema"], [(one["rows"], one["bytes"]) for one in told["files"]]))
    assert made[0] == made[1]
    assert len(made[0][1]) > 3


def test_what_failed_is_put_in_its_place_and_full_parts_stay(tmp_path: Path) -> None:
    """By `resume="failed"`, with a script that was corrected."""
    script = tmp_path / "score.py"
    body = "def run(rows):\n    assert rows['n'].iloc[0] < 3500 or {}\n    return rows\n"
    script.write_text(body.format(False))

    def run(**more: Any) -> Path:
        result = daskprs.parallel_run(
            FRAME,
            script,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            output_format="parquet",
            append_row_file_name="towns",
            allowed_failed_count=-1,
            run_max_try=1,
            **OPTIONS,
            **more,
        )
        assert isinstance(result.output_file, Path)
        return result.output_file

    target = run()
    before = {(target / name).stat().st_ino for name in files_in(target)}
    held = [(target / name).open("rb") for name in files_in(target)]
    assert rows_of(target)["n"].max() < 4_000 - 1
    script.write_text(body.format(True))
    assert run(resume="failed") == target
    pd.testing.assert_frame_equal(rows_of(target), FRAME, check_dtype=False)
    assert before & {(target / name).stat().st_ino for name in files_in(target)}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["towns"]
    for file in held:
        file.close()


def test_a_schema_that_changes_fails_the_job_whatever_the_budgets(tmp_path: Path) -> None:
    """The message names mini-batches, the column, both types, and what to write."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        return rows if rows["n"].iloc[0] < 2_000 else rows.astype({"n": str})

    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(
            FRAME,
            run,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            output_format="parquet",
            allowed_failed_count=-1,
            **OPTIONS,
        )
    assert f"column 'n' is {ARROW_TEXT} in mini-batch" in str(caught.value)
    assert "mini-batch 0 has int64" in str(caught.value)
    assert "schema" in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.long
@pytest.mark.processes
def test_the_command_line_makes_data_sets(tmp_path: Path) -> None:
    """Folders by column, or one file."""
    (tmp_path / "score.py").write_text("def run(rows):\n    return rows\n")
    FRAME.to_csv(tmp_path / "in.csv", index=False)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "daskprs", "run", "score.py", "in.csv", "--quiet", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = run("--output-dir", "a", "--output-format", "jsonl", "--output-partition-by", "town")
    assert str(tmp_path / "a" / "parallel_run_step.jsonl") in told
    (rome,) = (tmp_path / "a" / "parallel_run_step.jsonl" / "town=Rome").iterdir()
    assert pd.read_json(rome, lines=True)["n"].tolist() == list(range(1, 4_000, 2))
    told = run("--output-dir", "b", "--output-format", "arrow", "--output-single-file")
    assert (
        ds.dataset(tmp_path / "b" / "parallel_run_step.arrow", format="arrow").count_rows() == 4_000
    )


@pytest.mark.processes
def test_rows_of_a_data_set_that_is_not_there_yet_are_not_iterated(tmp_path: Path) -> None:
    """The error says how to have both."""
    options = {**OPTIONS, "output_format": "arrow", "output_dir": tmp_path / "out"}
    run = daskprs.start(FRAME, scored, job_dir=tmp_path / "job", **options)
    with pytest.raises(daskprs.OptionError, match=r"data set.*keep_rows=True"):
        list(run.iter_batches())
    assert run.result().status == "Completed"
    kept = daskprs.parallel_run(
        FRAME, scored, job_dir=tmp_path / "kept", **options, keep_rows=True, overwrite=True
    )
    assert len(kept.to_pandas()) == len(FRAME)
