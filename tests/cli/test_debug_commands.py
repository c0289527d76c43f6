"""``daskprs debug``: one mini-batch in this process, with a debugger in a terminal."""

from __future__ import annotations

import pdb  # noqa: T100 - what is tested
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._cli.debug_commands import show_ran
from daskprs._core.ending import Ending, JobStatus
from daskprs._core.outcomes import Failure
from daskprs._job.one_mini_batch import Ran
from daskprs.errors import ParallelRunFailed
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import os, sys
from daskprs import EntryScript

def init():
    global factor
    factor = int(sys.argv[-1])

def run(rows, context):
    assert os.environ["TOKEN"] == "secret-value"
    share = 1 // int((rows["a"] != 7).min()) if os.environ.get("FAILS") else 1
    return rows.assign(b=rows["a"] * factor, n=context.minibatch_index)
"""
STOPS = """
def run(rows):
    if 7 in set(rows["a"]):
        breakpoint()
    return rows
"""
WORDS = ("in.csv", "--mini-batch-size", "8 B")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with scripts, and a table of 20 rows in several mini-batches."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text(SCRIPT)
    (tmp_path / "stops.py").write_text(STOPS)
    pd.DataFrame({"a": range(20)}).to_csv("in.csv", index=False)
    monkeypatch.setenv("TOKEN", "secret-value")
    return tmp_path


def call(*words: str) -> Result:
    """Call the command as a shell would, without a terminal."""
    return CliRunner().invoke(main, words, prog_name="daskprs")


def debug(*words: str) -> Result:
    """Run one mini-batch of the script."""
    return call("debug", "score.py", *WORDS, "--secret", "TOKEN", *words, "--", "3")


def listed(folder: Path) -> list[str]:
    """Return all that lies in a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("which", "number"),
    [((), 0), (("--mini-batch", "2"), 2), (("--row", "7"), None)],
)
def test_one_mini_batch_runs_and_nothing_is_written(
    work: Path, which: tuple[str, ...], number: int | None
) -> None:
    """It has its own number, rows, arguments and environment; the rows are shown."""
    before = listed(work)
    done = debug(*which, "--output", "made.parquet")
    assert done.exit_code == 0, done.output
    header, *lines = done.stdout.strip().splitlines()
    assert header.split() == ["a", "b", "n"]
    rows = [tuple(map(int, line.split())) for line in lines]
    assert all(b == 3 * a for a, b, _ in rows)
    assert len({n for *_, n in rows}) == 1
    assert number in (None, rows[0][2])
    assert number is not None or 7 in [a for a, *_ in rows]
    assert listed(work) == before


def test_an_error_is_shown_as_python_shows_it(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal no debugger opens; the exit code is that of a failed job."""
    monkeypatch.setenv("FAILS", "1")
    monkeypatch.setattr(pdb, "post_mortem", lambda _: pytest.fail("there is no terminal"))
    done = debug("--row", "7")
    assert done.exit_code == 42
    assert "Traceback (most recent call last):" in done.stderr
    assert f'File "{work}/score.py", line 11, in run' in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["Broken", "pictures.Broken"])
def test_an_error_of_which_more_is_known_is_shown_once(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """With what is known of it."""
    above = 'Traceback (most recent call last):\n  File "a.py", line 3, in run\n'
    told = "no picture. When it failed, file was 'b.png'."
    failure = Failure("Broken", told, f"{above}{name}: no picture\n")
    show_ran(Ran(None, None, Ending(JobStatus.FAILED, "it failed", failure), ""))
    assert capsys.readouterr().err == f"{above}Broken: {told}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--mini-batch", "99"), "there is no such mini-batch: they are 0 to "),
        (("--row", "-1"), "-1 is not in the range x>=0"),
        (("--row", "20"), "the input has 20 rows, numbered from 0"),
        (("--row", "1", "--mini-batch", "1"), "give one of them"),
    ],
)
@pytest.mark.usefixtures("work")
def test_what_is_not_there_is_refused(words: tuple[str, ...], told: str) -> None:
    """Nothing has started then."""
    done = debug(*words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("work")
def test_an_exception_opens_the_debugger_in_a_terminal() -> None:
    """Where it was raised, with the variables of the script; `q` ends with the exit code."""
    command = [sys.executable, "-m", "daskprs", "debug", "score.py", *WORDS, "--row", "7"]
    command += ["--secret", "TOKEN", "--", "3"]
    with Terminal(command, 200, FAILS="1") as terminal:
        terminal.read_until(lambda: "(Pdb)" in terminal.said)
        terminal.type(b"p 'rows', rows['a'].tolist(), factor\n")
        terminal.read_until(lambda: terminal.said.count("(Pdb)") == 2)
        terminal.type(b"q\n")
        assert terminal.read_to_the_end() == 42
    found = re.search(r"\('rows', \[([\d, ]+)\], 3\)", terminal.said)
    assert found, terminal.said
    assert "7" in found[1].split(", "), terminal.said


def test_a_breakpoint_in_an_agent_names_what_leads_to_it(work: Path) -> None:
    """It fails in its first try, and the command that it names stops at this line."""
    job = subprocess.run(
        [
            *(sys.executable, "-m", "daskprs", "run", "stops.py", *WORDS, "--quiet"),
            *("--process-count-per-node", "1", "--job-dir", "job"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 42
    found = re.search(r"To stop there: daskprs (debug --mini-batch \d+ .*)", job.stderr)
    assert found, job.stderr
    words = shlex.split(found[1])
    assert words[3:5] == [str(work / "stops.py"), str(work / "in.csv")]
    attempts = (work / "job/logs/sys/job_report/processed_mini-batches.csv").read_text()
    assert attempts.count("RUN_EXCEPTION") == 1
    with Terminal([sys.executable, "-m", "daskprs", *words], 200) as terminal:
        terminal.read_until(lambda: "(Pdb)" in terminal.said)
        terminal.type(b"p 'seven is', 7 in set(rows['a'])\n")
        terminal.read_until(lambda: "('seven is', True)" in terminal.said)
        terminal.type(b"c\n")
        assert terminal.read_to_the_end() == 0


def test_a_program_has_the_exception_of_its_script() -> None:
    """With the frames of the script: `%debug` of a notebook goes there."""

    def run(rows: pd.DataFrame) -> Any:
        share = 1 // int(rows["a"].iloc[0] - 1)
        return rows.assign(share=share)

    data = pd.DataFrame({"a": range(3)})
    with pytest.raises(ParallelRunFailed) as caught:
        daskprs.parallel_run(
            data, run, mini_batch_size=1, start_method="inline", progress=False, run_max_try=1
        )
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    last = cause.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    assert last
    assert last.tb_frame.f_locals["rows"]["a"].tolist() == [1]
