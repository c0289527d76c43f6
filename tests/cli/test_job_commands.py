"""Commands that take a FOLDER: a job is gone on with, and looked at, by nothing but its folder."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from distributed import LocalCluster

import daskprs
from daskprs._cli import main
from daskprs._cluster.connect import IN_PROCESS
from daskprs._core.events import SlotsChanged
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._report.job_view import JobWatch
from daskprs._report.progress_file import ProgressFile
from tests.support.job_events import job_ended, job_started, slot, stood
from tests.support.polling import poll_for
from tests.support.terminal import Terminal

SCRIPT = """
from pathlib import Path

def run(paths):
    rows = []
    for path in map(Path, paths):
        if path.read_text() == "bad":
            raise ValueError(f"{path.name} is bad")
        rows.append(path.name)
    return rows
"""
MENDED = "def run(paths):\n    return ['mended']\n"
RUN = ("run", "source/script.py", "in", "--mini-batch-size", "1", "--job-dir", "job", "--quiet")
OPTIONS = ("--run-max-try", "1", "--process-count-per-node", "1")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a script, and three files the second of which is bad."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    for name, text in {"a": "fine", "b": "bad", "c": "fine"}.items():
        (tmp_path / "in" / name).write_text(text)
    return tmp_path


def call(*words: str) -> Result:
    """Call the command line as a shell would."""
    return CliRunner().invoke(main, words, prog_name="daskprs")


def output(work: Path) -> str:
    """Return what is published."""
    return (work / "job" / "output" / "parallel_run_step.txt").read_text()


SHOWING = [
    ("plan", "in", "--input-type", "files"),
    ("plan", "in", "--input-type", "files", "--json"),
    ("status", "job"),
    ("status", "job", "--json"),
    ("result", "job"),
    ("verify", "job", "--json"),
    ("logs", "job"),
    ("report", "job", "--text"),
    ("origin", "job", "--output-row", "0"),
    ("clean", ".", "--older-than", "0s", "--dry-run"),
]


def ends(monkeypatch: pytest.MonkeyPatch, stdout: Any, *words: str) -> Any:
    """Return the exit code of a command with this stdout."""
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as ended:
        main(words, prog_name="daskprs")
    return ended.value.code


def test_a_command_that_only_shows_says_that_it_could_not(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except to a reader who has read enough, such as `head`; one that removes has removed."""
    assert call(*RUN, "--start-method", "inline", "--allowed-failed-count", "1").exit_code == 0
    for words in SHOWING:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as unread:
            assert (words, ends(monkeypatch, unread, *words)) == (words, 141)
        assert capsys.readouterr().err == ""
        with Path("/dev/full").open("w") as full:
            assert (words, ends(monkeypatch, full, *words)) == (words, 74)
        assert capsys.readouterr().err.startswith("daskprs: stdout cannot be written: [Errno 28]")
    # Where nothing is held back, as by PYTHONUNBUFFERED, nothing is left to fail again.
    with Path("/dev/full").open("wb", buffering=0) as raw:
        full = io.TextIOWrapper(raw, write_through=True)
        assert ends(monkeypatch, full, "clean", ".", "--older-than", "0s") == 0
    assert capsys.readouterr().err.count("Nothing else has failed.\n") == 1
    assert not (work / "job").exists()


def test_the_result_of_a_moved_folder_names_the_new_place(work: Path) -> None:
    """What lay in it has moved with it, and other places stay."""
    words = (*RUN, "--start-method", "inline", "--allowed-failed-count", "1")
    assert call(*words, "--output", "out").exit_code == 0
    before = json.loads(call("result", "job", "--json").stdout)
    (work / "job").rename(work / "moved")
    shown = json.loads(call("result", "moved", "--json").stdout)
    changed = {name for name in before if shown[name] != before[name]}
    assert changed == {"logs_dir", "job_dir", "failed_file"}
    assert [shown[name] for name in ("job_dir", "logs_dir")] == [
        str(work / "moved"),
        str(work / "moved" / "logs"),
    ]
    assert Path(shown["failed_file"]).exists()


def test_an_output_in_the_job_folder_moves_with_it(work: Path) -> None:
    """A check of the moved folder finds it, and a resume takes it for its own."""
    words = (*RUN, "--start-method", "inline", "--allowed-failed-count", "1")
    assert call(*words).exit_code == 0
    (work / "job").rename(work / "moved")
    assert call("verify", "moved").exit_code == 0
    assert call("resume", "moved").exit_code == 0
    assert call("verify", "moved").exit_code == 0


def test_a_job_goes_on_from_any_folder(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths were relative ones; options that change no result may be others."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    (work / "elsewhere").mkdir()
    monkeypatch.chdir(work / "elsewhere")
    words = ("resume", "../job", "--allowed-failed-count", "1")
    (work / "job").chmod(0o775)
    refused = call(*words)  # others may have put another script into the job's records
    assert refused.exit_code == 2
    assert "may be written by other users. The folder says which script is run: " in refused.stderr
    assert f"{work / 'source' / 'script.py'}" in refused.stderr
    assert "by --trust" in refused.stderr
    done = call(*words, "--trust")
    assert done.exit_code == 0, done.output
    assert f"/job runs {work / 'source' / 'script.py'}" in done.stderr
    assert output(work) == "a\nc\n"
    assert "3 total, 2 succeeded, 1 failed" in done.stdout


def test_what_failed_is_run_by_a_mended_script_and_that_is_the_job_s_from_then_on(
    work: Path,
) -> None:
    """It may lie in another folder; the rows come in their places."""
    assert call(*RUN, *OPTIONS, "--allowed-failed-count", "1").exit_code == 0
    (work / "mended").mkdir()
    (work / "mended" / "new.py").write_text(MENDED)
    done = call("retry-failed", "job", "--script", "mended/new.py", "--quiet")
    assert done.exit_code == 0, done.output
    assert output(work) == "a\nmended\nc\n"
    assert json.loads((work / "job" / "job.json").read_text())["script"].endswith("new.py")
    assert call("resume", "job", "--quiet").exit_code == 0


def test_new_files_are_run_by_the_folder_alone(work: Path) -> None:
    """The call names the folder of the input, which has grown."""
    (work / "in" / "b").unlink()
    assert call(*RUN, *OPTIONS).exit_code == 0
    (work / "in" / "b").write_text("fine")
    refused = call("resume", "job", "--quiet")
    assert refused.exit_code == 2
    assert "run only what is new by --extend" in refused.stderr
    assert call("resume", "job", "--extend", "--quiet").exit_code == 0
    assert output(work) == "a\nb\nc\n"
    (work / "in" / "0").write_text("fine")
    assert call(*RUN, *OPTIONS, "--extend").exit_code == 0
    assert output(work) == "0\na\nb\nc\n"


def test_a_change_is_accepted_by_name(work: Path) -> None:
    """Options of the command line take lists with commas."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    (work / "source" / "script.py").write_text(MENDED)
    (work / "in" / "c").unlink()
    refused = call("resume", "job", "--quiet")
    assert refused.exit_code == 2
    assert "--accept-changes input,script" in refused.stderr
    done = call("resume", "job", "--quiet", "--accept-changes", "script,input")
    assert done.exit_code == 0, done.output
    assert output(work) == "a\nmended\n"


@pytest.mark.parametrize("command", ["resume", "retry-failed"])
def test_an_option_that_a_later_run_cannot_change_is_no_unknown_one(command: str) -> None:
    """A mended delimiter gives other rows, as a new job does."""
    refused = call(command, "job", "--delimiter", ";")
    assert refused.exit_code == 2
    assert "--delimiter: the job goes on with the value that it began with" in refused.stderr
    assert "Start a new job: daskprs run." in refused.stderr
    assert "No such option" in call(command, "job", "--delimitr", ";").stderr


COUNTING = "def run(paths, context):\n    context.count('calls')\n    return paths\n"


def test_the_told_command_goes_on_after_a_limit_or_a_deadline(work: Path) -> None:
    """Message and status have it: with the same limit, the job would end again at once."""
    (work / "source" / "script.py").write_text(COUNTING)
    of_job = ("--start-method", "inline", "--usage-limit", "calls=1", "--usage-limit", "other=5")
    ended = call(*RUN, *of_job)
    assert ended.exit_code == 75, ended.output
    counts = json.loads(call("status", "job", "--json").stdout)["mini_batches"]
    assert counts == {"total": 3, "succeeded": 1, "failed": 0}
    shown = call("status", "job").stdout
    assert "  why           it has used 1 of 1 calls, 0 of 5 other, and nothing more" in shown
    way = shown.partition("  to go on      daskprs ")[2].rstrip()
    assert way == f"resume {work / 'job'} --usage-limit calls=2 --usage-limit other=5"
    assert f"and a higher limit: daskprs {way}\n" in ended.stderr
    ended = call(*way.split(), "--quiet", "--deadline", "2001-01-31T06:30")
    assert "input, and a later deadline or none: daskprs resume" in ended.stderr
    assert (
        "why           nothing more fits before its deadline, 2001" in call("status", "job").stdout
    )
    assert call(*way.split(), "--quiet").exit_code == 75
    assert json.loads(call("status", "job", "--json").stdout)["mini_batches"]["succeeded"] == 2
    done = call("resume", "job", "--quiet", "--usage-limit", "calls=1e6", "--deadline", "1h")
    assert done.exit_code == 0, done.output


def test_a_job_goes_on_on_a_cluster_that_is_named(work: Path) -> None:
    """And not on the one that it was called with, which has gone."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    (work / "in" / "b").write_text("fine")
    with LocalCluster(threads_per_worker=1, **IN_PROCESS) as cluster:
        address = cluster.scheduler_address
        words = ("resume", "job", "--accept-changes", "input", "--scheduler", address, "--quiet")
        done = call(*words)
    assert done.exit_code == 0, done.output
    assert output(work) == "a\nb\nc\n"
    assert json.loads((work / "job" / "job.json").read_text())["client"] == address
    assert call("resume", "job", "--here", "--quiet").exit_code == 0


@pytest.mark.parametrize(
    ("data", "script", "options", "named"),
    [
        pytest.param(
            pd.DataFrame({"n": [1]}),
            "source/script.py",
            {},
            "data, a pandas",
            marks=pytest.mark.long,
        ),
        pytest.param("in", len, {}, "the script len", marks=pytest.mark.long),
        ("t.csv", "source/script.py", {"dtypes": {"n": int}}, "dtypes={'n': <class 'int'>}"),
    ],
    ids=["a frame", "a function", "an option"],
)
@pytest.mark.usefixtures("work")
def test_a_job_that_was_called_with_objects_goes_on_where_they_are(
    data: Any, script: Any, options: dict[str, Any], named: str
) -> None:
    """The message names them, and what to do."""
    Path("t.csv").write_text("n\n1\n")
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(data, script, job_dir="job", run_max_try=1, progress=False, **options)
    refused = call("resume", "job")
    assert refused.exit_code == 2
    assert f"what only its caller has: {named}" in refused.stderr
    assert re.search(r"parallel_run\(…, job_dir='.*job', resume=True\)", refused.stderr)
    assert call("status", "job").exit_code == 0


@pytest.mark.usefixtures("work")
def test_a_folder_without_a_job_is_refused() -> None:
    """By all of them."""
    for command in ("resume", "retry-failed", "status", "result"):
        refused = call(command, "in")
        assert refused.exit_code == 2
        assert re.search(r"no job .*in /.*in[:.]", refused.stderr), refused.stderr


def test_a_job_over_a_frame_goes_on_in_its_program(work: Path) -> None:
    """The command line has no frame: no command is advised that would be refused."""

    def fails(_: pd.DataFrame) -> None:
        raise ValueError

    rows = pd.DataFrame({"n": [1]})
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(rows, fails, job_dir="frames", run_max_try=1, progress=False)
    way = f"call parallel_run(…, job_dir='{work / 'frames'}', resume={{}}) in its program"
    assert f"to go on      {way.format(True)}\n" in call("status", "frames").stdout
    assert f"To go on, {way.format(True)}." in call("resume", "frames").stderr
    assert way.format("'failed'") in call("retry-failed", "frames").stderr
    (work / "frames" / "collection.txt").touch()
    assert "compute its lazy collection again" in call("status", "frames").stdout


def test_the_status_is_what_the_folder_tells(work: Path) -> None:
    """Failed, and how to go on; Running, and who is at work; Completed; and Died."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    shown = call("status", "job").stdout
    assert "<daskprs job Failed>" in shown
    assert re.search(r"mini-batches  \d done, 1 failed", shown)
    assert f"to go on      daskprs resume {work / 'job'}" in shown
    assert str(work / "job" / "failed.parquet") in shown
    with locked(JobFolder(work / "job")):
        shown = call("status", "job").stdout
        assert re.search(r"<daskprs job Running>(.|\n)*at work +process \d+ on ", shown)
        assert "to go on" not in shown
        none_yet = call("result", "job")
        assert none_yet.exit_code == 2
        assert "has no result: it is Running, by process" in none_yet.stderr
    done = call("resume", "job", "--allowed-failed-count", "1", "--quiet")
    assert (done.exit_code, done.stderr) == (0, "")
    shown = call("status", "job").stdout
    assert "<daskprs job Completed>" in shown
    assert f"  if mended     daskprs retry-failed {work / 'job'}" in shown
    assert "2 done, 1 failed" in shown
    assert "3 total, 2 succeeded, 1 failed" in shown
    assert str(work / "job" / "output" / "parallel_run_step.txt") in shown
    assert "to go on" not in shown
    journal = max((work / "job").glob("journal.*"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))  # as a driver leaves it that was killed
    assert "<daskprs job Completed>" in call("status", "job").stdout
    journal.write_bytes(b"".join(lines[:-4]))  # before it published
    shown = call("status", "job").stdout
    assert "<daskprs job Died>" in shown
    assert "daskprs resume" in shown
    none = call("result", "job")
    assert none.exit_code == 2
    assert f"died before it recorded one. To go on: daskprs resume {work / 'job'}" in none.stderr


def test_the_status_of_a_running_job_has_what_runs_now(work: Path) -> None:
    """In words, and as JSON; an old view is told from a new one."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    folder, watch = JobFolder(work / "job"), JobWatch()
    folder.progress_now.write_text("{}")  # of a driver that was killed
    file = ProgressFile(folder, watch)
    slots = (slot("idle", 9), slot("running", 50, 9, process=1))
    with locked(folder):
        assert json.loads(call("status", "job", "--json").stdout)["progress"] is None
        for event in (job_started(), SlotsChanged(1, 2), stood(4, 10, quiet_s=9, slots=slots)):
            watch.tell(event)
            file.tell(event)
        shown = call("status", "job").stdout
        assert "progress      4/10 mini-batches, 1 s" in shown
        assert "now           2 processes: 1 running, 1 idle" in shown
        what = "mini-batch 9 runs for 50 s on node 0 process001, timeout in 10 s, 2 tries left"
        assert shown.count(what) == 1
        record = json.loads(call("status", "job", "--json").stdout)
        assert record["status"] == "Running"
        assert record["progress"]["now"][0]["timeout_in_s"] == 10
        os.utime(folder.progress_now, (1, 1))
        assert "the driver has written nothing for" in call("status", "job").stdout
        file.tell(job_ended())
        assert not folder.progress_now.exists()
    state = json.loads(call("status", "job", "--json").stdout)
    assert (state["status"], state["progress"]) == ("Failed", None)
    assert state["result"]["status"] == "Failed"


def test_a_job_is_watched_until_it_ends(work: Path) -> None:
    """By a program that reads a line for each change, and by a person in a terminal."""
    command = [sys.executable, "-m", "daskprs"]
    goes_on = work / "goes-on"
    with (work / "source" / "script.py").open("a") as script:
        script.write(
            f"import os, time\nwhile not os.path.exists({str(goes_on)!r}): time.sleep(0.1)"
        )
    with subprocess.Popen([*command, *RUN, *OPTIONS], stderr=subprocess.DEVNULL) as job:
        assert poll_for(JobFolder(work / "job").progress_now.exists)
        watching = [*command, "status", "job", "--watch"]
        program = subprocess.Popen([*watching, "--json"], stdout=subprocess.PIPE, text=True)
        with program, Terminal(watching, 80) as terminal:
            terminal.read_until(lambda: "0/3 mini-batches" in terminal.said)
            assert program.stdout is not None
            first = program.stdout.readline()
            goes_on.touch()
            assert terminal.read_to_the_end() == 0
            lines = [json.loads(line) for line in (first, *program.communicate()[0].splitlines())]
    assert job.returncode == 42
    assert [line["status"] for line in lines] == ["Running"] * (len(lines) - 1) + ["Failed"]
    assert lines[0]["progress"]["mini_batches"]["planned"] == 3
    assert {line["mini_batches"]["total"] for line in lines} == {3}
    shown = "\n".join(terminal.screen.lines)
    assert "<daskprs job Failed>" in shown
    assert "mini-batches, " not in shown  # the live lines are gone


def test_the_result_is_that_of_the_run(work: Path) -> None:
    """With its exit code, as often as it is asked for."""
    failed = call(*RUN, *OPTIONS)
    assert failed.exit_code == 42
    again = call("result", "job")
    assert again.exit_code == 42
    assert "<daskprs job Failed>" in again.stdout
    done = call("resume", "job", "--allowed-failed-count", "1", "--quiet")
    assert call("result", "job").stdout == done.stdout
    assert call("result", "job").exit_code == 0
    assert output(work) == "a\nc\n"


def test_programs_get_the_result_as_json(work: Path) -> None:
    """With the exit code of the job; a job without a result has no JSON."""
    assert call(*RUN, *OPTIONS).exit_code == 42
    failed = call("result", "job", "--json")
    assert failed.exit_code == 42
    shown = json.loads(failed.stdout)
    assert shown["status"] == "Failed"
    assert shown["output_file"] is None
    assert shown["mini_batches"]["failed"] == 1
    assert shown["failed_file"] == str(work / "job" / "failed.parquet")
    with locked(JobFolder(work / "job")):
        none_yet = call("result", "job", "--json")
    assert (none_yet.exit_code, none_yet.stdout) == (2, "")
