"""What `run` prints: on the screen while the job runs, and by its mini-batch afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import daskprs
from daskprs._cli import main

SCRIPT = """
import os
import subprocess
import sys
import time
from pathlib import Path

print("imported")


def run(rows, context):
    number = context.minibatch_index
    print("rows", len(rows), "of", number)
    print("not quiet", file=sys.stderr)
    if number == 2:
        subprocess.run(["echo", "a program"], check=True)
        os.write(1, b"C code\\n")
        tried = Path(__file__).parents[2] / "tried"
        if not tried.exists():
            tried.touch()
            raise ValueError("not yet")
    if number == 3:
        print("unfinished", end="", flush=True)
        time.sleep(3600)
    return [] if number == 4 else rows
"""


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Return the command of a job over four mini-batches: one is retried, and one hangs."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(SCRIPT)
    (tmp_path / "table.csv").write_text("a\n1\n2\n3\n4\n")
    places = (str(tmp_path / "source" / "script.py"), str(tmp_path / "table.csv"))
    options = ("--mini-batch-size", "2", "--process-count-per-node", "2", "--run-max-try", "2")
    budgets = ("--allowed-failed-count", "1", "--run-invocation-timeout", "2")
    return ("run", *places, *options, *budgets, "--job-dir", str(tmp_path / "job"), "--quiet")


def test_output_is_shown_and_found_again(tmp_path: Path, job: tuple[str, ...]) -> None:
    """By mini-batch and attempt, with that of programs and C code, and of a run that was killed."""
    done = CliRunner().invoke(main, [*job, "--show-output"], prog_name="daskprs")
    assert done.exit_code == 0, done.output
    lines = done.stderr.splitlines()
    assert "[process000] imported" in lines
    assert lines.count("[mini-batch 2] rows 1 of 2") == 2  # its first attempt failed
    assert "[mini-batch 1] not quiet" in lines
    assert "[mini-batch 3] unfinished" in lines
    assert not [line for line in lines if "most recent call first" in line]
    result = daskprs.ParallelRun.of(tmp_path / "job").result()
    assert result.stdout(1) == "rows 1 of 1\n"
    assert result.stderr(1) == "not quiet\n"
    assert result.stdout(2) == "rows 1 of 2\na program\nC code\n"
    assert result.stdout(2, attempt=1) == result.stdout(2, attempt=2)
    assert result.stdout(3) == "rows 1 of 3\nunfinished"
    assert result.stderr(3) == "not quiet\n"
    with pytest.raises(daskprs.UsageError, match="mini-batch 2 has no attempt 3"):
        result.stdout(2, attempt=3)
    with pytest.raises(daskprs.UsageError, match="mini-batch 7 has no attempt that has ended"):
        result.stderr(7)
    for log in (result.logs_dir / "user" / "stdout" / "0").iterdir():
        log.unlink()
    with pytest.raises(daskprs.UsageError, match=r"process00.\.stdout\.txt is gone"):
        result.stdout(1)


@pytest.mark.parametrize(
    "stream",
    [
        "None",
        "type('Tee', (), {'write': lambda *_: 0})()",
        "os.dup2(os.open('elsewhere', os.O_RDWR | os.O_CREAT), 1) and sys.stdout",
    ],
)
def test_a_script_may_put_anything_in_the_place_of_its_streams(tmp_path: Path, stream: str) -> None:
    """The output of a mini-batch is unknown then; the job is not the worse for it."""
    script = tmp_path / "score.py"
    script.write_text(f"import os, sys\nsys.stdout = {stream}\ndef run(rows):\n    return rows\n")
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(4)}), script, job_dir=tmp_path / "job", progress=False
    )
    assert result.status == "Completed"
    with pytest.raises(daskprs.UsageError, match="is unknown, since the script has put"):
        result.stdout(0)


def test_output_that_goes_elsewhere_is_not_taken_for_none(tmp_path: Path) -> None:
    """Nor for that of another mini-batch: a script puts a file in the place of stdout, and back.

    The mask holds back what may be the beginning of a secret: that is of whoever wrote it.
    """

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        number = int(rows["n"].iloc[0])
        print("ends in sk-", end="")
        if number == 1:
            log = os.dup(1)
            file = os.open("elsewhere", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.set_inheritable(log, True)
            os.environ["LOG"] = str(log)
        elif number == 2:
            os.dup2(int(os.environ["LOG"]), 1)
        return rows

    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(4)}),
        run,
        mini_batch_size=8,
        process_count_per_node=1,
        environment_variables={"API_KEY": "sk-0123456789"},
        secrets=["API_KEY"],
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert [result.stdout(number) for number in (0, 3)] == ["ends in sk-"] * 2
    for number in (1, 2):
        for printed in (result.stdout, result.stderr):
            with pytest.raises(daskprs.UsageError, match=f"mini-batch {number} is unknown, since"):
                printed(number)


@pytest.mark.usefixtures("inline")
def test_output_is_found_by_the_numbers_of_an_input_that_has_grown(tmp_path: Path) -> None:
    """What has run before is in the logs under the number that it had then."""

    def run(paths: list[str]) -> list[str]:
        print("of", Path(paths[0]).stem)
        if paths[0].endswith("d.txt"):
            raise ValueError("no d")
        return paths

    def score(**options: Any) -> daskprs.ParallelRunResult:
        return daskprs.parallel_run(
            str(tmp_path / "in"),
            run,
            mini_batch_size=1,
            run_max_try=1,
            allowed_failed_count=1,
            job_dir=tmp_path / "job",
            progress=False,
            **options,
        )

    (tmp_path / "in").mkdir()
    for name in "bd":
        (tmp_path / "in" / f"{name}.txt").touch()
    score()
    for name in "ac":
        (tmp_path / "in" / f"{name}.txt").touch()
    result = score(resume="extend")
    assert [result.stdout(number) for number in range(4)] == [f"of {one}\n" for one in "abcd"]
    assert result.stdout(1, attempt=1) == "of b\n"
    with pytest.raises(daskprs.UsageError, match="mini-batch 1 has no attempt 2"):
        result.stdout(1, attempt=2)
    with pytest.raises(daskprs.UsageError, match="mini-batch 4 has no attempt that has ended"):
        result.stdout(4)
