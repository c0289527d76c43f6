"""``daskprs report``: how a job went, and why, from its folder alone."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import urllib.request
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._cli.live_page import LivePage
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._job import report_process
from daskprs._job.report import report_of, write_report
from daskprs._job.status import state_of
from daskprs._page.contents import Contents
from daskprs._page.html_page import page_of
from daskprs._page.pictures import main_picture
from daskprs._page.text import text_of
from daskprs.errors import JobFolderError, ParallelRunFailed
from tests.support.polling import poll_for

pytestmark = pytest.mark.usefixtures("inline")

SCRIPT = """
def run(rows):
    if 4 in set(rows["a"]):
        raise ValueError("<b>four</b>")
    return rows
"""
OPTIONS: dict[str, Any] = {"mini_batch_size": "2 rows", "job_dir": "job", "run_max_try": 2}
VOID = {"br", "hr", "meta"}


class Elements(HTMLParser):
    """The elements of a page: each is closed, and their addresses are known."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self.names.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element without content."""
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text += data


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a script that fails for one row."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text(SCRIPT)
    pd.DataFrame({"a": range(10)}).to_csv("in.csv", index=False)
    return tmp_path


def job() -> JobFolder:
    """Return the folder of the job."""
    return JobFolder("job")


def failed_job(**options: Any) -> None:
    """Run a job of which one mini-batch fails."""
    with pytest.raises(ParallelRunFailed):
        daskprs.parallel_run("in.csv", "score.py", **OPTIONS, **options)


def got(address: str) -> tuple[Any, str]:
    """Return the headers and the text of an answer."""
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - a server of this test
        return answer.headers, answer.read().decode()


def _break_off(address: str) -> None:
    """Ask for a page, and reset the connection instead of reading it."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port)) as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        browser.sendall(f"GET {parts.path} HTTP/1.1\r\n\r\n".encode())


def call(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, [*words], prog_name="daskprs")


def test_a_failed_job_says_why_and_how_to_run_it_again(work: Path) -> None:
    """The verdict comes first, then the error, the line of the script, and the command."""
    failed_job()
    text = text_of(report_of(job()))
    assert text.startswith(
        "score.py: Failed\n1 mini-batch failed, more than allowed_failed_count=0."
    )
    assert f"To go on: daskprs resume {work}/job\n" in text
    assert "First cause: ValueError: <b>four</b>\n  in mini-batch 2 (in.csv" in text
    assert '      raise ValueError("<b>four</b>")' in text
    assert f"To run it again: daskprs replay {work}/job --mini-batch 2" in text


def test_the_traceback_is_that_of_the_error_that_counts(work: Path) -> None:
    """The attempt before had another one, in the same process."""
    (work / "score.py").write_text(
        "tried = []\n\ndef run(rows):\n    if rows['a'].iloc[0] == 0:\n        tried.append(0)\n"
        "        raise [ValueError('the first'), KeyError('the last')][len(tried) - 1]\n"
        "    return rows\n"
    )
    failed_job(retry_delay=0.1)  # others succeed meanwhile, so that the process is kept
    text = text_of(report_of(job()))
    assert "First cause: KeyError: 'the last'\n" in text
    assert "  KeyError: 'the last'\nTo run it again" in text


def test_the_page_shows_the_same_and_loads_nothing() -> None:
    """What a script has said is text in it, and no element."""
    failed_job()
    page = page_of(report_of(job()))
    elements = Elements(page)
    assert not elements.addresses
    assert "b" not in elements.names
    assert "script" not in elements.names
    assert "default-src 'none'" in page
    for said in ("ValueError: <b>four</b>", "daskprs replay", "Throughput", "Slowest", "2 rows"):
        assert said in elements.text


def test_the_totals_are_those_of_the_journal(work: Path) -> None:
    """The attempts of a job with a retry are more than its mini-batches."""
    (work / "score.py").write_text(SCRIPT.replace("if 4", "import os\n    if 4"))
    result = daskprs.parallel_run("in.csv", "score.py", allowed_failed_count=1, **OPTIONS)
    contents, counts = report_of(job()), state_of(job()).mini_batches
    attempts = contents.figures.table.attempts
    assert contents.standing.planned == result.mini_batches.total == 5
    assert attempts.is_done.sum() == counts.succeeded == 4
    assert (attempts.is_final & ~attempts.is_done).sum() == counts.failed == 1
    assert contents.attempts_failed == 2
    assert attempts.items[attempts.is_done].sum() == result.items.succeeded == 8
    assert "2 items failed, which its limits allow." in contents.standing.verdict
    assert "retry-failed" in contents.standing.way_on


def test_the_text_moves_no_cursor(work: Path) -> None:
    """An error of a script has any characters."""
    (work / "score.py").write_text("def run(rows):\n    raise ValueError('\\x1b[2Jfour\\x07\\x9b')")
    failed_job()
    text = text_of(report_of(job()))
    assert "ValueError: four" in text
    assert not {"\x1b", "\x07", "\x9b"} & {*text}


def test_a_bad_row_is_named_with_the_command_that_runs_it_alone() -> None:
    """It is a cause of its own, beside the attempts that it has cost."""
    daskprs.parallel_run("in.csv", "score.py", on_error="isolate", **OPTIONS)
    contents = report_of(job())
    first = contents.causes[0]
    assert (first.error, first.given_up) == ("ValueError: <b>four</b>", 1)
    assert first.where == "row 4 of the input, in mini-batch 2"
    assert first.replay("daskprs replay job") == "daskprs replay job --mini-batch 2 --rows 0:1"
    assert "raise ValueError" in first.evidence
    # What is drawn over time is what was done.
    attempts = contents.figures.table.attempts
    assert attempts.items[attempts.is_done].sum() == contents.standing.items.succeeded == 9


def test_the_file_that_the_script_had_in_hand_is_named(work: Path) -> None:
    """Where its error does not say which of several it was."""
    names = ["a.json", "b.json", "c.json"]
    for name in names:
        (work / name).write_text("{" if name == "b.json" else "{}")
    text = (
        "import json\n"
        "from pathlib import Path\n"
        "def run(paths):\n"
        "    return [*map(read, paths)]\n"
        "def read(p):\n"
        "    return str(json.loads(Path(p).read_text()))\n"
    )
    (work / "read.py").write_text(text)
    with pytest.raises(ParallelRunFailed):
        daskprs.parallel_run(names, "read.py", mini_batch_size=3, job_dir="job")
    headline = report_of(job()).headline
    assert headline is not None
    assert headline.error.endswith(f". When it failed, p was '{work}/b.json'")


@pytest.mark.processes
def test_an_error_of_init_is_the_first_cause(work: Path) -> None:
    """No attempt has failed by it, and no mini-batch can be run again for it."""
    (work / "score.py").write_text(SCRIPT + "\ndef init():\n    raise KeyError('TOKEN')\n")
    failed_job(process_count_per_node=1)
    headline = report_of(job()).headline
    assert headline is not None
    assert headline.error == "KeyError: 'TOKEN'"
    assert headline.line.endswith("raise KeyError('TOKEN')")
    assert not headline.replay


@pytest.mark.processes
def test_a_process_that_died_is_shown_with_what_it_said_last(work: Path) -> None:
    """Its death is in the picture, and counted."""
    (work / "score.py").write_text(
        "import os, sys\n"
        "def run(rows):\n"
        "    if 4 in set(rows['a']):\n"
        "        print('out of cheese', file=sys.stderr, flush=True)\n"
        "        os._exit(9)\n"
        "    return rows\n"
    )
    failed_job(process_count_per_node=1)
    contents = report_of(job())
    assert contents.deaths >= 2
    assert contents.headline is not None
    assert "out of cheese" in contents.headline.evidence
    assert page_of(contents).count('title="a process died') >= 1


def test_a_job_that_runs_is_told_as_far_as_it_is() -> None:
    """Its last row may be half written."""
    failed_job()
    with job().attempts.open("ab") as file:
        file.write(b"9,1,0,process000,2026-01-01T00:00:00.000+00:00,2,2,0,0.1,0.1,0.1,RUN_DO")
    with locked(job()):
        contents = report_of(job())
        assert contents.standing.status == "Running"
        assert contents.standing.verdict.startswith("It has run for ")
        assert not contents.standing.way_on
        assert len(contents.figures.table.attempts.mini_batch) == 6


def test_a_job_whose_driver_was_killed_says_so() -> None:
    """Its journal has no end."""
    failed_job()
    journal = job().journal(1)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'["ended"' not in line))
    contents = report_of(job())
    assert contents.standing.status == "Died"
    assert "has gone without an end" in contents.standing.verdict
    assert "daskprs resume" in contents.standing.way_on


def test_the_pause_between_two_runs_is_not_in_the_pictures(work: Path) -> None:
    """The driver's log has the begin of each."""
    failed_job()
    today = re.compile(r"20[2-9]\d-\d\d-\d\d([T ]\d\d)")
    for path in (job().master_log, job().node_log(0), job().attempts):
        path.write_text(today.sub(r"2020-01-01\1", path.read_text()))
    (work / "score.py").write_text("def run(rows):\n    return rows\n")
    daskprs.parallel_run("in.csv", "score.py", resume=True, accept_changes="script", **OPTIONS)
    contents = report_of(job())
    worked = contents.figures.work
    assert len(worked.begins) == 2
    assert worked.length_s < 3600
    last = worked.at(contents.figures.table.attempts.ended).max()
    assert worked.joints[0] < last <= worked.length_s
    assert "<h2>Runs</h2>" in page_of(contents)


def test_a_job_whose_logs_are_gone_still_has_its_counts() -> None:
    """They are those of the journal."""
    failed_job()
    for path in (job().attempts, job().master_log, job().node_log(0), job().progress_table):
        path.unlink(missing_ok=True)
    text = text_of(report_of(job()))
    assert "of them done: " in text
    assert "mini-batches are done, 1 failed" in text
    Elements(page_of(report_of(job())))


def test_the_command_writes_the_page_or_shows_the_text() -> None:
    """The page may be written elsewhere, where the folder cannot be written to."""
    failed_job()
    assert call("report", "job").stdout == f"{job().report}\n"
    assert job().report.stat().st_size < 300_000
    assert "First cause" in call("report", "job", "--text").stdout
    assert call("report", "job", "--output", "else.html").stdout == "else.html\n"
    assert Path("else.html").read_text().startswith("<!doctype html>")
    refused = call("report", "nowhere")
    assert refused.exit_code == 2
    assert "no job has begun" in refused.stderr


def test_a_new_run_removes_the_page_of_the_last() -> None:
    """It would tell of an end that is none."""
    failed_job()
    write_report(job())
    failed_job(resume=True)
    assert not job().report.exists()


def test_a_page_of_an_earlier_run_is_not_written() -> None:
    """Another run has begun since, whose page would say that it runs for ever."""
    failed_job()
    with locked(job()):
        report_process._write(job())
    assert not job().report.exists()
    report_process._write(job())
    assert job().report.exists()


def test_the_first_cause_is_the_error_that_ended_the_job() -> None:
    """Another error may have the text of it within its own."""
    failed_job()
    found = report_of(job())
    other = replace(found.causes[0], error="KeyError: 'no <b>four</b>'", given_up=9)
    found.figures.table.causes.by_shape["KeyError", "another"] = other
    contents = Contents.of(job(), found.standing, found.figures)
    assert contents.causes[0].error == other.error
    assert contents.headline is not None
    assert contents.headline.error == "ValueError: <b>four</b>"


def test_a_page_that_cannot_be_written_names_its_path() -> None:
    """And not a part of it."""
    failed_job()
    refused = call("report", "job", "--output", "nowhere/page.html")
    assert refused.exit_code == 2
    assert "--output" in refused.stderr
    assert "nowhere/page.html" in refused.stderr
    assert ".part" not in refused.stderr
    job().report.unlink(missing_ok=True)
    job().report.mkdir()  # no user can write there, as on a read-only disk
    refused = call("report", "job")
    assert refused.exit_code == 2
    assert f"{job().report} cannot be written: Is a directory. " in refused.stderr
    assert "elsewhere by --output, or show the report here by --text." in refused.stderr


def test_a_table_in_the_terminal_keeps_its_columns(work: Path) -> None:
    """A long error is cut, the command is not."""
    (work / "score.py").write_text(SCRIPT.replace("<b>four</b>", "y" * 500))
    daskprs.parallel_run("in.csv", "score.py", on_error="isolate", **OPTIONS)
    lines = text_of(report_of(job())).splitlines()
    table = lines[lines.index("Failures by cause:") + 1 :]
    place = table[0].index("times")
    assert table[1][place - 1] == " "
    assert table[1][place].isdecimal()
    assert table[1].endswith("--rows 0:1")


def test_a_job_that_runs_over_files_counts_files(work: Path) -> None:
    """Before it has a result."""
    (work / "score.py").write_text("def run(files):\n    return files\n")
    (work / "files").mkdir()
    (work / "files" / "a.txt").write_text("a")
    daskprs.parallel_run("files", "score.py", job_dir="job", mini_batch_size=1)
    with locked(job()):
        assert "files done: 1" in text_of(report_of(job()))


def test_a_job_writes_its_page_after_its_end() -> None:
    """By a process of its own: the result does not wait for it."""
    failed_job(report="auto")
    assert poll_for(job().report.exists)
    assert poll_for(lambda: "daskprs-report" not in {one.name for one in threading.enumerate()})
    assert not [*job().own_errors.glob("*")]


@pytest.mark.parametrize(
    ("when", "elapsed_s", "fails", "is_written"),
    [
        ("auto", 1.0, False, False),
        ("auto", 10.0, False, True),
        ("auto", 1.0, True, True),
        ("always", 1.0, False, True),
        ("never", 10.0, True, False),
    ],
)
def test_the_option_says_which_jobs_have_a_page(
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    elapsed_s: float,
    fails: bool,  # noqa: FBT001 - a value of the table
    is_written: bool,  # noqa: FBT001
) -> None:
    """A short job that went well needs none."""
    started: list[list[str]] = []

    class Process:
        def __init__(self, words: list[str], **_: Any) -> None:
            started.append(words)

        def wait(self) -> int:
            return 0

    result = daskprs.parallel_run("in.csv", "score.py", allowed_failed_count=1, **OPTIONS)
    monkeypatch.setattr(report_process.subprocess, "Popen", Process)
    items = result.items if fails else result.items._replace(failed=0)
    ended = daskprs.ParallelRunResult.of(
        {**result.record(), "items": items, "elapsed_s": elapsed_s}
    )
    report_process.start_report(job(), when, ended)
    assert bool(started) == is_written


def test_the_page_of_status_keeps_up_with_the_job(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only who knows the token sees it, and a browser that goes away is no error."""
    monkeypatch.setattr("daskprs._cli.live_page.EVERY_S", 0.0)
    monkeypatch.setattr("daskprs._cli.live_page.PAUSE", 0)
    with pytest.raises(JobFolderError):
        LivePage(job())
    failed_job()
    with closing(LivePage(job())) as page:
        thread = threading.Thread(target=page.serve)
        thread.start()
        try:
            assert page.address.startswith("http://127.0.0.1:")
            headers, shown = got(page.address)
            assert headers["Cache-Control"] == "no-store"
            assert "Failed" in Elements(shown).text
            assert "connect-src 'self'" in shown
            with locked(job()):
                assert "Running" in Elements(got(page.address)[1]).text
            root = page.address.rstrip("/").rpartition("/")[0]
            for path in ("/", "/nothing/", "/../"):
                with pytest.raises(HTTPError, match="404"):
                    got(root + path)
            _break_off(page.address)
        finally:
            page.stop()
            thread.join()
    assert "Traceback" not in capfd.readouterr().err


def test_a_result_in_a_notebook_has_its_main_picture(work: Path) -> None:
    """A short job has none, and a result whose logs are gone is shown without it."""
    failed_job()
    picture = main_picture(job(), 20.0)
    assert "What the processes did" in Elements(picture).text
    assert not main_picture(job(), 5.0)
    job().attempts.write_text("nothing")
    assert "svg" not in main_picture(JobFolder(work / "gone"), 20.0)


def test_versions_are_in_the_log_and_in_the_report() -> None:
    """Those of the driver."""
    failed_job()
    assert f"daskprs {daskprs.__version__}" in report_of(job()).figures.record.versions
    assert json.loads(job().call.read_text())["options"]["run_max_try"] == 2
