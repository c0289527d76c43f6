"""``daskprs origin``: which mini-batch, attempt, input and script a row of the output came from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._job.origin import origin
from daskprs._output import row_places
from daskprs.errors import JobFolderError, OptionError, ParallelRunFailed
from tests.support.cases import mostly_long

pytestmark = pytest.mark.usefixtures("inline")

SCRIPT = """
def run(rows, context):
    kept = rows[rows["a"] % 5 != 0]
    return kept.assign(of=context.minibatch_index, text='one\\n"two"\\n', kind=kept["a"] % 2)
"""
LINES = """
def run(rows, context):
    return [f'{context.minibatch_index} " {value}' for value in rows["a"] if value % 5]
"""
SOME_FAIL = """
import os

def run(rows):
    if os.path.exists("../../../../broken") and 4 in set(rows["a"]):
        raise ValueError("four")
    return rows
"""
OPTIONS: dict[str, Any] = {"mini_batch_size": "3 rows", "job_dir": "job"}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with scripts, and two tables of ten rows."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"score": SCRIPT, "lines": LINES}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "in").mkdir()
    for name, first in {"one": 0, "two": 10}.items():
        pd.DataFrame({"a": range(first, first + 10)}).to_csv(f"in/{name}.csv", index=False)
    return tmp_path


def call(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, ["origin", "job", *words], prog_name="daskprs")


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def origins(count: int, file: str | None = None) -> list[tuple[int, int | None, int]]:
    """Return mini-batch, row in it and its rows, for all rows; there are no more."""
    folder = JobFolder("job")
    found = [origin(folder, row, file) for row in range(count)]
    with pytest.raises(OptionError, match=rf"has {count} rows, numbered from 0"):
        origin(folder, count, file)
    return [(one.mini_batch, one.row_of_mini_batch, one.rows_of_mini_batch) for one in found]


def expected(numbers: list[int]) -> list[tuple[int, int, int]]:
    """Return the same by what the script has written into each row."""
    return [
        (number, numbers[:at].count(number), numbers.count(number))
        for at, number in enumerate(numbers)
    ]


@pytest.mark.parametrize("piece", mostly_long([1, 7, 1 << 20], suite=[7]))
@pytest.mark.parametrize("output", ["scored.csv", "scored.parquet", "scored.jsonl", "scored.arrow"])
@pytest.mark.usefixtures("work")
def test_each_row_has_its_mini_batch(
    output: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are not lines in a table, whose cells may have line feeds and quotes."""
    result = daskprs.parallel_run("in/*.csv", "score.py", output=output, **OPTIONS)
    monkeypatch.setattr(row_places, "COPY_BYTES", piece)
    numbers = result.to_pandas()["of"].tolist()
    assert len(numbers) == 16
    assert len(set(numbers)) == 8
    assert origins(16) == expected(numbers)


@pytest.mark.usefixtures("work")
def test_each_line_of_text_has_its_mini_batch() -> None:
    """A quote in a line is no quote of a cell."""
    result = daskprs.parallel_run("in/*.csv", "lines.py", output_dir="out", **OPTIONS)
    lines = Path(str(result.output_file)).read_text().splitlines()
    numbers = [int(line.split()[0]) for line in lines]
    assert origins(16) == expected(numbers)


def test_a_row_of_a_file_of_a_data_set(work: Path) -> None:
    """It is found by the number in its file, or in all files in input order."""
    result = daskprs.parallel_run("in/*.csv", "score.py", output="scored", **OPTIONS)
    (part,) = (work / "scored").glob("*.parquet")
    numbers = result.to_pandas()["of"].tolist()
    for name in (part.name, str(part), f"scored/{part.name}"):
        assert origins(16, name) == expected(numbers)
    refused = call("--output-row", "0", "--file", "part.parquet")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--file part.parquet: it is none of its files in the data set" in refused.stderr
    assert part.name in refused.stderr


@pytest.mark.parametrize("output", ["link/scored.csv", "link/scored"])
def test_a_file_is_known_by_a_path_through_a_link(output: str, work: Path) -> None:
    """And by the path to which the link leads."""
    (work / "disk").mkdir()
    (work / "link").symlink_to("disk")
    daskprs.parallel_run("in/*.csv", "score.py", output=output, **OPTIONS)
    file = next(Path(output).glob("*.parquet"), Path(output))
    for given in (file, file.resolve()):
        assert origin(JobFolder("job"), 0, str(given)).mini_batch == 0


def test_a_row_of_a_file_below_a_folder_of_values(work: Path) -> None:
    """The files have shared out the rows of a mini-batch, so that the number in it is unknown."""
    daskprs.parallel_run(
        "in/*.csv", "score.py", output="scored", output_partition_by=["kind"], **OPTIONS
    )
    files = sorted((work / "scored").rglob("*.parquet"))
    assert len(files) == 2
    for file in files:
        numbers = pd.read_parquet(file, partitioning=None)["of"].tolist()
        found = origins(len(numbers), str(file.relative_to(work / "scored")))
        assert [one[:2] for one in found] == [(number, None) for number in numbers]
    everywhere = call("--output-row", "0", "--file", files[0].name)
    assert ("there are several" in everywhere.stderr) is (files[0].name == files[1].name)


@pytest.mark.parametrize("output", ["scored.csv", "scored"])
@pytest.mark.usefixtures("work")
def test_a_row_of_an_output_in_a_store(output: str) -> None:
    """The job folder has what was uploaded."""
    result = daskprs.parallel_run(
        "in/*.csv", "score.py", output=f"memory://origin/{output}", **OPTIONS
    )
    fsspec.filesystem("memory").rm("/origin", recursive=True)
    assert origins(16) == expected(result.to_pandas()["of"].tolist())


def test_the_command_shows_what_the_folder_has_recorded(work: Path) -> None:
    """Nothing in the folder changes."""
    (work / "copies.py").write_text("def run(rows):\n    return rows\n")
    daskprs.parallel_run("in/*.csv", "copies.py", output="scored.csv", **OPTIONS)
    before = contents(work)
    done = call("--output-row", "14")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"<daskprs origin row 14 of {work / 'scored.csv'}>\n")
    two = work / "in" / "two.csv"
    assert "mini-batch    5 (two.csv, bytes 11-20): row 1 of 3 rows in the output\n" in done.stdout
    assert f"input         {two}, bytes 11-20, 3 items\n" in done.stdout
    assert "made of       item 1 of these, if run() returns a row for each" in done.stdout
    assert "attempt       1, in run 1: RUN_DONE\n" in done.stdout
    assert f"as in {work}\n" in done.stdout
    shown = json.loads(call("--output-row", "14", "--json").stdout)
    (attempt,) = shown["attempts"]
    log = Path(attempt["log"]).read_text()
    line = next(one for one in log.splitlines() if "|mini-batch 5|" in one)
    assert f"|{attempt['host']}|{attempt['pid']}|" in line
    assert attempt["started"].startswith(line[:10])
    assert attempt["elapsed_s"] >= attempt["run_s"] > 0
    assert shown["input"]["paths"] == [str(two)]
    assert shown["input"]["bytes"] == [11, 20]
    alone = call("--output-row", "19").stdout
    assert f"{two}, bytes 29-32, 1 item\n  made of       item 0 of these, if" in alone
    assert (shown["script"]["name"], shown["notes"]) == ("copies.py", [])
    assert contents(work) == before


def test_what_has_changed_since_is_noted(work: Path) -> None:
    """The file of the row, not another one; and the script, of which no snapshot is left."""
    daskprs.parallel_run("in/*.csv", "score.py", output="scored.csv", **OPTIONS)
    (work / "in" / "two.csv").write_text("a\n1\n")
    (work / "score.py").write_text(f"{SCRIPT}\n")
    (work / "job" / "logs" / "sys" / "job_report" / "processed_mini-batches.csv").unlink()
    first, last = origin(JobFolder("job"), 0), origin(JobFolder("job"), 15)
    assert not any("has another size" in note for note in first.notes)
    assert any(
        note.startswith(f"{work / 'in' / 'two.csv'} has another size") for note in last.notes
    )
    assert first.script.place is None
    assert "no folder has this version of the script any more" in first.notes
    assert (first.attempts[0].attempt, first.attempts[0].process) == (1, None)
    assert any("lacks the attempt" in note for note in first.notes)
    assert first.input.paths == (str(work / "in" / "one.csv"),)


def test_the_files_of_a_mini_batch(work: Path) -> None:
    """They are known by a digest of all of them."""
    (work / "names.py").write_text("def run(paths):\n    return paths\n")
    for number in range(5):
        (work / "in" / f"{number}.bin").write_bytes(b"x" * number)
    options: dict[str, Any] = {"mini_batch_size": 2, "job_dir": "job", "output_dir": "out"}
    daskprs.parallel_run("in/*.bin", "names.py", **options)
    found = origin(JobFolder("job"), 3)
    assert found.input.paths == (str(work / "in" / "2.bin"), str(work / "in" / "3.bin"))
    assert "made of       " + str(work / "in" / "3.bin") in call("--output-row", "3").stdout
    assert "3.bin, 2 files\n" in call("--output-row", "3").stdout
    assert origin(JobFolder("job"), 4).input.paths == (str(work / "in" / "4.bin"),)


@pytest.mark.usefixtures("work")
def test_rows_of_a_frame_and_of_keys() -> None:
    """A frame has no files; of a key, the label says what it is."""
    frame = pd.DataFrame({"a": range(1, 5), "k": [*"abab"]})
    daskprs.parallel_run(frame, "score.py", output="scored.csv", **OPTIONS)
    found = origin(JobFolder("job"), 3)
    assert (found.mini_batch, found.input.rows, found.input.paths) == (1, (3, 4), ())
    assert found.notes == []
    daskprs.parallel_run(frame, "score.py", output="keys.csv", partition_keys=["k"], job_dir="keys")
    found = origin(JobFolder("keys"), 3)
    assert (found.input.label, found.input.partition_key) == ("k=b", {"k": "b"})


def test_rows_that_ran_again_name_both_attempts(work: Path) -> None:
    """Those that had failed are of the later attempt, all others of the first one."""
    (work / "some.py").write_text(SOME_FAIL.replace("../../../../broken", str(work / "broken")))
    (work / "broken").touch()
    options = OPTIONS | {"on_error": "isolate", "run_max_try": 1, "output": "scored.csv"}
    daskprs.parallel_run("in/*.csv", "some.py", independent_rows=True, **options)
    first = origin(JobFolder("job"), 3)
    assert any("1 of its items have failed" in note for note in first.notes)
    assert first.rows_of_mini_batch == 2
    assert first.input.item is None
    (work / "broken").unlink()
    daskprs.parallel_run("in/*.csv", "some.py", independent_rows=True, resume="failed", **options)
    found = origin(JobFolder("job"), 4)
    assert [(one.run, one.items) for one in found.attempts] == [(2, [(1, 2)]), (1, None)]
    assert (found.rows_of_mini_batch, found.input.item) == (3, 1)
    assert "in run 2, of only items 1:2: RUN_DONE" in call("--output-row", "4").stdout
    (other,) = origin(JobFolder("job"), 0).attempts
    assert (other.run, other.items) == (1, None)


def test_a_job_that_goes_on_numbers_its_runs(work: Path) -> None:
    """Of an input that has grown in its midst, the number of a mini-batch is another one."""
    options = OPTIONS | {"output": "scored.csv"}
    daskprs.parallel_run("in/*.csv", "score.py", **options)
    pd.DataFrame({"a": [21, 22]}).to_csv("in/ready.csv", index=False)
    result = daskprs.parallel_run("in/*.csv", "score.py", resume="extend", **options)
    assert len(result.to_pandas()) == 18
    new, moved = origin(JobFolder("job"), 8), origin(JobFolder("job"), 17)
    assert (new.attempts[0].run, new.mini_batch) == (2, 4)
    assert new.input.paths == (str(work / "in" / "ready.csv"),)
    assert (moved.attempts[0].run, moved.attempts[0].mini_batch, moved.mini_batch) == (1, 7, 8)
    assert "logs of run 1 call the mini-batch 7, by the input then" in moved.notes


def test_what_cannot_be_told_is_refused(work: Path) -> None:
    """Each refusal says why, and what to do."""
    absent = call("--output-row", "0")
    assert (absent.exit_code, absent.stdout) == (2, "")
    daskprs.parallel_run("in/*.csv", "score.py", output_action="summary_only", **OPTIONS)
    none = call("--output-row", "0")
    assert none.exit_code == 2
    assert "writes no output" in none.stderr
    (work / "fails.py").write_text("def run(rows):\n    1 / 0\n")
    with pytest.raises(ParallelRunFailed):
        daskprs.parallel_run(
            "in/*.csv", "fails.py", output="failed.csv", **OPTIONS | {"job_dir": "failed"}
        )
    with pytest.raises(JobFolderError, match="has published no output yet"):
        origin(JobFolder("failed"), 0)
    daskprs.parallel_run(
        "in/*.csv", "score.py", output="scored.csv", **OPTIONS | {"job_dir": "changed"}
    )
    one_file = CliRunner().invoke(
        main, ["origin", "changed", "--output-row", "0", "--file", "x.csv"], prog_name="daskprs"
    )
    assert "--file x.csv: the output of the job is one file" in one_file.stderr
    scored = work / "scored.csv"
    scored.write_text(scored.read_text().replace("21", "12").replace("one", "eno"))
    with pytest.raises(JobFolderError, match="has changed since the job published it"):
        origin(JobFolder("changed"), 0)
    scored.unlink()
    with pytest.raises(JobFolderError, match="is gone"):
        origin(JobFolder("changed"), 0)
