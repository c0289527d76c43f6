"""An input that changes while its job runs: the job fails, and goes on with what is there now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs.errors import JobChanged
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

SCRIPT = """
import os
from pathlib import Path

HERE = Path({home!r})
AT = {at}


def run(rows):
    first = rows["n"].iloc[0]
    with (HERE / "ran").open("a") as ran:
        ran.write(f"{{first}}\\n")
    if (HERE / "change").exists() and first == AT:
        change()
    return rows


def shutdown():
    if (HERE / "change").exists() and AT is None:
        change()


def change():
    (HERE / "change").unlink()
    path = HERE / "in" / {name!r}
    body = path.read_bytes()
    {change}


"""
IN_PLACE = "path.write_bytes(body.replace(b'0', b'7')); os.utime(path, (1, 1))"
CHANGES = {
    "rewritten": IN_PLACE,
    "grown": "path.write_bytes(body + body[-5:])",
    "replaced": "(HERE / 'x').write_bytes(body); (HERE / 'x').replace(path)",
    "truncated": "os.truncate(path, len(body) // 3)",
}


class Table:
    """Files of numbers, and a job over them whose script changes a file."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.input = home / "in"
        self.input.mkdir()
        self.script = home / "script" / "score.py"
        self.script.parent.mkdir()

    def write(
        self, write: Callable[[pd.DataFrame, Path], None], suffix: str, step: int = 1
    ) -> None:
        """Write two files of the numbers from 1000 and from 2000 on."""
        for n in (1000, 2000):
            write(pd.DataFrame({"n": range(n, n + 1000, step)}), self.input / f"{n}.{suffix}")

    def change(self, how: str, name: str, at: int | None) -> None:
        """Let the script change a file, once, at the mini-batch with this first row."""
        home = str(self.home)
        self.script.write_text(SCRIPT.format(home=home, at=at, name=name, change=how))
        (self.home / "change").touch()

    def ran(self) -> list[int]:
        """Return the first rows of the mini-batches that were run since the last call."""
        path = self.home / "ran"
        numbers = sorted(map(int, path.read_text().split()))
        path.unlink()
        return numbers

    def run(self, **options: Any) -> daskprs.ParallelRunResult:
        """Run the job, or go on with it; whatever fails is borne."""
        given = {
            "job_dir": self.home / "job",
            "output_dir": self.home / "out",
            "mini_batch_size": 1000,
            "process_count_per_node": 1,
            "allowed_failed_count": -1,
            "progress": False,
        }
        return daskprs.parallel_run(str(self.input), self.script, **(given | options))

    def published(self) -> str:
        """Return the output."""
        return (self.home / "out" / "parallel_run_step.txt").read_text()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table without files."""
    return Table(tmp_path)


def csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def json_lines(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", lines=True)


def parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False, row_group_size=100)


@pytest.mark.parametrize(
    ("write", "suffix", "how"),
    mostly_long(
        [
            (csv, "csv", "rewritten"),
            (csv, "csv", "grown"),
            (csv, "csv", "replaced"),
            (csv, "csv", "truncated"),
            (csv, "csv.gz", "truncated"),
            (json_lines, "jsonl", "rewritten"),
            (parquet, "parquet", "replaced"),
        ],
        suite=[(csv, "csv", "grown")],
    ),
)
def test_a_file_that_changes_fails_the_job_and_only_its_mini_batches_run_again(
    table: Table, write: Callable[[pd.DataFrame, Path], None], suffix: str, how: str
) -> None:
    """Whatever may fail; the output is that of a serial run over what is there now."""
    table.write(write, suffix)
    name = f"2000.{suffix}"
    table.change(CHANGES[how], name, 2000)
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        table.run()
    told = str(caught.value)
    assert told.startswith(f"INPUT_CHANGED: {table.input / name}: the file has changed since")
    assert "resume=True" in told
    assert "accept_changes='input'" in told
    assert not (table.home / "out" / "parallel_run_step.txt").exists()
    done = [n for n in table.ran() if n < 2000]
    attempts = pd.read_csv(table.home / "job/logs/sys/job_report/processed_mini-batches.csv")
    assert (attempts["Status"] == "INPUT_CHANGED").sum() <= 1
    if how == "truncated":  # what is left is no table
        write(pd.DataFrame({"n": range(2000, 2500)}), table.input / name)
    with pytest.raises(JobChanged, match=f"{name} has changed"):
        table.run(resume=True)
    result = table.run(resume=True, accept_changes="input")
    again = table.ran()
    assert not set(again) & set(done)
    table.run(job_dir=table.home / "anew", output_dir=table.home / "anew" / "out")
    assert (table.home / "anew" / "out" / "parallel_run_step.txt").read_text() == table.published()
    assert {n for n in again if n >= 2000} == {n for n in table.ran() if n >= 2000}
    assert result.mini_batches.failed == 0


@pytest.mark.parametrize("keep", mostly_long([True, False], suite=[False]))
def test_a_change_behind_the_last_mini_batch_is_seen_before_publishing(
    table: Table, *, keep: bool
) -> None:
    """With an output file or without; a file that is gone by then is none."""
    table.write(csv, "csv")
    output = {} if keep else {"output_action": "summary_only"}
    table.change(IN_PLACE, "1000.csv", None)
    with pytest.raises(daskprs.ParallelRunFailed, match=r"1000.csv: the file has changed since"):
        table.run(**output)
    table.ran()
    table.change("path.unlink()", "1000.csv", None)
    table.run(resume=True, accept_changes=["input", "script"], **output)
    assert all(n < 2000 for n in table.ran())


def test_rows_brought_together_by_key_are_of_one_input(table: Table) -> None:
    """They were read before; what is published must be of the input of then and of now."""
    table.write(csv, "csv", step=20)
    table.change(IN_PLACE, "2000.csv", 1500)
    by_key = {"mini_batch_size": None, "partition_keys": "n"}
    with pytest.raises(daskprs.ParallelRunFailed, match=r"INPUT_CHANGED: .*2000.csv"):
        table.run(**by_key)
    table.ran()
    table.run(resume=True, accept_changes="input", **by_key)
    assert all(n >= 2000 for n in table.ran())
    numbers = [int(line) for line in table.published().split()]
    of_now = pd.concat(map(pd.read_csv, sorted(table.input.iterdir())))["n"].tolist()
    assert numbers == sorted(of_now, key=of_now.index)


WRITES = """
from pathlib import Path

def run(paths):
    for path in map(Path, paths):
        text = path.read_text()
        {deed}
    return paths
"""


def run_files(home: Path, deed: str) -> daskprs.ParallelRunResult:
    """Run a script over two files that does something to each."""
    for name in "ab":
        (home / "in").mkdir(exist_ok=True)
        (home / "in" / f"{name}.txt").write_text(name)
    (home / "script").mkdir()
    (home / "script" / "work.py").write_text(WRITES.format(deed=deed))
    return daskprs.parallel_run(
        str(home / "in"),
        home / "script" / "work.py",
        job_dir=home / "job",
        output_dir=home / "out",
        mini_batch_size=1,
        allowed_failed_count=-1,
        progress=False,
    )


@pytest.mark.parametrize(
    "deed",
    mostly_long(
        ["path.write_text(text + '!')", "path.write_text(''); raise ValueError(path)"],
        suite=["path.write_text(text + '!')"],
    ),
)
@pytest.mark.processes
def test_a_script_that_writes_into_its_files_fails_its_job(tmp_path: Path, deed: str) -> None:
    """At the first one, also where it raises by itself."""
    with pytest.raises(daskprs.ParallelRunFailed, match="INPUT_CHANGED") as caught:
        run_files(tmp_path, deed)
    assert isinstance(caught.value.result, daskprs.ParallelRunResult)
    attempts = pd.read_csv(tmp_path / "job/logs/sys/job_report/processed_mini-batches.csv")
    assert set(attempts["Status"]) == {"INPUT_CHANGED"}


@pytest.mark.parametrize("deed", ["path.with_suffix('.out').write_text(text)", "path.unlink()"])
def test_a_script_may_put_files_beside_its_own_and_take_its_own_away(
    tmp_path: Path, deed: str
) -> None:
    """Neither changes what the job was planned for."""
    assert run_files(tmp_path, deed).mini_batches == (2, 2, 0)
