"""Retention: which ended jobs are kept, and how others go."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from daskprs._serve.http_errors import Refusal
from daskprs._serve.job_queue import JobQueue
from daskprs._serve.retention import DAY_S, Retention
from daskprs._serve.served_job import RequestedJob, ServedJob
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENDED_S = {"a": 1 * DAY_S, "c": 3 * DAY_S, "b": 2 * DAY_S}


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(), []),
        (Retention(jobs=3), []),
        (Retention(jobs=2), ["a"]),
        (Retention(jobs=1), ["a", "b"]),
        (Retention(days=2), ["a"]),
        (Retention(days=1), ["a", "b"]),
        (Retention(days=2, jobs=1), ["a", "b"]),
    ],
)
def test_old_jobs_are_surplus_by_number_and_by_age(retention: Retention, gone: list[str]) -> None:
    """The oldest first; four days after the first of them has ended."""
    assert retention.surplus(ENDED_S, 4 * DAY_S) == gone


class Jobs:
    """A folder of jobs without a process, and a queue that starts none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue = JobQueue(folder, 0, retention=Retention(jobs=1))

    def add(self, name: str, turn_into: Callable[[ServedJob], None]) -> ServedJob:
        """Add a job in some state."""
        folder = self.folder / f"batchjob-{name}"
        number = len(list(self.folder.iterdir()))
        words = ["light_job", os.devnull, str(folder / "output")]
        output = str(folder / "output")
        asked = RequestedJob(
            folder.name, "first", f"{number}", "ours", {}, {}, {}, words, output, {}, {}, {}, []
        )
        job = ServedJob.create(folder, asked, number + 1)
        turn_into(job)
        return job

    @property
    def names(self) -> set[str]:
        """The folders that there are."""
        return {path.name.removeprefix("batchjob-") for path in self.folder.iterdir()}


def waits(job: ServedJob) -> None:
    """Leave a job as it is."""
    del job


def done(job: ServedJob) -> None:
    """End a job."""
    job.write_end(0)


def fails(job: ServedJob) -> None:
    """End a job so that it can be resumed."""
    job.write_end(42)


def died(job: ServedJob) -> None:
    """End a job without a record of its end."""
    job.folder.joinpath("process.1").write_text("999999999")


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """Return a folder of jobs."""
    tmp_path.joinpath("jobs").mkdir()
    return Jobs(tmp_path / "jobs")


@contextmanager
def opened(jobs: Jobs, *names: str) -> Iterator[JobQueue]:
    """Open the queue, which removes what is old at once; wait until no other folder is left."""
    jobs.queue.open()
    try:
        assert poll_for(lambda: jobs.names == set(names)), jobs.names
        yield jobs.queue
    finally:
        jobs.queue.close()


def test_only_ended_jobs_go(jobs: Jobs) -> None:
    """Neither one that waits nor one that runs, however old they are."""
    running = jobs.add("running", waits)
    process = os.open(running.folder / "process.1", os.O_RDWR | os.O_CREAT)
    os.write(process, str(os.getpid()).encode())
    fcntl.flock(process, fcntl.LOCK_EX)
    jobs.add("queued", waits)
    jobs.add("first", done)
    jobs.add("second", died)
    jobs.add("third", done)
    with opened(jobs, "running", "queued", "third") as queue:
        with pytest.raises(Refusal, match="404"):
            queue.get("batchjob-first")
        listed = [job.asked.name for job in queue.listed(10, None, lambda _: True)[0]]
        assert listed == ["batchjob-third", "batchjob-queued", "batchjob-running"]
    os.close(process)


@pytest.mark.attack
def test_no_link_is_followed_out_of_a_job(jobs: Jobs, tmp_path: Path) -> None:
    """What it leads to stays, whatever in a job is a link."""
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.joinpath("file").touch()
    old = jobs.add("old", done)
    old.folder.joinpath("output").symlink_to(kept)
    old.folder.joinpath("link").symlink_to(kept / "file")
    whole = jobs.add("whole", done)
    whole.folder.rename(tmp_path / "moved")
    whole.folder.symlink_to(tmp_path / "moved")
    jobs.add("new", done)
    with opened(jobs, "new"):
        assert kept.joinpath("file").exists()
        assert tmp_path.joinpath("moved", "request.json").exists()


def test_what_a_crash_left_is_removed_by_the_next_service(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees half a job meanwhile."""
    jobs.add("old", done)
    jobs.add("new", done)
    rmtree = shutil.rmtree

    def dies(path: Path) -> None:
        path.joinpath("ended.1").unlink()
        raise OSError

    monkeypatch.setattr(shutil, "rmtree", dies)
    with opened(jobs, ".removed-batchjob-old", "new") as queue:
        assert [job.asked.name for job in queue.listed(10, None, lambda _: True)[0]] == [
            "batchjob-new"
        ]
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with opened(Jobs(jobs.folder), "new"):
        pass


def test_what_a_crash_left_holds_up_no_other_removal(jobs: Jobs) -> None:
    """Not even that of a later job of the same name."""
    jobs.folder.joinpath(".removed-batchjob-old", "left").mkdir(parents=True)
    jobs.add("old", done)
    jobs.add("new", done)
    with opened(jobs, "new"):
        pass


def test_what_a_crash_left_of_an_invocation_is_removed(jobs: Jobs) -> None:
    """The name is free again; a folder with anything else in it stays."""
    for name, entries in [
        ("half", ["ticket.1", ".request.json.1-1.part"]),
        ("empty", []),
        ("other", ["ticket.1", "notes.txt"]),
        ("not a job", []),
    ]:
        jobs.folder.joinpath(name).mkdir()
        for entry in entries:
            jobs.folder.joinpath(name, entry).touch()
    jobs.queue.retention = Retention()
    with opened(jobs, "other", "not a job"):
        pass


def test_a_job_that_is_resumed_meanwhile_stays_or_is_none(jobs: Jobs) -> None:
    """Whichever comes first, nothing half is left."""
    old, new = jobs.add("old", fails), jobs.add("new", fails)
    jobs.queue = JobQueue(jobs.folder, 0)
    with opened(jobs, "old", "new") as queue:
        queue.resume(queue.get("batchjob-old"))
        removing = queue.get("batchjob-new")
        queue.retention = Retention(jobs=0)
        queue.remove_old(time.time())
        assert jobs.names == {"old"}
        with pytest.raises(Refusal) as refused:
            queue.resume(removing)
    assert refused.value.status == 404
    assert jobs.names == {"old"}
    assert old.folder.joinpath("ticket.2").exists()
    assert not new.folder.exists()


def test_times_of_a_script_count_nothing(jobs: Jobs) -> None:
    """A job cannot make itself young, or old."""
    job = jobs.add("one", done)
    for path in job.folder.iterdir():
        os.utime(path, (0, 0))
    assert job.last_change_s() == pytest.approx(time.time(), abs=1000)
