"""Workers that go while a job is at work on them, each in a way of its own."""

from __future__ import annotations

import csv
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
import psutil
import pytest
from distributed import Client

import daskprs
from daskprs._cluster.worker_plugin import worker_ends_in_s
from daskprs._core import lease_sizes, watchdog
from tests.support.by_hand import ByHand
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = 12
FRAME = pd.DataFrame({"number": range(COUNT)})
SCRIPT = """
import os
import time
from pathlib import Path

import psutil

FOLDER = Path({folder!r})

def worker():
    # agent, zygote, worker
    return psutil.Process().parent().ppid()

def run(mini_batch):
    number = int(mini_batch["number"].iloc[0])
    (FOLDER / f"begun.{{number}}.{{worker()}}").touch()
    until = time.monotonic() + 60
    while number >= 2 and not (FOLDER / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return mini_batch
"""


class Struck:
    """A job on workers of one thread, which waits in the middle until one of them was struck."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = ByHand(folder)
        self.result: Any = None
        (folder / "script.py").write_text(SCRIPT.format(folder=str(folder)))

    def run(self, **options: Any) -> None:
        """Run the job in a thread."""

        def work() -> None:
            with Client(self.cluster.address, set_as_default=False) as client:
                try:
                    self.result = daskprs.parallel_run(
                        FRAME,
                        str(self.folder / "script.py"),
                        mini_batch_size=8,
                        job_dir=self.folder / "job",
                        client=client,
                        progress=False,
                        run_max_try=1,
                        max_node_losses=1,
                        **options,
                    )
                except daskprs.ParallelRunFailed as error:
                    self.result = error
            # Dask leaves the thread of a client that has given up by itself.
            client._loop_runner.stop()

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def begun_on(self, worker: int) -> bool:
        """Say whether something that waits has begun on a worker."""
        return any(
            int(path.name.split(".")[1]) >= 2 for path in self.folder.glob(f"begun.*.{worker}")
        )

    def end(self) -> Any:
        """Let all that waits go on, and return what came of the job."""
        (self.folder / "go").touch()
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.result

    def statuses(self) -> set[str]:
        """Return how attempts ended."""
        report = self.folder / "job/logs/sys/job_report/processed_mini-batches.csv"
        with report.open() as file:
            return {row["Status"] for row in csv.DictReader(file)}

    def logged(self, text: str) -> list[str]:
        """Return the driver's messages with a text."""
        log = self.folder / "job/logs/sys/master_role.txt"
        return [line for line in log.read_text().splitlines() if text in line]


@pytest.fixture
def struck(tmp_path: Path) -> Iterator[Struck]:
    """Yield it, and end its cluster."""
    job = Struck(tmp_path)
    try:
        yield job
    finally:
        (tmp_path / "go").touch()
        job.cluster.close()


def retired(job: Struck, pid: int) -> None:
    """Retire a worker."""
    with Client(job.cluster.address, set_as_default=False) as client:
        workers = client.run(os.getpid)
        client.retire_workers([worker for worker, its in workers.items() if its == pid])


def terminated(job: Struck, pid: int) -> None:  # noqa: ARG001
    """Send a worker SIGTERM, as machines do that are about to go."""
    os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("told", mostly_long([retired, terminated], suite=[terminated]))
def test_a_worker_that_is_told_to_go_hands_back_what_it_has_uncharged(
    struck: Struck, told: Callable[[Struck, int], None]
) -> None:
    """Neither a try nor a loss: the job has one of each only, and loses nothing."""
    first, _ = struck.cluster.worker(), struck.cluster.worker()
    struck.run()
    assert poll_for(lambda: struck.begun_on(first.pid), 60)
    told(struck, first.pid)
    first.wait(60)
    result = struck.end()
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    assert struck.statuses() == {"RUN_DONE"}
    assert len(struck.logged("the worker tcp")) == 1


def test_near_the_end_of_a_worker_only_what_fits_is_begun_there(
    struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may try one, before anything is measured; the other worker does the rest."""
    monkeypatch.setattr(lease_sizes, "MARGIN", 1e9)  # ten minutes are near then
    (struck.folder / "go").touch()
    near, far = struck.cluster.worker("--lifetime", "10 minutes"), struck.cluster.worker()
    with Client(struck.cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2)
        pids, ends_in_s = client.run(os.getpid), client.run(_ends_in_s)
        left_s = {pids[worker]: seconds for worker, seconds in ends_in_s.items()}
    assert left_s[far.pid] is None
    assert 0 < left_s[near.pid] <= 600
    struck.run()
    pd.testing.assert_frame_equal(struck.end().to_pandas(), FRAME)
    assert len([*struck.folder.glob(f"begun.*.{near.pid}")]) <= 1


def _ends_in_s(dask_worker: Any) -> float | None:
    return worker_ends_in_s(dask_worker)


@pytest.mark.long
def test_a_worker_whose_lifetime_ends_hands_back_what_it_has(struck: Struck) -> None:
    """And another one comes to take it."""
    first = struck.cluster.worker("--lifetime", "8s")
    struck.run()
    assert poll_for(lambda: struck.begun_on(first.pid), 60)
    first.wait(60)
    struck.cluster.worker()
    pd.testing.assert_frame_equal(struck.end().to_pandas(), FRAME)
    assert struck.statuses() == {"RUN_DONE"}


def test_what_a_killed_worker_was_at_is_a_loss(struck: Struck) -> None:
    """With one loss allowed it is failed; what had not begun is run elsewhere."""
    first, _ = struck.cluster.worker(), struck.cluster.worker()
    struck.run(allowed_failed_count=1)
    assert poll_for(lambda: struck.begun_on(first.pid), 60)
    first.kill()
    result = struck.end()
    assert struck.statuses() <= {"RUN_DONE", "NODE_LOST"}
    (told,) = struck.logged("the worker tcp")
    assert "|WARNING|" in told
    assert " was lost: what it has not handed back runs again" in told
    assert struck.logged("|1 node, ")[-1].endswith(" 1 slot")
    lost = list(result.failed["mini_batch"])
    assert len(lost) <= 1
    left = FRAME.drop(index=lost).reset_index(drop=True)
    pd.testing.assert_frame_equal(result.to_pandas().reset_index(drop=True), left)


@pytest.mark.cold  # a template would be a child of the worker
def test_a_worker_that_is_stopped_is_done_without(
    struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask itself would wait for it for five minutes."""
    monkeypatch.setattr(watchdog, "SILENT_S", 4.0)
    workers = struck.cluster.worker(), struck.cluster.worker()
    struck.run(allowed_failed_count=-1, process_count_per_node=4)
    # Four processes take what waits in any order: one worker may get none of it.
    assert poll_for(lambda: any(struck.begun_on(one.pid) for one in workers), 60)
    first = next(one for one in workers if struck.begun_on(one.pid))
    first.send_signal(signal.SIGSTOP)
    result = struck.end()
    assert result.status == "Completed"
    assert len(struck.logged("has been silent for too long")) == 1  # it had two slots
    # Once it goes on it ends its agents, though the job is over.
    first.send_signal(signal.SIGCONT)
    assert poll_for(lambda: not psutil.Process(first.pid).children(recursive=True), 60)


def test_a_job_whose_scheduler_is_killed_fails_and_says_how_to_go_on(struck: Struck) -> None:
    """Its agents end with the workers."""
    struck.cluster.worker(nanny=True)
    with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
        struck.run()
        assert poll_for(lambda: list(struck.folder.glob("begun.2.*")), 60)
        struck.cluster.scheduler.kill()
        error = struck.end()
    assert "the cluster has gone" in str(error)
    assert "resume" in str(error)
