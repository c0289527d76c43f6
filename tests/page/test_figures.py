"""The figures of a report: time that is covered, runs in a row, and causes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.events import Place
from daskprs._core.outcomes import Failure
from daskprs._folders.job_folder import JobFolder
from daskprs._page.attempt_table import AttemptTable
from daskprs._page.chart import round_top, steps, time_ticks
from daskprs._page.driver_record import DriverRecord
from daskprs._page.process_lives import lives_of
from daskprs._page.process_rows import begin_before_calls, process_rows, shares_of
from daskprs._page.working_time import BINS, WorkingTime, covered
from daskprs._report.attempts import AttemptLogs
from daskprs._report.log_files import LogFiles
from daskprs._report.script_errors import KINDS_KEPT
from daskprs.errors import JobFolderError
from tests.support.job_events import STARTED, attempt

if TYPE_CHECKING:
    from pathlib import Path

TIMES = st.floats(0, 100, allow_nan=False)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(sorted))


@given(INTERVALS, st.lists(TIMES, min_size=2).map(sorted))
def test_covered_time_is_the_sum_of_what_each_interval_covers(
    intervals: list[list[float]], edges: list[float]
) -> None:
    """However they overlap."""
    starts, stops = (np.array([one[at] for one in intervals]) for at in (0, 1))
    found = covered(starts, stops, np.array(edges))
    for number, (left, right) in enumerate(pairwise(edges)):
        each = [max(0.0, min(stop, right) - max(start, left)) for start, stop in intervals]
        assert found[number] == pytest.approx(sum(each), abs=1e-6)


def test_the_runs_of_a_job_follow_on_one_another() -> None:
    """What happens after the last line of a log still belongs to its run."""
    work = WorkingTime.of([(100.0, 105.0), (1_000.0, 1_001.0)], np.array([107.0, 1_003.0]), None)
    assert work.length_s == 10.0
    assert work.joints.tolist() == [7.0]
    assert work.at(np.array([50.0, 102.0, 500.0, 1_000.0, 1_002.0, 9_000.0])).tolist() == [
        *(0.0, 2.0, 7.0, 7.0, 9.0, 10.0)
    ]
    assert work.end_of_run(101.0) == 107.0
    assert WorkingTime.of([(0.0, 1.0)], np.empty(0), now=60.0).length_s == 60.0


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([0.0, 0.0], "M0 10h2V10Z"),
        ([1.0, 1.0, 0.5], "M0 10V0h2V5h1V10Z"),
        ([np.nan, 0.001], "M0 10h1V9h1V10Z"),  # a little is more than nothing
        ([9.0], "M0 10V0h1V10Z"),  # no more than all
    ],
)
def test_an_area_has_a_step_for_each_change(values: list[float], path: str) -> None:
    """So a long time in which nothing changes costs nothing."""
    assert steps(np.array(values), 1.0, 10) == path


@given(st.floats(1e-6, 1e9))
def test_the_top_of_an_axis_is_round_and_not_below(value: float) -> None:
    """At most two and a half times the value."""
    assert value * (1 - 1e-9) <= round_top(value) <= 2.5 * value
    assert f"{round_top(value):.0e}"[0] in "125"


@given(st.floats(0.01, 3e9))
def test_an_axis_of_time_has_a_few_round_times(length_s: float) -> None:
    """From a hundredth of a second to a century."""
    ticks = [*time_ticks(length_s)]
    assert ticks[0].text == "0"
    assert len(ticks) <= 6
    assert all(0 <= tick.at <= 1 for tick in ticks)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Return an empty job folder."""
    made = JobFolder(tmp_path / "job")
    made.create()
    return made


def test_errors_that_differ_by_numbers_are_one_cause(folder: JobFolder) -> None:
    """The first of them is shown; those by which mini-batches were given up come first."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    for number in range(30):
        logs.tell(attempt(number, Failure("KeyError", f"'{number}'"), final=number == 7))
    logs.tell(attempt(40, Failure("ValueError", 'a "quoted", odd\ntext'), final=True))
    logs.tell(attempt(41, Failure("ValueError", 'a "second", odd\ntext'), final=True))
    logs.tell(attempt(42))
    files.flush()
    table = AttemptTable.of(folder)
    found = [(one.error, one.attempts, one.given_up, one.mini_batch) for one in table.causes]
    assert found == [
        ('ValueError: a "quoted", odd\ntext', 2, 2, 40),
        ("KeyError: '7'", 30, 1, 7),
    ]
    assert table.attempts.is_done.tolist() == [False] * 32 + [True]
    assert [one.mini_batch for one in table.slowest] == [42]


def test_only_the_first_line_and_the_end_of_the_job_count(folder: JobFolder) -> None:
    """A partition key may be named as a mark of the table is, and a message may have more lines."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    for number, more in enumerate(("one", "another")):
        failure = Failure("ValueError", f"bad\n{more} line")
        logs.tell(attempt(number, failure, partition_key=(("final", True),)))
    files.flush()
    table = AttemptTable.of(folder)
    assert [(one.attempts, one.given_up) for one in table.causes] == [(2, 0)]
    assert not table.attempts.is_final.any()


def test_failures_of_too_many_kinds_are_counted(folder: JobFolder) -> None:
    """What is kept of them does not grow with the job."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    for number in range(KINDS_KEPT + 3):
        logs.tell(attempt(number, Failure("ValueError", "x" * number)))
    files.flush()
    causes = AttemptTable.of(folder).causes
    assert len([*causes]) == KINDS_KEPT
    assert causes.others == 3


def test_a_table_that_was_damaged_is_named(folder: JobFolder) -> None:
    """The report without it is told of."""
    files = LogFiles()
    AttemptLogs(folder, files).tell(attempt(0))
    files.flush()
    rows = folder.attempts.read_text().splitlines(keepends=True)
    folder.attempts.write_text(f"{rows[0]}x{rows[1]}")
    with pytest.raises(JobFolderError, match=r"processed_mini-batches\.csv.*move it away"):
        AttemptTable.of(folder)


def test_a_torn_line_of_the_driver_is_left_out(folder: JobFolder) -> None:
    """It was killed as it wrote it; lines of a message may look like lines of the log."""
    folder.master_log.parent.mkdir(parents=True, exist_ok=True)
    folder.master_log.write_text(
        "2026-01-01 00:00:00.000|INFO|7|MainThread|job a starts: score.py\n"
        "2026-01-01 00:00:01.000|WARNING|7|MainThread|odd:\n"
        "2026-01-01 00:00:01.000|text of a script\n"
        "2026-99-01 00:00:01.000|INFO|7|MainThread|no time\n"
        "2026-01-01 00:00:09.000|INF"
    )
    record = DriverRecord.of(folder)
    (run,) = record.runs
    assert run[1] - run[0] == 1.0
    assert [one.text for one in record.first] == ["odd:"]


def test_the_next_driver_may_have_the_process_id_of_one_that_was_killed(folder: JobFolder) -> None:
    """In a container it mostly has: the pause between them is no time of work."""
    folder.master_log.parent.mkdir(parents=True, exist_ok=True)
    folder.master_log.write_text(
        "2026-01-01 00:00:00.000|INFO|1|MainThread|versions: Python 3.11.7\n"
        "2026-01-01 00:00:01.000|INFO|1|MainThread|job a starts: score.py\n"
        "2026-01-01 00:00:02.000|INFO|1|MainThread|1 node, 1 slot\n"
        "2026-01-01 05:00:00.000|INFO|1|MainThread|versions: Python 3.11.7\n"
        "2026-01-01 05:00:01.000|INFO|1|MainThread|job b resumes: score.py\n"
        "2026-01-01 05:00:03.000|INFO|1|MainThread|job Completed\n"
    )
    assert [end - begin for begin, end in DriverRecord.of(folder).runs] == [2.0, 3.0]


def test_warnings_before_the_versions_are_no_run_of_their_own(folder: JobFolder) -> None:
    """In the logs of earlier versions they came first."""
    folder.master_log.parent.mkdir(parents=True, exist_ok=True)
    folder.master_log.write_text(
        "2026-01-01 00:00:00.000|INFO|1|MainThread|versions: Python 3.11.7\n"
        "2026-01-01 00:00:02.000|INFO|1|MainThread|job Completed\n"
        "2026-01-01 05:00:00.000|NOTICE|2|MainThread|an option does nothing here\n"
        "2026-01-01 05:00:00.001|INFO|2|MainThread|versions: Python 3.11.7\n"
        "2026-01-01 05:00:03.000|INFO|2|MainThread|job Completed\n"
    )
    assert [end - begin for begin, end in DriverRecord.of(folder).runs] == [2.0, 3.0]


def test_the_rows_of_processes_are_in_their_order(folder: JobFolder) -> None:
    """Names have three digits or more."""
    log = folder.node_log(0)
    log.parent.mkdir(parents=True)
    log.write_text(
        "2026-01-01 00:00:05.000|process1000 started, pid 7\n"
        "2026-01-01 00:00:05.000|process101 started, pid 8\n"
    )
    work = WorkingTime.of([], np.empty(0), None)
    rows = process_rows(lives_of(folder), AttemptTable.of(folder), work)
    assert [one.name for one in rows] == ["0/process101", "0/process1000"]


def test_what_processes_of_stages_do_is_in_no_share(folder: JobFolder) -> None:
    """No attempt is theirs, and they are not idle."""
    log = folder.node_log(0)
    log.parent.mkdir(parents=True)
    names = ("process000-00", "process000", "preprocess000", "process000-00-1")
    log.write_text(
        "".join(f"2026-01-01 00:00:02.000|{name} ready after 2.000 s\n" for name in names)
        + "".join(f"2026-01-01 00:00:08.000|{name} exits with returncode 0\n" for name in names)
    )
    first = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    work = WorkingTime.of([(first, first + 8)], np.empty(0), None)
    rows = process_rows(lives_of(folder), AttemptTable.of(folder), work)
    assert [one.name for one in rows] == [f"0/{names[at]}" for at in (1, 2, 0, 3)]
    shares = shares_of(rows)
    assert shares["starting and init()"] == pytest.approx(2 / 8)
    assert shares["nothing to do"] == pytest.approx(6 / 8)


def test_attempts_without_a_process_are_of_none(folder: JobFolder) -> None:
    """A node was lost before they began."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    logs.tell(attempt(0, Failure("NODE_LOST", "gone"), place=Place(1, "")))
    logs.tell(attempt(1, place=Place(1, "process002")))
    files.flush()
    table = AttemptTable.of(folder)
    assert table.processes == ["1/process002"]
    assert table.attempts.process.tolist() == [-1, 0]


def test_a_process_that_begins_again_in_a_later_run_is_another_life(folder: JobFolder) -> None:
    """The driver was killed, so no line says that the first one has ended."""
    log = folder.node_log(0)
    log.parent.mkdir(parents=True)
    log.write_text(
        "2026-01-01 00:00:05.000|process000 started, pid 7\n"
        "2026-01-01 00:00:05.000|process000 ready after 2.500 s\n"
        "2026-01-01 01:00:00.000|process000 started, pid 8\n"
        "2026-01-01 01:00:01.000|process000 failed in import or init() after 0.5 s: KeyError: 'A'\n"
        "2026-01-01 01:00:02.000|process000 exits with returncode -9: killed\n"
        "2026-01-01 01:00:03.000|process001 started, pid 9\n"
        "2026-01-01 01:00:04.000|process001 exits with returncode 0: stopped\n"
        "2026-01-01 01:00:05.000|process002 started, pid 10\n"
        "2026-01-01 01:00:06.000|process002 exits with returncode 0: stopped; ValueError: bad\n"
    )
    first, second, third, fourth = lives_of(folder)
    assert (first.ended, first.ready - first.begun) == (None, 2.5)  # type: ignore[operator]
    assert second.error == "KeyError: 'A'"
    assert second.reason == "process000 exits with returncode -9: killed"
    assert (third.name, third.reason) == ("0/process001", "")
    assert fourth.reason == ""  # its shutdown() has failed


def test_a_later_life_begins_with_its_own_calls(folder: JobFolder) -> None:
    """The driver of the first one was killed, so that no line says when it ended."""
    files = LogFiles()
    AttemptLogs(folder, files).tell(attempt(0))  # in the first life
    files.flush()
    log = folder.node_log(0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        "2027-01-15 08:00:05.000|process000 started, pid 7\n"
        "2027-01-15 08:00:05.000|process000 ready after 2.500 s\n"
        "2027-01-15 09:00:05.000|process000 started, pid 8\n"
        "2027-01-15 09:00:05.000|process000 ready after 2.500 s\n"
    )
    lives = lives_of(folder)
    work = WorkingTime.of(
        [(STARTED - 5, STARTED), (STARTED + 3600, STARTED + 3605)], np.empty(0), None
    )
    begin_before_calls(lives, AttemptTable.of(folder), work)
    first, second = (life.ready or 0.0 for life in lives)
    assert first == pytest.approx(STARTED)
    assert second == pytest.approx(STARTED + 3604.75)


def test_the_picture_has_so_many_parts_however_long_a_job_is() -> None:
    """A week is drawn in as many steps as a minute."""
    work = WorkingTime.of([(0.0, 7 * 86_400.0)], np.empty(0), None)
    assert len(work.edges) == BINS + 1
