"""Few processes, threads, files or bytes are left: the job says so, and does not stand still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import daskprs
from tests.support.cases import mostly_long
from tests.support.limited_call import call, shared_folder, why_not

if TYPE_CHECKING:
    from pathlib import Path

TOO_FEW = 10
"""Processes and threads that no job can do with: driver, Dask and zygote have more."""
FULL = """
import resource

kept = []

def run(paths):
    rows = ["x" * 100 + str(number) for number in range(1000)]
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
    free = bytes({free})
    size = 1 << 24
    while size >= 16:
        try:
            kept.append(bytes(size))
        except MemoryError:
            size >>= 1
    del free
    return rows
"""


@pytest.fixture
def can() -> None:
    """Skip where the machine cannot limit processes."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.usefixtures("can")
@pytest.mark.parametrize("allowed", mostly_long([4, 8, 12, 14], suite=[4]))
def test_a_job_without_enough_processes_and_threads_ends_and_names_the_limit(allowed: int) -> None:
    """Wherever the shortage meets it: in the driver, in Dask's threads, in the zygote."""
    with shared_folder() as folder:
        said = call(folder, 2, "returns", nproc=allowed)
    if allowed > TOO_FEW and said == "Completed\n":
        return  # one agent has got the last of them
    assert f"RLIMIT_NPROC allows {allowed} processes and threads" in said
    assert "Raise it (ulimit -u), or lower process_count_per_node." in said
    assert "os._exit" not in said


@pytest.mark.long
@pytest.mark.usefixtures("can")
def test_a_job_without_enough_open_files_ends_and_names_the_limit() -> None:
    """There is not one agent."""
    with shared_folder() as folder:
        said = call(folder, 8, "returns", nofile=16)
    assert "RLIMIT_NOFILE allows 16 open files in a process" in said


@pytest.mark.long
@pytest.mark.usefixtures("can")
def test_a_job_goes_on_with_the_agents_that_could_be_started() -> None:
    """Open files suffice for some of eight."""
    with shared_folder() as folder:
        assert call(folder, 8, "returns", nofile=26) == "Completed\n"
        log = (folder / "job" / "logs" / "sys" / "master_role.txt").read_text()
    warnings = [line for line in log.splitlines() if "|WARNING|" in line]
    told = [line for line in warnings if "RLIMIT_NOFILE allows 26 open files in a process" in line]
    assert len(told) == 1, warnings  # a machine without time has warnings of its own


ENOUGH = 300_000
"""Free bytes with which the rows may be sent, as the versions of the libraries have it."""


@pytest.mark.parametrize("free", mostly_long([0, 100_000, 200_000, ENOUGH], suite=[0]))
def test_a_script_without_address_space_while_returning_has_failed_for_memory(
    free: int, tmp_path: Path
) -> None:
    """It is no slow load: nobody waits for the timeout of loading."""
    script = tmp_path / "full.py"
    script.write_text(FULL.replace("{free}", str(free)))
    (tmp_path / "one.bin").touch()
    said = ""
    try:
        result = daskprs.parallel_run(
            str(tmp_path / "one.bin"),
            script,
            process_count_per_node=1,
            run_max_try=1,
            task_overhead_timeout=60,
            job_dir=tmp_path / "job",
            progress=False,
        )
    except daskprs.ParallelRunFailed as error:
        said = str(error)
    if said:
        assert said.startswith("MemoryError: ")
        assert "TimeoutError" not in said
    else:
        assert free == ENOUGH
        assert len(result.to_pandas(ignore_index=True)) == 1000
