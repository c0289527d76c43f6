"""Few processes, threads or open files are left: the job says so, and does not stand still."""

from __future__ import annotations

import pytest
from limited_call import call, shared_folder, why_not


@pytest.fixture(autouse=True)
def can() -> None:
    """Skip where the machine cannot limit processes."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.parametrize("allowed", [4, 8, 12, 14])
def test_a_job_without_enough_processes_and_threads_ends_and_names_the_limit(allowed: int) -> None:
    """Wherever the shortage meets it: in the driver, in Dask's threads, in the zygote."""
    with shared_folder() as folder:
        said = call(folder, 2, "returns", nproc=allowed)
    assert f"RLIMIT_NPROC allows {allowed} processes and threads" in said
    assert "Raise it (ulimit -u), or lower process_count_per_node." in said
    assert "os._exit" not in said


def test_an_agent_that_is_refused_threads_does_its_work_without() -> None:
    """It sends each outcome at once, and loads nothing ahead: no script is blamed."""
    with shared_folder() as folder:
        assert call(folder, 1, "refuses threads", nproc=100) == "Completed\n"


def test_a_job_without_enough_open_files_ends_and_names_the_limit() -> None:
    """There is not one agent."""
    with shared_folder() as folder:
        said = call(folder, 8, "returns", nofile=16)
    assert "RLIMIT_NOFILE allows 16 open files in a process" in said


def test_a_job_goes_on_with_the_agents_that_could_be_started() -> None:
    """Open files suffice for some of eight."""
    with shared_folder() as folder:
        assert call(folder, 8, "returns", nofile=26) == "Completed\n"
        log = (folder / "job" / "logs" / "sys" / "master_role.txt").read_text()
    assert log.count("|WARNING|") == 1
    assert "RLIMIT_NOFILE allows 26 open files in a process" in log
