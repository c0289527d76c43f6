"""`resume="failed"` runs just the rows that have failed, and puts theirs among the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.verification import verify
from tests.support.cases import few_examples

pytestmark = pytest.mark.usefixtures("inline")


def table(rows: int) -> pd.DataFrame:
    """Return rows with a number each."""
    return pd.DataFrame({"n": range(rows), "word": [f"w{n:03}" for n in range(rows)]})


class Job:
    """A job whose script fails for some rows, and notes which ones it gets.

    Parameters
    ----------
    folder
        The folder of the job, and of its output.
    data
        The input.
    options
        Options of the job.

    """

    def __init__(self, folder: Path, data: Any, **options: Any) -> None:
        self.folder = folder
        self._data = data
        self._given: dict[str, Any] = {
            "mini_batch_size": "16 rows",
            "on_error": "isolate",
            "run_max_try": 1,
            "progress": False,
            "job_dir": folder / "job",
        }
        self._given |= options
        folder.mkdir()

    def run(
        self,
        bad: set[int] = frozenset(),
        form: str = "frame",
        **more: Any,  # type: ignore[assignment]
    ) -> daskprs.ParallelRunResult:
        """Run the job, or resume it; a script that was mended has fewer bad rows."""
        note = self.folder / "called"
        note.unlink(missing_ok=True)

        def run(rows: Any) -> Any:
            numbers = [
                int(n) for n in (rows["n"] if hasattr(rows, "columns") else map(_number, rows))
            ]
            with note.open("a") as file:
                file.write(f"{json.dumps(numbers)}\n")
            for n in numbers:
                if n in bad:
                    msg = f"bad {n}"
                    raise ValueError(msg)
            return FORMS[form](numbers)

        return daskprs.parallel_run(self._data, run, **(self._given | more))

    def again(self, bad: set[int] = frozenset(), **more: Any) -> daskprs.ParallelRunResult:  # type: ignore[assignment]
        """Run what has failed."""
        return self.run(bad, **more, resume="failed")

    @property
    def called(self) -> set[int]:
        """The rows that `run` got in the last call."""
        lines = (self.folder / "called").read_text().splitlines()
        return {n for line in lines for n in json.loads(line)}

    @property
    def output(self) -> dict[str, bytes]:
        """The published files, without the random part of their names."""
        files = sorted(self.folder.glob("rows*/*.*")) or sorted(self.folder.glob("rows*"))
        kept = [one for one in files if one.name != "_manifest.json"]
        return {one.name.rpartition("-")[0] or one.name: one.read_bytes() for one in kept}


def _number(path: str) -> int:
    return int(Path(path).stem)


FORMS: dict[str, Any] = {
    "frame": lambda numbers: pd.DataFrame({"n": numbers, "half": [n / 2 for n in numbers]}),
    "arrow": lambda numbers: pa.table({"n": numbers, "text": [f"{n} is it" for n in numbers]}),
    "lines": lambda numbers: [f"row {n}" for n in numbers],
    "objects": lambda numbers: [{"n": n} for n in numbers],
    "two each": lambda numbers: pd.DataFrame({"n": [n for n in numbers for _ in range(2)]}),
    "odd ones": lambda numbers: pd.DataFrame({"n": [n for n in numbers if n % 2]}, dtype="int64"),
}
BAD = {3, 4, 20, 31, 40, 63}
OUTPUTS: list[dict[str, Any]] = [
    {"output": "rows.csv", "keep_rows": True},
    {"output": "rows.parquet"},
    {"output": "rows", "output_file_size": "1 KB"},
    {"output": "rows.arrow"},
    {"output_dir": "rows", "keep_rows": True},
    {},
    {"output_action": "summary_only", "independent_rows": True},
]


def given_output(folder: Path, output: dict[str, Any]) -> dict[str, Any]:
    """Return options for an output in a folder."""
    places = {"output", "output_dir"}
    return {name: folder / value if name in places else value for name, value in output.items()}


@pytest.mark.parametrize("on_error", ["isolate", "null"])
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_only_bad_rows_are_called_and_the_output_is_that_of_a_serial_run(
    output: dict[str, Any], on_error: str, tmp_path: Path
) -> None:
    """Rows that fail again stay listed, with their new error; those that are healed do not."""
    if on_error == "null" and "output_action" in output:
        pytest.skip("it drops what run() returns")
    jobs = [
        Job(tmp_path / name, table(80), on_error=on_error, **given_output(tmp_path / name, output))
        for name in ("again", "serial")
    ]
    job, serial = jobs
    job.run(BAD)
    wanted = serial.run()
    some = job.again({4, 63})
    assert job.called == BAD
    assert some.items == (80, 78, 2)
    assert some.failed_rows["n"].tolist() == [4, 63]
    assert some.failed_rows["_position"].tolist() == [4, 63]
    assert verify(JobFolder(job.folder / "job")).findings == []
    result = job.again()
    assert job.called == {4, 63}
    assert result.items == (80, 80, 0)
    assert result.failed_rows.empty
    assert not JobFolder(job.folder / "job").failed_rows.exists()
    assert verify(JobFolder(job.folder / "job")).findings == []
    assert job.output == serial.output
    if "output_action" not in output:
        pd.testing.assert_frame_equal(rows_of(result), rows_of(wanted))


def rows_of(result: daskprs.ParallelRunResult) -> pd.DataFrame:
    """Return the rows without labels: some scripts return others than they got."""
    return result.to_pandas(ignore_index=True)


@given(
    st.lists(st.sets(st.integers(0, 39), max_size=39), min_size=1, max_size=3),
    st.sampled_from([*FORMS]),
    st.sampled_from(["isolate", "null"]),
    st.sampled_from([{"output": "rows.csv"}, {"output": "rows.parquet"}, {"keep_rows": True}]),
)
@few_examples(4)
def test_any_rows_that_fail_and_heal_leave_the_output_of_a_serial_run(
    tmp_path_factory: pytest.TempPathFactory,
    bad: list[set[int]],
    form: str,
    on_error: str,
    output: dict[str, Any],
) -> None:
    """Whatever `run` returns for a row; some rows break only later."""
    folder = tmp_path_factory.mktemp("any")
    options = {"independent_rows": True, "on_error": on_error}
    job, serial = (
        Job(folder / name, table(40), **options, **given_output(folder / name, output))
        for name in ("again", "serial")
    )
    job.run(bad[0], form)
    for some in bad[1:]:
        job.again(some, form=form)
    result, wanted = job.again(form=form), serial.run(form=form)
    assert result.items == wanted.items
    # The types of a data set are those of its first publication, which may have begun with nulls.
    if on_error == "isolate" or output != {"output": "rows.parquet"}:
        assert job.output == serial.output
    pd.testing.assert_frame_equal(rows_of(result), rows_of(wanted))
