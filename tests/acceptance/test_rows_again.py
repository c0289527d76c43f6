"""`resume="failed"` runs just the rows that have failed, and puts theirs among the others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.verification import verify
from daskprs._output.committed_rows import CommittedRows
from daskprs._output.journal.journal import lines
from tests.support.cases import few_examples, mostly_long

if TYPE_CHECKING:
    from collections.abc import Collection

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
        self.given: dict[str, Any] = {
            "mini_batch_size": "16 rows",
            "on_error": "isolate",
            "run_max_try": 1,
            "progress": False,
            "job_dir": folder / "job",
        }
        self.given |= options
        folder.mkdir()

    def run(
        self,
        bad: Collection[int] = (),
        form: str = "frame",
        **more: Any,
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

        return daskprs.parallel_run(self._data, run, **(self.given | more))

    def again(self, bad: Collection[int] = (), **more: Any) -> daskprs.ParallelRunResult:
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
        found = [one for place in self.folder.glob("rows*") for one in (place, *place.rglob("*"))]
        kept = [one for one in found if one.is_file() and one.name != "_manifest.json"]
        place = {one: str(one.relative_to(self.folder)) for one in kept}
        return {re.sub(r"-[0-9a-f]+[.]", ".", place[one]): one.read_bytes() for one in kept}


def _number(path: str) -> int:
    return int(Path(path).stem)


FORMS: dict[str, Any] = {
    "frame": lambda numbers: pd.DataFrame({"n": numbers, "half": [n / 2 for n in numbers]}),
    "arrow": lambda numbers: pa.table({"n": numbers, "text": [f"{n} is it" for n in numbers]}),
    "array": lambda numbers: np.array([[n, 2 * n] for n in numbers]),
    "lines": lambda numbers: [f"row {n}" for n in numbers],
    "objects": lambda numbers: [{"n": n} for n in numbers],
    "two each": lambda numbers: pd.DataFrame({"n": [n for n in numbers for _ in range(2)]}),
    "odd ones": lambda numbers: pd.DataFrame({"n": [n for n in numbers if n % 2]}, dtype="int64"),
}
BAD = {3, 4, 20, 31, 40, 63}
OUTPUTS: dict[str, dict[str, Any]] = {
    "csv": {"output": "rows.csv", "keep_rows": True},
    "parquet": {"output": "rows.parquet"},
    "parts": {"output": "rows", "output_file_size": "1 KB"},
    "arrow": {"output": "rows.arrow"},
    "lines": {"output_dir": "rows", "keep_rows": True},
    "typed": {},
    "none": {"output_action": "summary_only", "independent_rows": True},
}


def given_output(folder: Path, output: dict[str, Any]) -> dict[str, Any]:
    """Return options for an output in a folder."""
    places = {"output", "output_dir"}
    return {name: folder / value if name in places else value for name, value in output.items()}


@pytest.mark.parametrize(
    ("name", "on_error"),
    mostly_long(
        [case for case in product(OUTPUTS, ["isolate", "null"]) if case != ("none", "null")],
        suite=[("csv", "null"), ("parquet", "isolate")],
    ),
)
def test_only_bad_rows_are_called_and_the_output_is_that_of_a_serial_run(
    name: str, on_error: str, tmp_path: Path
) -> None:
    """Rows that fail again stay listed, with their new error; those that are healed do not."""
    output = OUTPUTS[name]
    job, serial = (
        Job(tmp_path / one, table(80), on_error=on_error, **given_output(tmp_path / one, output))
        for one in ("again", "serial")
    )
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


@pytest.mark.long
def test_rows_of_nulls_keep_their_types_where_nothing_heals(tmp_path: Path) -> None:
    """Nothing is returned then that would tell them, or that names of columns are numbers."""
    job = Job(tmp_path / "job", table(32), on_error="null", output=tmp_path / "job" / "rows.csv")
    bad = {3, 4, 9, 20}
    before, output = rows_of(job.run(bad, "array")), job.output
    result = job.again(bad, form="array")
    assert result.items == (32, 28, 4)
    assert job.output == output
    pd.testing.assert_frame_equal(rows_of(result), before)
    result = job.again({4}, form="array")
    assert job.called == bad
    assert rows_of(result)[0].isna().to_numpy().nonzero()[0].tolist() == [4]


def test_files_and_columns_of_the_input_fit_again(tmp_path: Path) -> None:
    """Beside the rows of healed files, and beside the nulls of those that are not."""
    (tmp_path / "in").mkdir()
    for number in range(12):
        (tmp_path / "in" / f"{number}.bin").touch()
    options = {"mini_batch_size": 6, "on_error": "null", "include_columns": ["path"]}
    jobs = [
        Job(tmp_path / name, tmp_path / "in", output=tmp_path / name / "rows.csv", **options)
        for name in ("again", "serial")
    ]
    job, serial = jobs
    job.run({3, 9}, "lines")
    rows = rows_of(job.again({9}, form="lines"))
    assert job.called == {3, 9}
    assert [_number(path) for path in rows["path"]] == NAMES
    assert rows["_error"].dropna().tolist() == ["ValueError: bad 9"]
    job.again(form="lines")
    serial.run(form="lines")
    assert job.output == serial.output


NAMES = sorted(range(12), key=lambda number: f"{number}.bin")
"""The numbers of the files in the order of the input."""


@pytest.mark.parametrize(
    ("output", "options", "why"),
    [
        ({"output": "rows.jsonl"}, {}, "JSON"),
        ({"output": "rows", "output_partition_by": ["n"]}, {}, "folders"),
        ({"output": "rows.csv"}, {"on_error": "raise"}, "on_error"),
    ],
)
def test_what_shows_no_places_runs_as_a_whole_and_says_so(
    output: dict[str, Any],
    options: dict[str, Any],
    why: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The output is that of a serial run all the same."""
    job, serial = (
        Job(tmp_path / name, table(32), **given_output(tmp_path / name, output))
        for name in ("again", "serial")
    )
    job.run({3})
    job.again(**options)
    assert job.called == {*range(16)}
    assert re.search(rf"1 mini-batch with failed rows runs again as a whole: .*{why}", caplog.text)
    serial.run()
    assert job.output == serial.output


def test_who_reads_meanwhile_gets_no_rows_before_theirs(tmp_path: Path) -> None:
    """A mini-batch that gets rows is awaited, as one that has none yet."""
    job = Job(tmp_path / "job", table(64), output=tmp_path / "job" / "rows.csv")
    job.run({3, 40})
    folder, read = JobFolder(job.folder / "job"), tmp_path / "read"

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        new = CommittedRows(folder, after=1).new(is_complete=False)
        with read.open("a") as file:
            file.write(f"{sum(map(len, new))}\n")
        return FORMS["frame"](rows["n"])

    daskprs.parallel_run(table(64), run, **job.given, resume="failed")
    assert read.read_text().split() == ["0", "32"]


def test_rows_that_the_script_has_named_run_with_their_mini_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows which of the rows that it returned stand before them."""
    job = Job(tmp_path / "job", table(32))

    def check(rows: pd.DataFrame, context: Any) -> pd.DataFrame:
        bad = rows["n"] == 20
        context.fail(bad.to_numpy().nonzero()[0], "it is 20")
        return rows[~bad]

    daskprs.parallel_run(table(32), check, **job.given)
    job.again()
    assert job.called == {*range(16, 32)}
    assert "the place of the rows in the output is not known" in caplog.text


@pytest.mark.long
def test_a_record_whose_commit_was_lost_with_its_machine_lists_no_rows(tmp_path: Path) -> None:
    """The commit of before stands, with all rows that it lacks."""
    job = Job(tmp_path / "job", table(32), output=tmp_path / "job" / "rows.csv")
    job.run({3, 4})
    published = (job.folder / "rows.csv").read_bytes()
    job.again({4})
    (job.folder / "rows.csv").write_bytes(published)
    journal = JobFolder(job.folder / "job").journal(2)
    end = next(at for at, body in lines(journal) if body.startswith(b'["commits"'))
    journal.write_bytes(journal.read_bytes()[:end])
    result = job.run(resume=True, accept_changes="script")
    assert result.items == (32, 30, 2)
    assert result.failed_rows["n"].tolist() == [3, 4]


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("kind", mostly_long(["frame", "collection"], suite=["collection"]))
def test_rows_that_have_killed_heal_in_agents(kind: str, tmp_path: Path) -> None:
    """The output is whole, and what kills again is listed with its new cause."""
    script, data = tmp_path / "script.py", table(48)
    is_frame = kind == "frame"
    job: dict[str, Any] = {"output": tmp_path / "rows.csv", "job_dir": tmp_path / "job"}
    job |= {"mini_batch_size": "16 rows" if is_frame else None, "progress": False}

    def scored(bad: str, **options: Any) -> daskprs.ParallelRunResult:
        script.write_text(KILLED.format(bad=bad))
        given = data if is_frame else dd.from_pandas(data, npartitions=3)
        options |= {"on_error": "isolate", "run_max_try": 1, **job}
        return daskprs.parallel_run(given, str(script), **options)

    scored("3, 20")
    result = scored("20", resume="failed")
    assert result.items == (48, 47, 1)
    assert result.failed_rows["_status"].tolist() == ["PROCESS_DIED"]
    scored("", resume="failed")
    wanted = "".join(f"{n},w{n:03}\n" for n in range(48))
    assert (tmp_path / "rows.csv").read_text() == f"n,word\n{wanted}"


KILLED = """
import os

def run(rows):
    if {{*rows["n"]}} & set([{bad}]):
        os._exit(3)
    return rows
"""


STEPS = {"kill": (5, 27), "EIO": (3, 20), "ENOSPC": (4, 25), "interrupt": (2, 20)}
"""Which operation is struck first, and at which stride others are."""
PROGRAM = "tests.acceptance.rows_again_at_every_step"


@pytest.mark.long
@pytest.mark.parametrize("name", mostly_long(["rows.csv", "rows.parquet"], suite=["rows.csv"]))
@pytest.mark.parametrize("how", mostly_long(STEPS, suite=["kill"]))
def test_what_strikes_such_a_resume_at_a_file_operation_changes_no_byte(
    how: str, name: str, tmp_path: Path
) -> None:
    """The next one ends with the output of a serial run, and calls `run` for no good row."""
    words = str(tmp_path), how, *map(str, STEPS[how]), name
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-2]) > 50


@given(
    st.lists(st.sets(st.integers(0, 39), max_size=39), min_size=1, max_size=3),
    st.sampled_from([*FORMS]),
    st.sampled_from(["isolate", "null"]),
    st.sampled_from([{"output": "rows.csv"}, {"output": "rows.parquet"}, {"keep_rows": True}]),
)
@few_examples(7)
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
    # A data set keeps the notes of its first publication, which may have begun with nulls.
    is_same = on_error == "isolate" or output != {"output": "rows.parquet"}
    if is_same:
        assert job.output == serial.output
    found, expected = rows_of(result), rows_of(wanted)
    pd.testing.assert_frame_equal(found, expected)


def test_rows_that_fail_again_and_again_leave_the_header_line(tmp_path: Path) -> None:
    """No new row tells it."""
    job = Job(tmp_path / "job", table(16), output=tmp_path / "job" / "rows.csv")
    job.run({3})
    output = job.output
    for _ in range(3):
        job.again({3})
        assert job.output == output
