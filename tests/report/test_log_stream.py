"""``daskprs logs``: the logs of a job as one stream in the order of time."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._agent.foreign.entry_script import EntryScript
from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._report import log_stream
from daskprs._report.attempts import COLUMNS
from daskprs._report.log_stream import LogStream, Wanted
from daskprs._system import log_cap
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """
import sys
from daskprs import EntryScript

print("imported")

def run(rows):
    print("rows", *rows["a"])
    print("to stderr", rows["a"][0], file=sys.stderr)
    EntryScript().logger.info("logged %s\\nin two lines", rows["a"][0])
    if 4 in set(rows["a"]):
        raise ValueError("four")
    return rows
"""
WAITS = """
import pathlib, time

def run(rows):
    print("rows", *rows["a"], flush=True)
    while 3 in set(rows["a"]) and not pathlib.Path({go!r}).exists():
        time.sleep(0.02)
    return rows
"""
CALLS = """
import asyncio
from daskprs import EntryScript

begun = []

async def run(rows):
    number = int(rows["a"].iloc[0])
    EntryScript().logger.info("begins %s", number)
    begun.append(number)
    while len(begun) < 9:
        await asyncio.sleep(0.01)
    EntryScript().logger.info("goes on %s", number)
    if number == 4:
        raise ValueError("four")
    return rows
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a table of nine rows."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"a": range(9)}).to_csv("in.csv", index=False)
    return tmp_path


@pytest.fixture
def failed(work: Path, inline: None) -> Path:
    """Return a working directory with a job of which one mini-batch failed, twice."""
    del inline
    (work / "score.py").write_text(SCRIPT)
    daskprs.parallel_run(
        "in.csv",
        "score.py",
        mini_batch_size="3 rows",
        run_max_try=2,
        allowed_failed_count=1,
        job_dir="job",
        output="scored.csv",
    )
    return work


def call(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, ["logs", "job", *words], prog_name="daskprs")


def lines(*words: str) -> list[str]:
    """Return what the command shows."""
    done = call(*words)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def told(shown: list[str]) -> list[str]:
    """Return lines without their times, and without their writers."""
    return [line[37:].partition(" ")[0] + " " + line[45:] for line in shown]


@pytest.mark.usefixtures("failed")
def test_all_logs_are_one_stream_in_the_order_of_time() -> None:
    """Each line has a time, and each log has its lines."""
    shown = lines()
    times = [line[:23] for line in shown]
    assert times == sorted(times)
    assert all(pd.Timestamp(one) for one in times)
    text = "\n".join(told(shown))
    for one in (
        "stdout rows 0 1 2\n",
        "stderr to stderr 6\n",
        "logger in two lines\n",
        "error ValueError: four\n",
        "attempt mini-batch 2, attempt 1, RUN_DONE, ",
        "option run_max_try=2\n",
    ):
        assert one in text
    assert text.count("stdout rows ") == 4
    first, last = text.index("stdout rows 0 1 2"), text.index("attempt mini-batch 0, attempt 1")
    assert first < text.index("stderr to stderr 0") < last


@pytest.mark.usefixtures("failed")
def test_what_belongs_to_failed_attempts() -> None:
    """Their errors, and what they have printed and logged; nothing of others."""
    shown = told(lines("--failed"))
    assert [one for one in shown if one.startswith("std")] == [
        *("stdout rows 3 4 5", "stderr to stderr 3") * 2
    ]
    assert shown.count("error ValueError: four") == 2
    assert sum("|logged 3" in one for one in shown) == 2
    assert not any("logged 0" in one or "RUN_DONE" in one for one in shown)
    assert told(lines("--failed", "--grep", "to stderr")) == ["stderr to stderr 3"] * 2


@pytest.mark.usefixtures("failed")
def test_what_is_about_a_mini_batch_or_of_a_process() -> None:
    """Also what the driver says of it; an entry is shown as a whole."""
    shown = told(lines("--mini-batch", "1"))
    assert any(one.startswith("log DEBUG|") and "attempt 2" in one for one in shown)
    assert shown.count("stdout rows 3 4 5") == 2
    assert not any("rows 0" in one or "rows 6" in one for one in shown)
    (process,) = {line.split()[2] for line in lines("--grep", "rows 0")}
    assert lines("--process", process) == lines("--process", process.partition("/")[2])
    assert {line.split()[2] for line in lines("--process", "driver")} == {"driver"}
    logged = told(lines("--grep", "logged 6"))
    assert logged[1] == "logger in two lines"
    none = call("--grep", "nothing like this")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "the logs have nothing of that" in none.stderr
    refused = call("--mini-batch", "99")
    assert refused.exit_code == 2
    assert "--mini-batch 99: there is no such mini-batch: they are 0 to 2." in refused.stderr
    refused = call("--process", "process9")
    assert refused.exit_code == 2
    assert (
        f"--process process9: there is no log of it: the job has logs of driver and of {process}"
        in (refused.stderr)
    )


@pytest.mark.usefixtures("inline")
def test_mini_batches_without_rows_have_numbers_that_are_shown(work: Path) -> None:
    """They count nowhere, so that numbers go beyond the count of all mini-batches."""
    (work / "gaps.csv").write_text("a\n1\n" + "\n" * 40 + "2\n")
    (work / "score.py").write_text("def run(rows):\n    return rows\n")
    result = daskprs.parallel_run("gaps.csv", "score.py", mini_batch_size="4 B", job_dir="job")
    assert result.mini_batches.total == 2
    assert any("mini-batch 10, attempt 1, RUN_DONE" in one for one in lines("--mini-batch", "10"))


@pytest.mark.usefixtures("work")
def test_a_folder_without_a_job_is_refused() -> None:
    """As other commands do it."""
    refused = call()
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_the_logs_of_a_running_job_are_followed_until_its_end(work: Path) -> None:
    """What was printed is shown while the job runs; the command ends with the job."""
    go = work / "go"
    (work / "waits.py").write_text(WAITS.format(go=str(go)))
    program = [sys.executable, "-m", "daskprs"]
    words = ["--mini-batch-size", "3 rows", "--job-dir", "job", "--quiet"]
    with subprocess.Popen([*program, "run", "waits.py", "in.csv", *words]) as job:
        assert poll_for((work / "job" / "logs" / "sys" / "master_role.txt").exists, 60)
        follow = [*program, "logs", "job", "--follow"]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as shown:
            assert shown.stdout is not None
            seen = next(line for line in shown.stdout if line.endswith("stdout  rows 3 4 5\n"))
            assert job.poll() is None
            go.touch()
            rest = shown.stdout.read()
        assert (job.wait(), shown.returncode) == (0, 0)
    assert seen[:4] >= "2026"
    assert "job Completed\n" in rest


def table(folder: JobFolder, *rows: tuple[int, str, str, list[int] | None]) -> None:
    """Write a table of attempts: number, time, status, and the range of stdout."""
    folder.attempts.parent.mkdir(parents=True, exist_ok=True)
    with folder.attempts.open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        for number, started, status, part in rows:
            known = "null" if part is None else str(part)
            detail = f'{{""run"": 1, ""stdout"": {known}}}'
            file.write(
                f"{number},1,0,process000,2027-01-15T08:00:{started}+00:00,1,1,0,0.5,0.1,0.1,{status}"
                f',,,"{detail}"\n'
            )


def printed(folder: JobFolder, text: str) -> None:
    """Append to the stdout of a process."""
    log = folder.stdout(0, "process000")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(text)


def texts(entries: Iterator[log_stream.LogEntry]) -> list[tuple[int | None, str]]:
    """Return mini-batches and texts."""
    return [(one.mini_batch, one.text) for one in entries]


def test_printed_text_that_grows(tmp_path: Path) -> None:
    """A line is shown when it is whole; of failed attempts, when its attempt is known."""
    folder = JobFolder(tmp_path / "job")
    everything, of_failed = LogStream(folder), LogStream(folder, Wanted(failed=True))
    printed(folder, "one\ntw")
    assert texts(everything.new(is_last=False)) == [(None, "one")]
    assert texts(of_failed.new(is_last=False)) == []
    printed(folder, "o\nthree\n")
    assert texts(everything.new(is_last=False)) == [(None, "two"), (None, "three")]
    table(folder, (7, "00.000", "RUN_DONE", [0, 4]), (8, "01.000", "RUN_EXCEPTION", [4, 8]))
    assert texts(of_failed.new(is_last=False)) == [(8, "two")]
    printed(folder, "end")
    assert texts(everything.new(is_last=True)) == [(None, "end")]
    assert texts(of_failed.new(is_last=True)) == []
    (first, *_) = LogStream(folder).new(is_last=True)
    assert (first.time, first.who) == ("2027-01-15 08:00:00.000", "0/process000")


def test_text_behind_what_was_cut_keeps_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the places from before the cut."""
    monkeypatch.setattr(log_stream, "LIMIT_BYTES", 16)
    folder = JobFolder(tmp_path / "job")
    printed(folder, "first.\n" + "x" * 50 + "\nlast..\n")
    table(folder, (1, "00.000", "RUN_DONE", [0, 7]), (2, "01.000", "RUN_DONE", [58, 65]))
    log_cap.cut(str(folder.stdout(0, "process000")), 16)
    shown = texts(LogStream(folder).new(is_last=True))
    assert shown[0] == (1, "first.")
    assert shown[-1] == (2, "last..")
    assert any("bytes were cut here" in text for _, text in shown)


def test_lines_that_name_their_mini_batch(tmp_path: Path) -> None:
    """A process that has several at a time marks its lines, since ranges would overlap."""
    folder = JobFolder(tmp_path / "job")
    printed(folder, "[3] a\n[4] b\n[3] c\n")
    table(folder, (3, "00.000", "RUN_EXCEPTION", None), (4, "00.100", "RUN_DONE", None))
    shown = texts(LogStream(folder, Wanted(failed=True)).new(is_last=True))
    assert shown == [(3, "[3] a"), (3, "[3] c")]


def test_a_mini_batch_that_was_tried_again_in_a_process_with_several_at_a_time(
    tmp_path: Path,
) -> None:
    """Its lines name no attempt: what the failed one has printed is not left out."""
    folder = JobFolder(tmp_path / "job")
    printed(folder, "[3] why it fails\n[4] b\n[3] all is well\n")
    table(
        folder,
        (3, "00.000", "RUN_EXCEPTION", None),
        (4, "00.100", "RUN_DONE", None),
        (3, "00.200", "RUN_DONE", None),
    )
    shown = texts(LogStream(folder, Wanted(failed=True)).new(is_last=True))
    assert shown == [(3, "[3] why it fails"), (3, "[3] all is well")]


def test_a_line_that_two_attempts_have_written_is_shown_in_parts(tmp_path: Path) -> None:
    """The first has printed no line feed at its end, as progress bars do."""
    folder = JobFolder(tmp_path / "job")
    of_failed = LogStream(folder, Wanted(failed=True))
    printed(folder, "of init, one: 100 %two\nthree")
    table(folder, (1, "00.000", "RUN_DONE", [9, 19]))
    assert texts(of_failed.new(is_last=False)) == []  # what it will be of is not known yet
    table(
        folder,
        (1, "00.000", "RUN_DONE", [9, 19]),
        (2, "01.000", "RUN_EXCEPTION", [19, 28]),
    )
    shown = list(LogStream(folder).new(is_last=True))
    assert texts(iter(shown)) == [(None, "of init,"), (1, "one: 100 %"), (2, "two"), (2, "three")]
    assert [one.time[-6:] for one in shown] == ["00.000", "00.000", "01.000", "01.000"]
    assert texts(of_failed.new(is_last=True)) == [(2, "two"), (2, "three")]


def test_attempts_of_a_process_are_in_the_order_of_their_ends(tmp_path: Path) -> None:
    """The driver writes those that failed after those of the same lease that succeeded."""
    folder = JobFolder(tmp_path / "job")
    log = folder.process_log(0, "process000")
    log.parent.mkdir(parents=True)
    log.write_text(
        "2027-01-15 08:00:00.000|host|9|mini-batch 1|attempt 1|RUN_DONE|elapsed 0.1|\n"
        "2027-01-15 08:00:00.500|host|9|mini-batch 3|attempt 1|RUN_DONE|elapsed 0.1|\n"
        "2027-01-15 08:00:00.100|host|9|mini-batch 2|attempt 1|RUN_EXCEPTION|elapsed 0.3|\n"
    )
    shown = [one.mini_batch for one in LogStream(folder).new(is_last=True)]
    assert shown == [1, 2, 3]


def test_a_line_just_before_the_next_attempt_is_of_the_one_that_wrote_it(tmp_path: Path) -> None:
    """The last line before an error, and the next attempt, may be of one millisecond."""
    folder = JobFolder(tmp_path / "job")
    log = folder.entry_script_log(0, "process000")
    log.parent.mkdir(parents=True)
    log.write_text(
        "2027-01-15 08:00:00,123400|INFO|9|why it fails\n"
        "2027-01-15 08:00:00,123700|INFO|9|all is well\n"
    )
    table(folder, (3, "00.100000", "RUN_EXCEPTION", None), (4, "00.123600", "RUN_DONE", None))
    shown = list(LogStream(folder, Wanted(failed=True)).new(is_last=True))
    assert [(one.time, one.mini_batch, one.text) for one in shown] == [
        ("2027-01-15 08:00:00.123", 3, "INFO|9|why it fails")
    ]


def test_a_line_just_after_an_attempt_is_not_of_it(tmp_path: Path) -> None:
    """What a process of preprocess has done well is in the table under the process of run."""
    folder = JobFolder(tmp_path / "job")
    log = folder.entry_script_log(0, "process000")
    log.parent.mkdir(parents=True)
    log.write_text(
        "2027-01-15 08:00:00,599900|INFO|9|why it fails\n"
        "2027-01-15 08:00:00,600400|INFO|9|all is well\n"
    )
    table(folder, (3, "00.100000", "RUN_EXCEPTION", None))
    shown = [(one.mini_batch, one.is_failed) for one in LogStream(folder).new(is_last=True)]
    assert shown == [(3, True), (None, False)]


@pytest.mark.processes
def test_the_logger_of_a_process_with_several_mini_batches_at_a_time(work: Path) -> None:
    """Each line is of the mini-batch whose call has written it."""
    (work / "calls.py").write_text(CALLS)
    daskprs.parallel_run(
        "in.csv",
        "calls.py",
        mini_batch_size="1 row",
        process_count_per_node=1,
        concurrency_per_process=9,
        run_max_try=1,
        allowed_failed_count=-1,
        job_dir="job",
        progress=False,
    )
    for number in ("3", "4"):
        of_it = [one for one in told(lines("--mini-batch", number)) if one.startswith("logger")]
        assert [one.rpartition("|")[2] for one in of_it] == [
            f"[{number}] begins {number}",
            f"[{number}] goes on {number}",
        ]
    of_failed = [one for one in told(lines("--failed")) if one.startswith("logger")]
    assert [one[-1] for one in of_failed] == ["4", "4"]


def test_the_logger_of_a_script_writes_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all other logs, so that their lines can be put in order."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        handler = logging.FileHandler(tmp_path / "log.txt")
        EntryScript()._log_to(handler, "INFO", str)
        record = logging.LogRecord("entry_script", logging.INFO, "", 1, "told", (), None)
        record.created, record.msecs = 0.0, 0.0
        assert handler.format(record).startswith("1970-01-01 00:00:00,000000|INFO|")
    finally:
        logging.getLogger("entry_script").handlers.clear()
        handler.close()
        monkeypatch.undo()
        time.tzset()
