"""Hints: what the figures of a job show of its trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import MiniBatchesDone, Place
from daskprs._core.outcomes import Failure
from daskprs._folders.job_folder import JobFolder
from daskprs._page.figures import RecordedFigures
from daskprs._page.hints import hints_of
from daskprs._page.pictures import loads, throughput
from daskprs._report.attempts import AttemptLogs
from daskprs._report.log_files import LogFiles
from tests.support.job_events import attempt

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._core.events import Event

STARTED_AND_READY = (
    "2027-01-15 08:00:00.000|process000 started, pid 41\n"
    "2027-01-15 08:00:00.000|process000 ready after 0.001 s\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Return an empty job folder."""
    made = JobFolder(tmp_path / "job")
    made.create()
    return made


def figures_of(folder: JobFolder, lines: str = "") -> RecordedFigures:
    """Return the figures of a folder whose node 0 has these lines in its log."""
    if lines:
        folder.node_log(0).parent.mkdir(parents=True, exist_ok=True)
        folder.node_log(0).write_text(lines)
    return RecordedFigures.of(folder, is_running=False)


def logged(folder: JobFolder, *lines: str) -> None:
    """Write the log of the driver."""
    folder.master_log.parent.mkdir(parents=True, exist_ok=True)
    folder.master_log.write_text("".join(f"{line}\n" for line in lines))


def told(folder: JobFolder, *events: Event) -> None:
    """Write attempts."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    for event in events:
        logs.tell(event)
    files.flush()


def timed(
    index: int, run_s: float, elapsed_s: float, load_s: float = 0.0, **more: Any
) -> MiniBatchesDone:
    """Return an attempt that succeeded and took so long."""
    done = attempt(index, **more)
    assert isinstance(done, MiniBatchesDone)
    outcome = done.outcomes[0]._replace(run_s=run_s, elapsed_s=elapsed_s, load_s=load_s)
    return done._replace(outcomes=ColumnBatch([outcome]))


def test_a_job_that_goes_well_has_no_hints(folder: JobFolder) -> None:
    """Twenty attempts that take the same time, in run()."""
    told(folder, *(timed(index, 0.9, 1.0) for index in range(20)))
    assert hints_of(figures_of(folder, STARTED_AND_READY), "in.csv") == []


def test_a_slow_store_is_named(folder: JobFolder) -> None:
    """All the time goes into loading."""
    told(folder, *(timed(index, 0.01, 1.0, 0.99) for index in range(20)))
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "http://far/a.csv")
    assert "waited for their input for 99% of the time, and were in run() for 1%" in hint
    assert "read from http://far/a.csv" in hint


def test_what_preprocess_hands_on_is_not_taken_for_the_input(folder: JobFolder) -> None:
    """No faster store would help."""
    told(folder, *(timed(index, 0.01, 1.0, 0.99) for index in range(20)))
    begun = "2027-01-15 08:00:00.000|INFO|1|MainThread"
    logged(folder, f"{begun}|job 0123abcd starts: a.py", f"{begun}|option preprocess='decode'")
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "http://far/a.csv")
    assert "what preprocess has handed on for 99% of the time" in hint
    assert "http" not in hint


def test_slow_formatting_is_named(folder: JobFolder) -> None:
    """All the time goes into what comes after run()."""
    told(folder, *(timed(index, 0.01, 1.0) for index in range(20)))
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "in.csv")
    assert hint.startswith("Formatting what run() returned took 99% of the time")


def test_a_few_large_mini_batches_are_named(folder: JobFolder) -> None:
    """One of twenty takes as long as all others."""
    times = [1.0] * 19 + [19.0]
    told(folder, *(timed(index, run_s, run_s) for index, run_s in enumerate(times)))
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "in.csv")
    assert "1 of 20 mini-batches took 50% of the time in run()" in hint


def test_a_node_on_which_all_fails_is_named(folder: JobFolder) -> None:
    """Also one on which no process was ready."""
    here, there = Place(0, "process000"), Place(1, "process000")
    bad = [attempt(index, Failure("OSError", "no lib"), place=here) for index in range(3)]
    told(folder, *bad, *(timed(index, 1.0, 1.0, place=there) for index in range(9)))
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "in.csv")
    assert hint.startswith("On node 0 all 3 attempts failed. On the other nodes, 0% of the")
    assert next(iter(figures_of(folder, STARTED_AND_READY).table.causes)).nodes == {0}


def test_a_node_without_a_ready_process_is_named(folder: JobFolder) -> None:
    """It has made no attempt."""
    told(folder, *(timed(index, 1.0, 1.0, place=Place(1, "process000")) for index in range(9)))
    line = "2026-01-01 00:00:05.000|process000 failed in import or init() after 1.0 s: OSError\n"
    (hint,) = hints_of(figures_of(folder, line), "in.csv")
    assert hint.startswith("On node 0 no process was ready: 1 of them failed as they started")


def test_a_leak_is_named_where_processes_die_of_it(folder: JobFolder) -> None:
    """Each mini-batch leaves 100 MB."""
    peaks = [(100 + 100 * index) << 20 for index in range(9)]
    told(folder, *(timed(index, 1.0, 1.0, peak_bytes=peak) for index, peak in enumerate(peaks)))
    killed = "process000 exits with returncode -9 (SIGKILL): it held more than the memory limit"
    end = f"{STARTED_AND_READY}2027-01-15 08:00:30.000|{killed}\n"
    (hint,) = hints_of(figures_of(folder, end), "in.csv")
    assert hint.startswith("1 process died for want of memory, and a process grew by 100 MB")
    assert hints_of(figures_of(folder, STARTED_AND_READY), "in.csv") == []


def test_workers_that_went_are_named(folder: JobFolder) -> None:
    """Those that came back are not."""
    told(folder, *(timed(index, 1.0, 1.0) for index in range(9)))
    lines = [
        "2027-01-15 08:00:00.000|INFO|1|MainThread|job a starts: s.py",
        "2027-01-15 08:00:00.000|INFO|1|MainThread|1 node, 1 slot",
        "2027-01-15 08:00:01.000|INFO|1|MainThread|2 nodes, 1,002 slots",
        "2027-01-15 08:00:07.000|INFO|1|MainThread|1 node, 2 slots",
    ]
    logged(folder, *lines)
    (hint,) = hints_of(figures_of(folder, STARTED_AND_READY), "in.csv")
    assert hint.startswith("The cluster had 1,002 slots until 7 s after the start, and 2 at the")
    back = "2027-01-15 08:00:08.000|INFO|1|MainThread|2 nodes, 1,002 slots\n"
    with folder.master_log.open("a") as file:
        file.write(back)
    assert hints_of(figures_of(folder, STARTED_AND_READY), "in.csv") == []


def test_a_smaller_cluster_of_a_later_run_has_lost_no_workers(folder: JobFolder) -> None:
    """Each run has what its cluster has."""
    told(folder, *(timed(index, 1.0, 1.0) for index in range(9)))
    lines = [
        "2027-01-15 08:00:00.000|INFO|1|MainThread|job a starts: s.py",
        "2027-01-15 08:00:00.000|INFO|1|MainThread|2 nodes, 8 slots",
        "2027-01-15 09:00:00.000|INFO|2|MainThread|job a resumes: s.py",
        "2027-01-15 09:00:00.000|INFO|2|MainThread|1 node, 4 slots",
    ]
    logged(folder, *lines)
    assert hints_of(figures_of(folder, STARTED_AND_READY), "in.csv") == []


def test_time_is_told_apart_by_what_a_process_did(folder: JobFolder) -> None:
    """A process that is ready when the driver hears of its first call was ready before that."""
    ready = "00.000|process000 ready after 0.001"
    late = STARTED_AND_READY.replace(ready, "04.000|process000 ready after 0.25")
    told(folder, timed(0, 2.0, 4.0, 1.5))
    (row,) = figures_of(folder, late).rows
    run_s, load_s, format_s, init_s, alive_s = (float(each.sum()) for each in row.spent)
    assert (run_s, load_s, format_s, init_s) == pytest.approx((2.0, 1.5, 0.5, 0.25), abs=1e-3)
    assert alive_s == pytest.approx(4.25, abs=1e-3)


def test_retries_deaths_renewals_and_the_limit_of_memory_are_drawn(folder: JobFolder) -> None:
    """A row of the throughput for each that there is, and a line in the load."""
    told(folder, *(timed(index, 1.0, 1.0) for index in range(9)))
    plain = figures_of(folder, STARTED_AND_READY)
    assert "renewed" not in throughput(plain, "row")
    assert "agent_memory_limit" not in loads(plain)
    told(folder, attempt(9, Failure("OSError", "gone")), timed(9, 1.0, 1.0, attempt=2))
    lines = [
        "2027-01-15 08:00:00.000|INFO|1|MainThread|job a starts: s.py",
        "2027-01-15 08:00:00.000|INFO|1|MainThread|option agent_memory_limit='500 MB'",
        "2027-01-15 08:00:00.500|INFO|1|MainThread|process000 on node 0 is renewed: mini-batch 9",
        "2027-01-15 08:00:01.000|INFO|1|MainThread|option script='process000 is renewed: not'",
    ]
    logged(folder, *lines)
    died = "2027-01-15 08:00:01.000|process000 exits with returncode -9 (SIGKILL): killed\n"
    figures = figures_of(folder, STARTED_AND_READY + died)
    drawn = throughput(figures, "row")
    for said in ("failed/s", "retried/s", "1 died", "1 renewed", "1 process renewed 0 s in"):
        assert said in drawn, said
    assert "The line is agent_memory_limit: 500 MB." in loads(figures)


def test_the_memory_of_gpus_is_a_share_of_what_they_have(folder: JobFolder) -> None:
    """Nodes without one have no such columns."""
    table = folder.node_usage(0)
    table.parent.mkdir(parents=True)
    table.write_text(
        "Utc Time,Cpu Percent,Memory Used Percent,Gpu Percent,Gpu Memory Used (MB),"
        "Gpu Memory Total (MB)\n2027-01-15 08:00:00.000,50,20,10,300,1200\n"
    )
    told(folder, *(timed(index, 1.0, 1.0) for index in range(9)))
    figures = figures_of(folder, STARTED_AND_READY)
    assert [float(np.nanmax(each)) for each in figures.load] == [50.0, 20.0, 10.0, 25.0]
    assert "100 % of GPU memory" in loads(figures)
