"""The rest of the log folder: what each file holds, and under which columns."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from daskprs._core.ending import JobStatus
from daskprs._core.events import AgentChanged, MessageLogged, OutputPublished, SlotsChanged
from daskprs._core.lease import AgentExited, AgentReady, AgentStarted, InitFailed
from daskprs._core.outcomes import Failure
from daskprs._report.attempts import sentence_about
from daskprs._report.job_logs import Overview
from daskprs._report.job_view import JobWatch
from daskprs._report.listeners import Listeners, listeners_of
from daskprs._report.log_files import LogFiles
from tests.support.job_events import HERE, attempt, job_ended, job_started, slot, stood

if TYPE_CHECKING:
    from daskprs._core.events import Event
    from daskprs._core.lease import AgentEvent
    from daskprs._folders.job_folder import JobFolder

BAD = Failure("ValueError", "bad", "Traceback (most recent call last):\nValueError: bad\n")


def job(folder: JobFolder, *events: Event) -> None:
    """Tell the listeners of a job its events, and let them finish."""
    listeners = Listeners(listeners_of(folder, progress=False), folder)
    for event in events:
        listeners.tell(event)
    listeners.close()
    assert not folder.own_errors.exists()


def test_the_readme_names_every_log_there_is(folder: JobFolder) -> None:
    """Whoever opens the folder first finds the rest from there."""
    other = HERE._replace(node=1)
    job(folder, job_started(), stood(), attempt(0, BAD), attempt(0, place=other), job_ended())
    readme = folder.readme.read_text()
    patterns = {
        r"node/\d/_main": "<node>/_main",
        r"/\d/process\d+": "/<node>/<process>",
        r"\.\d{8}\.": ".<day>.",
    }
    for path in set(folder.logs.rglob("*.*")) - {folder.readme}:
        name = str(path.relative_to(folder.path))
        for found, written in patterns.items():
            name = re.sub(found, written, name)
        assert name in readme or path.name in readme, name


def test_the_driver_log_has_time_level_process_thread_and_message(folder: JobFolder) -> None:
    """One line each."""
    job(
        folder,
        job_started(options={"run_max_try": 1}),
        SlotsChanged(2, 8),
        MessageLogged("warning", "the disk is slow"),
        OutputPublished("/out/file.txt", 12),
        job_ended(),
    )
    lines = [line.split("|") for line in folder.master_log.read_text().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", line[0]) for line in lines)
    assert {tuple(line[2:4]) for line in lines} == {
        (str(os.getpid()), threading.current_thread().name)
    }
    assert [(line[1], line[4]) for line in lines] == [
        ("INFO", "job 1a2b starts: score.py"),
        ("INFO", "option run_max_try=1"),
        ("INFO", "2 nodes, 8 slots"),
        ("WARNING", "the disk is slow"),
        ("INFO", "published /out/file.txt, 12 bytes"),
        ("INFO", "job Completed"),
    ]


def test_values_of_environment_variables_are_not_logged(folder: JobFolder) -> None:
    """Log folders are passed on, and values may be tokens."""
    variables = {"STORE_TOKEN": "hush"}
    job(folder, job_started(options={"environment_variables": variables}))
    text = folder.master_log.read_text()
    assert "STORE_TOKEN" in text
    assert "hush" not in text


def test_a_process_has_a_line_for_each_attempt(folder: JobFolder) -> None:
    """With its place, its counts and its seconds."""
    job(folder, attempt(7), attempt(8, BAD))
    log = folder.process_log(0, "process000").read_text().splitlines()
    assert log[0] == (
        "2027-01-15 08:00:00.250|host|41|mini-batch 7|attempt 1|RUN_DONE|total 2|succeeded 2|"
        "failed 0|elapsed 0.500000|cpu 0.125000|run 0.250000|peak MB 300.0"
    )
    assert "|RUN_EXCEPTION|total 2|succeeded 0|failed 2|" in log[1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (AgentStarted("process001", 7), "process001 started, pid 7"),
        (AgentReady("process001", 0.5), "process001 ready after 0.500 s"),
        (
            InitFailed("process001", BAD, 0.5),
            "process001 failed in import or init() after 0.500 s: ValueError: bad",
        ),
        (
            AgentExited("process001", 0, "stopped", True),
            "process001 exits with returncode 0: stopped",
        ),
        (
            AgentExited("process001", -9, "run() exceeded 2 s", False),
            "process001 exits with returncode -9 (SIGKILL): run() exceeded 2 s",
        ),
        (
            AgentExited("process001", -44, "odd", False),
            "process001 exits with returncode -44 (signal 44): odd",
        ),
        (
            AgentExited("process001", -11, "process001 exits with returncode -11 (SIGSEGV)", False),
            "process001 exits with returncode -11 (SIGSEGV)",
        ),
        (
            AgentExited("process001", 0, "stopped", True, BAD),
            "process001 exits with returncode 0: stopped; ValueError: bad",
        ),
    ],
)
def test_a_node_tells_what_became_of_its_processes(change: AgentEvent, text: str) -> None:
    """The return code with the name of its signal, once."""
    assert sentence_about(change) == text


def test_summaries_add_up_what_each_process_and_node_did(folder: JobFolder) -> None:
    """Each under its columns."""
    second = HERE._replace(process="process001", pid=42)
    far = HERE._replace(node=1, host="far")
    unknown = HERE._replace(process="process001", pid=0, host="")
    job(
        folder,
        AgentChanged(HERE, AgentReady("process000", 0.5)),
        attempt(1),
        attempt(2),
        attempt(3, BAD),
        attempt(3, place=second),
        attempt(4, place=far),
        AgentChanged(HERE, AgentExited("process000", -9, "killed\nlong story", False)),
        AgentChanged(unknown, AgentExited("process001", 0, "stopped", True)),
        job_ended(),
    )
    header, *rows = folder.process_summary.read_text().splitlines()
    assert header == (
        "Node Id,Process,Host,Pid,Mini-batches Succeeded,Attempts Failed,Items,Items Succeeded,"
        "Elapsed Seconds,Process Seconds,Run Method Seconds,Init Seconds,Return Code,Reason,"
        "Peak Memory (MB),Usage"
    )
    assert rows == [
        "0,process000,host,41,2,1,4,4,1.500000,0.375000,0.750000,0.500000,-9,killed,300.0,",
        "0,process001,host,42,1,0,2,2,0.500000,0.125000,0.250000,,0,stopped,300.0,",
        "1,process000,far,41,1,0,2,2,0.500000,0.125000,0.250000,,,,300.0,",
    ]
    header, *rows = folder.node_summary.read_text().splitlines()
    assert header == (
        "Node Id,Host,Processes,Processes Died,Mini-batches Succeeded,Attempts Failed,Items,"
        "Items Succeeded,Elapsed Seconds,Process Seconds,Run Method Seconds,Peak Memory (MB)"
    )
    assert rows == [
        "0,host,2,1,3,1,6,6,2.000000,0.500000,1.000000,300.0",
        "1,far,1,0,1,0,2,2,0.500000,0.125000,0.250000,300.0",
    ]


def test_counts_over_time_come_at_the_start_every_ten_seconds_and_at_the_end(
    folder: JobFolder,
) -> None:
    """In a table for programs, and in words in a file for each day."""
    files, watch, wall = LogFiles(), JobWatch(), [1_800_000_000.0]
    overview = Overview(folder, files, watch, lambda: wall[0])
    working = (slot("running", 1.0, 3),)
    watch.tell(SlotsChanged(1, 1))
    for elapsed_s, done in ((0.0, 0), (5.0, 3), (10.0, 5), (15.0, 7), (20.0, 8)):
        wall[0] = 1_800_000_000.0 + elapsed_s * 3600
        look = stood(done, elapsed_s=elapsed_s, slots=working, running=2)
        for event in (look, attempt(1)):
            watch.tell(event)
            overview.tell(event)
    for listener in (watch, overview):
        listener.tell(job_ended())
    files.flush()
    header, *rows = folder.progress_table.read_text().splitlines()
    assert header == (
        "Datetime,Total Tasks,Scheduled Tasks,Completed Tasks,Failed Tasks,Elapsed Time,"
        "Estimated Remaining Time"
    )
    counts, remaining = zip(*(row.rsplit(",", 1) for row in rows), strict=True)
    assert counts == (
        "2027-01-15T08:00:00.000+00:00,10,2,0,0,0.0",
        "2027-01-15T18:00:00.000+00:00,10,7,5,0,10.0",
        "2027-01-16T04:00:00.000+00:00,10,10,8,0,20.0",
        "2027-01-16T04:00:00.000+00:00,10,10,10,0,12.0",
    )
    unknown, at_5, at_8, at_the_end = remaining
    assert (unknown, at_the_end) == ("", "0.0")
    assert float(at_5) > float(at_8) > 0
    days = sorted(path.name for path in folder.logs.glob("job_progress_overview.*"))
    assert days == ["job_progress_overview.20270115.txt", "job_progress_overview.20270116.txt"]
    line = folder.progress_overview("20270115").read_text().splitlines()[1]
    assert re.fullmatch(
        r"2027-01-15 18:00:00\.000\|7 scheduled, 5 of 10 processed, 0 failed, 10 s elapsed, "
        r"(\d+–)?\d+ s remaining",
        line,
    )


def test_the_result_of_a_completed_job_says_where_the_output_is(folder: JobFolder) -> None:
    """And how much of the input is in it."""
    job(folder, job_ended(output="/out/file.txt"))
    assert folder.job_result.read_text() == (
        "The job is Completed.\n"
        "Mini-batches: 10 of 10 succeeded. Items: 10 of 10 succeeded. Time: 12 s.\n"
        "Output: /out/file.txt\n"
    )


def test_the_result_of_a_job_that_allowed_failures_says_where_they_are(folder: JobFolder) -> None:
    """Completed is not all there is to say."""
    job(folder, job_ended(failed=2))
    why = "What failed, why, and how to run it again: daskprs report /job --text\n"
    assert folder.job_result.read_text().endswith(why)


def test_the_result_of_a_failed_job_has_the_cause_first_and_then_where_to_look(
    folder: JobFolder,
) -> None:
    """And how to go on."""
    job(folder, job_ended(JobStatus.FAILED, "3 items failed", BAD))
    lines = folder.job_result.read_text().splitlines()
    assert lines[:2] == ["ValueError: bad", "The job is Failed: 3 items failed."]
    assert lines[3] == "What failed, why, and how to run it again: daskprs report /job --text"
    again = "resume=True, job_dir='/job'"
    assert lines[-2].endswith(f"published. To go on, with the same script and input: {again}")
    assert lines[-1] == f"To go on with a mended script: {again}, accept_changes='script'"


def test_an_input_that_cannot_be_read_is_mended_and_not_the_script(folder: JobFolder) -> None:
    """The job goes on with what has changed."""
    bad = Failure("LoadError", "b.csv, line 2: 'x' is no int64", retryable=False)
    job(folder, job_ended(JobStatus.FAILED, "1 mini-batch failed", bad))
    told = "To go on with a mended input: resume=True, job_dir='/job', accept_changes='input'\n"
    assert folder.job_result.read_text().endswith(told)


def test_a_job_with_too_few_rows_says_which_mini_batches_and_that_a_resume_keeps_them(
    folder: JobFolder,
) -> None:
    """A mended script alone cannot help: what was returned is committed."""
    reason = "3 items failed, more than error_threshold=2"
    job(folder, job_ended(JobStatus.FAILED, reason, not_returned=3))
    text = folder.job_result.read_text()
    assert f"under Failed in {folder.attempts}. A resume keeps what they returned" in text
    assert "mended script: " not in text


def test_a_resumed_job_that_is_killed_has_no_result_of_the_run_before(folder: JobFolder) -> None:
    """What is there is true."""
    job(folder, job_ended(JobStatus.FAILED, "3 items failed"))
    job(folder, job_started(resumed=True), attempt(0))
    assert not folder.job_result.exists()


def test_tables_of_two_runs_are_one_table(folder: JobFolder) -> None:
    """A resume adds to them; the header is there once."""
    for resumed in (False, True):
        job(folder, job_started(resumed=resumed), stood(), attempt(0), job_ended())
    assert list(pd.read_csv(folder.attempts)["Mini-batch Id"]) == [0, 0]
    assert len(pd.read_csv(folder.progress_table)) == 4
