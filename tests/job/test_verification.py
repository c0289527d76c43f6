"""``daskprs verify``: a job is proved by its folder alone, and what is wrong is named."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import fsspec
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._output.journal import history
from daskprs._output.journal.journal import VERSION

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

SCRIPT = """
def run(rows):
    if 3 in set(rows["a"]):
        raise ValueError("three")
    return rows
"""
OPTIONS = {
    "script": "score.py",
    "mini_batch_size": "2 rows",
    "job_dir": "job",
    "allowed_failed_count": 1,
    "run_max_try": 1,
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a script and two tables."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    for name, first in {"one": 0, "two": 5}.items():
        pd.DataFrame({"a": range(first, first + 5)}).to_csv(f"in/{name}.csv", index=False)
    return tmp_path


def verify(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, ["verify", "job", *words], prog_name="daskprs")


def findings(*words: str) -> list[dict[str, object]]:
    """Return the findings about a job that is not as it was."""
    done = verify("--json", *words)
    assert done.exit_code == 42, done.output
    found = json.loads(done.stdout)
    assert not found["proved"]
    return list(found["findings"])


def test_a_whole_job_is_proved_and_counted(work: Path) -> None:
    """All items of the input are committed or failed; the input can be counted anew."""
    daskprs.parallel_run("in/*.csv", output="scored.csv", **OPTIONS)
    done = verify()
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("<daskprs verify all proved>\n")
    assert "mini-batches  6 = 5 committed + 1 failed\n" in done.stdout
    assert "items         10 = 8 committed + 2 failed\n" in done.stdout
    assert "input         2 files, compared by size and modification time\n" in done.stdout
    assert f"output        {work / 'scored.csv'}\n" in done.stdout
    again = verify("--input")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "input         10 items in 6 mini-batches, read again\n" in again.stdout


def test_a_finding_says_what_it_concerns_and_what_to_do(work: Path) -> None:
    """The command that resumes the job does what the next step says."""
    daskprs.parallel_run("in/*.csv", output="scored.csv", **OPTIONS)
    whole = (work / "scored.csv").read_text()
    (work / "scored.csv").write_text(whole.replace("\n5\n", "\n4\n"))
    done = verify()
    assert done.exit_code == 42
    assert f"{work / 'scored.csv'} (bytes 8 to 12) is not what was committed." in done.stdout
    assert "concerns      mini-batch 3, 2 items of the input\n" in done.stdout
    assert "or remove it and resume the job, which runs 5 mini-batches again." in done.stdout
    assert f"to resume the job: daskprs resume {work / 'job'}" in done.stderr
    (work / "scored.csv").unlink()
    resumed = CliRunner().invoke(main, ["resume", "job", "--quiet"], prog_name="daskprs")
    assert resumed.exit_code == 0, resumed.output
    assert (work / "scored.csv").read_text() == whole
    assert verify().exit_code == 0


def test_another_input_is_named_by_file_and_with_its_rows_by_mini_batch(work: Path) -> None:
    """A change that keeps size and time is found where it changes the number of rows."""
    daskprs.parallel_run("in/*.csv", output="scored.csv", **OPTIONS | {"mini_batch_size": "1 MB"})
    one, two = (work / "in" / f"{name}.csv" for name in ("one", "two"))
    before = two.stat()
    two.write_text(two.read_text().replace("5\n6\n", "5 6\n"))
    os.utime(two, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert verify().exit_code == 0
    (rows,) = findings("--input")
    assert rows["what"] == "has 4 items in it, and 5 were committed"
    assert (rows["mini_batches"], rows["items"]) == ([[1, 1]], 5)
    one.write_text("a\n1\n")
    (file,) = findings()
    assert file["where"] == str(one)
    one.unlink()
    (file,) = findings()
    assert (file["where"], file["what"]) == (str(one), "is gone")
    _, gone, _ = findings("--input")
    assert gone["mini_batches"] == [[0, 0]]


def test_a_failed_job_is_proved_as_far_as_it_came(work: Path) -> None:
    """Its rows are in spools; the journals do not say how much is left."""
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(
            "in/*.csv", output="scored.csv", **OPTIONS | {"allowed_failed_count": 0}
        )
    done = verify()
    assert done.exit_code == 0
    assert done.stdout.startswith("<daskprs verify all proved that is committed so far>\n")
    assert "note          the job has not come to its end" in done.stdout
    (spool,) = (work / "job" / "spool.1").iterdir()
    spool.write_bytes(b"#" + spool.read_bytes()[1:])
    (found,) = findings()
    assert (found["where"], found["mini_batches"]) == (str(spool), [[0, 0]])


def test_the_input_of_a_program_is_not_compared_and_the_output_says_so(work: Path) -> None:
    """The rows of `to_pandas` are compared, too."""
    frame = pd.DataFrame({"a": range(10, 20)})
    daskprs.parallel_run(frame, output_action="summary_only", **OPTIONS)
    done = verify()
    assert done.exit_code == 0
    assert "input         not compared: it was data, a pandas." in done.stdout
    assert "items         10 = 10 committed + 0 failed\n" in done.stdout
    assert (work / "job" / "job.json").unlink() is None
    assert [one["where"] for one in findings()] == [str(work / "job" / "job.json")]


@pytest.mark.parametrize("output", ["scored.csv", "scored"])
@pytest.mark.usefixtures("work")
def test_an_output_in_a_store_is_compared_there_and_here(output: str) -> None:
    """What is missing there is uploaded again by a resume."""
    store = fsspec.filesystem("memory")
    daskprs.parallel_run("in/*.csv", output=f"memory://verified/{output}", **OPTIONS)
    try:
        assert verify().exit_code == 0, verify().output
        file = max(path for path in store.find("/verified") if not path.endswith(".json"))
        content = store.cat_file(file)
        store.pipe_file(file, content[:-1] + b"#")
        (found,) = findings()
        assert str(found["where"]).endswith(file.removeprefix("/"))
        assert "resume the job, which uploads it again" in str(found["next_step"])
        store.rm_file(file)
        assert [one["what"] for one in findings()] == ["is missing: it was moved or removed"]
        daskprs.parallel_run(
            "in/*.csv", output=f"memory://verified/{output}", **OPTIONS, resume=True
        )
        assert verify().exit_code == 0
    finally:
        store.rm("/verified", recursive=True)


def test_a_folder_that_cannot_be_proved_is_refused(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job, a job at work, and one of another version."""
    assert verify().exit_code == 2
    daskprs.parallel_run("in/*.csv", output="scored.csv", **OPTIONS)
    with locked(JobFolder(work / "job")):
        refused = verify()
    assert refused.exit_code == 2
    assert "another driver is at work on the job folder" in refused.stderr
    monkeypatch.setattr(history, "VERSION", VERSION + 1)
    refused = verify()
    assert refused.exit_code == 2
    assert "was written by another version of daskprs" in refused.stderr
