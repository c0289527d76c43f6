"""Jobs outlive the service, and one that is started again knows them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
import daskprs._job.status
from daskprs._core.events import Counts
from daskprs._folders.job_lock import locked
from daskprs._job.status import JobState
from daskprs._serve.endpoint import _counts
from daskprs._serve.http_errors import Refusal
from daskprs._serve.job_queue import JobQueue
from daskprs._serve.served_job import LIVE, RequestedJob, ServedJob, ServedStatus
from tests.support.polling import poll_for
from tests.support.services import PROGRAMS, LightService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder


def test_jobs_and_the_queue_survive_the_death_of_the_service(tmp_path: Path) -> None:
    """What runs goes on meanwhile, what waits keeps its place, what has ended is known."""
    gate = tmp_path / "gate"
    with LightService(tmp_path, running=1) as service:
        done = service.invoke(service.data("quick")).json()["name"]
        service.ended(done)
        data = service.data("wait", "say begun", f"wait {gate}")
        headers = [{"repeatability_request-id": str(number)} for number in range(3)]
        names = [service.invoke(data, headers=one).json()["name"] for one in headers]
        assert poll_for(lambda: service.status(names[0]) == "Running")
        service.killed()
    running = ServedJob.read(tmp_path / "jobs" / names[0])
    assert running is not None
    assert running.is_alive()
    with LightService(tmp_path, running=1) as service:
        listed = service.client.get("/jobs").json()["value"]
        assert [job["name"] for job in listed] == [*names[::-1], done]
        statuses = [service.status(name) for name in (done, *names)]
        assert statuses == ["Completed", "Running", "Queued", "Queued"]
        again = [service.invoke(data, headers=one).json()["name"] for one in headers]
        assert again == names
        gate.touch()
        assert [service.ended(name) for name in names] == ["Completed"] * 3
        ends = [tmp_path / "jobs" / name / "output" / "done.txt" for name in names]
        times = [path.stat().st_mtime_ns for path in ends]
        assert times == sorted(times)
        assert service.client.get(f"/jobs/{names[0]}/stream").text == "begun\n"


@pytest.mark.long
def test_a_job_that_ends_while_there_is_no_service_has_its_status(tmp_path: Path) -> None:
    """Its folder tells: one is done, one has died."""
    gate = tmp_path / "gate"
    with LightService(tmp_path, running=2) as service:
        data = service.data("wait", f"wait {gate}")
        good, killed = (service.invoke(data).json()["name"] for _ in range(2))
        assert poll_for(lambda: service.status(killed) == service.status(good) == "Running")
        service.killed()
    jobs = [ServedJob.read(tmp_path / "jobs" / name) for name in (good, killed)]
    os.kill(int((tmp_path / "jobs" / killed / "process.1").read_text()), signal.SIGKILL)
    gate.touch()
    assert poll_for(lambda: not any(job.is_alive() for job in jobs if job))
    with LightService(tmp_path) as service:
        assert service.status(good) == "Completed"
        properties = service.job(killed)["properties"]
        assert (properties["status"], properties["error"]["code"]) == ("Failed", "JobDied")
        assert "/resume" in properties["error"]["message"]
        service.client.post(f"/jobs/{killed}/resume")
        assert service.ended(killed) == "Completed"


@pytest.mark.long
def test_a_service_that_is_told_to_end_leaves_jobs_and_those_who_follow_go(tmp_path: Path) -> None:
    """The stream of a job that runs ends with the service; the job does not."""
    gate = tmp_path / "gate"
    with LightService(tmp_path) as service:
        name = service.invoke(service.data("wait", "say begun", f"wait {gate}")).json()["name"]
        with service.client.stream("GET", f"/jobs/{name}/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "begun"
            service.process.terminate()
            assert list(lines) == []
        service.process.wait(60)
    gate.touch()
    with LightService(tmp_path) as service:
        assert service.ended(name) == "Completed"


def test_one_service_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    """The second one says who the first is."""
    with LightService(tmp_path) as service:
        words = [sys.executable, str(PROGRAMS / "light_service.py"), str(tmp_path)]
        second = subprocess.run(
            [*words, "only", "", "1", "1", "{}"], capture_output=True, text=True, check=False
        )
        assert second.returncode != 0
        assert f"process {service.process.pid}" in second.stderr


# ---- the folder of a job ----


@pytest.fixture
def registry(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobQueue]:
    """Yield a registry that was not opened yet, of one job at a time unless the test says more."""
    paths = [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    one = JobQueue(tmp_path / "jobs", getattr(request, "param", 1))
    yield one
    one.close()


def asked(name: str, created: str, folder: Path, data: str = os.devnull) -> RequestedJob:
    """Return what makes a light job."""
    words = ["light_job", data, str(folder / "output")]
    return RequestedJob(
        name, "first", created, "ours", {}, {}, {}, words, str(folder / "output"), {}, {}, {}, []
    )


def test_a_process_that_never_came_to_be_is_started_by_the_next_service(
    registry: JobQueue, tmp_path: Path
) -> None:
    """The service died between the lock and the process."""
    folder = tmp_path / "jobs" / "batchjob-1"
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    folder.joinpath("process.1").touch()
    assert job.own_status() == ServedStatus("Queued")
    registry.open()
    assert poll_for(lambda: registry.status(registry.get("batchjob-1")).status == "Completed")


def test_what_was_never_accepted_is_no_job(registry: JobQueue, tmp_path: Path) -> None:
    """Half a folder, or half a file, is passed over."""
    for name, content in [("a", None), ("b", ""), ("c", "{}"), ("d", "[]"), ("e", '{"name": 1}')]:
        folder = tmp_path / "jobs" / f"batchjob-{name}"
        folder.mkdir(parents=True)
        if content is not None:
            folder.joinpath("request.json").write_text(content)
    folder = tmp_path / "jobs" / "batchjob-f"  # a folder whose removal was begun
    ServedJob.create(folder, asked("batchjob-f", "2026", folder), 1)
    folder.joinpath("ticket.1").unlink()
    registry.open()
    assert registry.listed(10, None, lambda _: True) == ([], None)


def test_a_resume_that_is_canceled_while_it_waits_is_canceled(tmp_path: Path) -> None:
    """What its job folder tells is how it failed before."""
    folder = tmp_path / "batchjob-1"
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(pd.DataFrame({"a": [1]}), _fails, job_dir=folder / "job")
    job.write_end(42)
    assert job.own_status() == ServedStatus("Failed")
    job.queue(2)
    assert job.own_status() == ServedStatus("Queued")
    job.cancel()
    assert job.own_status() == ServedStatus("Canceled")


@pytest.mark.usefixtures("inline")
def test_counts_go_on_after_a_resume_while_the_end_before_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request for them has seen the end of the turn before. No other one gets older counts."""
    folder, data = tmp_path / "batchjob-1", pd.DataFrame({"a": [1]})
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(data, _fails, job_dir=folder / "job")
    job.write_end(42)
    assert job.own_status() == ServedStatus("Failed")
    state_of = daskprs._job.status.state_of
    met: list[object] = []

    def resumed(folder: JobFolder) -> JobState:
        if not met:
            job.queue(2)
            met.append(job.job_state(is_over=True))
        return state_of(folder)

    monkeypatch.setattr("daskprs._job.status.state_of", resumed)
    before = job.job_state(is_over=True)
    assert before is not None
    assert before.mini_batches == Counts(1, 0, 1)
    again: dict[str, Any] = {"resume": True, "accept_changes": "script"}
    daskprs.parallel_run(data, _works, job_dir=folder / "job", **again)
    job.write_end(0)
    for is_over in (False, True):
        assert poll_for(lambda is_over=is_over: _done(job, is_over=is_over) == 1)
        assert job.own_status() == ServedStatus("Completed")
    assert met == [None]


def _done(job: ServedJob, *, is_over: bool) -> int | None:
    state = job.job_state(is_over=is_over)
    return None if state is None else state.mini_batches.succeeded


@pytest.mark.usefixtures("inline")
def test_a_job_that_its_operator_has_resumed_is_as_its_folder_says(
    registry: JobQueue, tmp_path: Path
) -> None:
    """Whether it fails again, runs or is Completed; so does a service that is started later."""
    folder, data = tmp_path / "jobs" / "batchjob-1", pd.DataFrame({"a": [1]})
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    folder.joinpath("process.1").write_text("999999999")
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(data, _fails, job_dir=folder / "job")
    job.write_end(130)
    registry.open()
    job = registry.get("batchjob-1")
    assert registry.status(job) == ServedStatus("Canceled")
    assert _counts(job, registry.status(job))["miniBatches"].failed == 1
    again: dict[str, Any] = {"job_dir": folder / "job", "resume": True}
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(data, _fails, **again)
    status, _, reason = registry.status(job)
    assert (status, reason) == ("Failed", "1 mini-batch failed, more than allowed_failed_count=0")
    with locked(job.job):  # as by a driver, which claims an epoch next
        job.job.epoch(3).touch()
        assert registry.status(job).status == "Running"
        job.job.epoch(3).unlink()
    daskprs.parallel_run(data, _works, accept_changes="script", **again)
    for known in (job, ServedJob.read(folder)):
        assert known is not None
        assert registry.status(known) == ServedStatus("Completed")
        assert _counts(known, registry.status(known))["miniBatches"].succeeded == 1
    with pytest.raises(Refusal, match="CannotResume"):
        registry.resume(job)


def _works(mini_batch: pd.DataFrame) -> pd.DataFrame:
    return mini_batch


def _fails(mini_batch: pd.DataFrame) -> None:
    raise ValueError(len(mini_batch))


def test_a_wish_to_end_that_comes_before_the_process_is_heeded(
    registry: JobQueue, tmp_path: Path
) -> None:
    """It finds the wish when it says who it is."""
    folder = tmp_path / "jobs" / "batchjob-1"
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    folder.joinpath("cancel.1").touch()
    process = job.start()
    assert poll_for(lambda: process.poll() is not None)
    assert job.own_status() == ServedStatus("Canceled")
    assert not folder.joinpath("output").exists()
    registry.open()


def test_a_process_for_which_there_is_no_room_is_started_later(
    registry: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system has too many of them for now."""
    popen, refusals = subprocess.Popen, [errno.EAGAIN, errno.ENOMEM]

    def full_at_first(*given: Any, **more: Any) -> Any:
        if refusals:
            raise OSError(refusals.pop(), "no room")
        return popen(*given, **more)

    monkeypatch.setattr(subprocess, "Popen", full_at_first)
    registry.open()
    job = registry.submit(asked)
    assert poll_for(lambda: registry.status(job).status == "Completed")
    assert refusals == []


@pytest.mark.parametrize("registry", [2], indirect=True)
def test_a_script_that_spoils_the_folder_of_its_job_holds_up_no_other(
    registry: JobQueue, tmp_path: Path
) -> None:
    """Without `--run-as`, the service looks for no user there."""
    data, gate = tmp_path / "data", tmp_path / "gate"
    data.write_text(f"link ../home home\nwait {gate}\n")
    registry.open()
    first = registry.submit(lambda *made: asked(*made, data=str(data)))
    assert poll_for((first.folder / "home").is_symlink)
    second = registry.submit(asked)
    assert poll_for(lambda: registry.status(second).status == "Completed")
    gate.touch()
    assert poll_for(lambda: registry.status(first).status == "Completed")


def test_the_end_of_a_job_counts_whose_folder_its_script_has_spoiled(tmp_path: Path) -> None:
    """The service could not say then whether another process goes on with the job."""
    folder = tmp_path / "jobs" / "batchjob-1"
    job = ServedJob.create(folder, asked("batchjob-1", "2026", folder), 1)
    folder.joinpath("process.1").write_text("999999999")
    job.job.path.symlink_to(job.job.path)
    assert job.end_in_folder() == ServedStatus("Failed", died=True)
    job.write_end(0)
    known = ServedJob.read(folder)
    assert known is not None
    assert known.own_status() == ServedStatus("Completed")


@pytest.mark.parametrize("known", [0, 1])
def test_a_job_that_has_died_has_no_counts_before_it_has_settled_anything(
    tmp_path: Path, known: int
) -> None:
    """A total of 0 would look like that of all items. That of mini-batches is of the plan."""
    job = died(tmp_path, "1", 1)
    counts = Counts(known, known, 0)
    state = JobState("Died", None, 1, counts, counts, None, None, planned=6)
    job.job_state = lambda **_: state  # type: ignore[method-assign]
    found = _counts(job, ServedStatus("Failed", died=True))
    assert list(found) == ["miniBatches", "items"][: 2 * known]
    assert [one.total for one in found.values()] == [6, 1][: 2 * known]


def test_a_process_that_cannot_be_started_fails_its_job(
    registry: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and the next one is started."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    registry.open()
    job = registry.submit(asked)
    assert poll_for(lambda: registry.status(job).status == "Failed")
    assert "cannot be started" in job.last_words()
    monkeypatch.undo()
    following = registry.submit(lambda *given: asked(*given)._replace(words=["this"]))
    assert poll_for(lambda: registry.status(following).status == "Completed")


def died(tmp_path: Path, name: str, number: int) -> ServedJob:
    """Return a job whose process has ended without a word, after an epoch in its job folder."""
    folder = tmp_path / "jobs" / f"batchjob-{name}"
    job = ServedJob.create(folder, asked(f"batchjob-{name}", "2026", folder), number)
    folder.joinpath("process.1").write_text("999999999")
    folder.joinpath("job").mkdir()
    folder.joinpath("job", "epoch.1").touch()
    folder.joinpath("job", "journal.1").touch()
    return job


@pytest.mark.timeout(120)
def test_odd_files_of_a_job_hold_up_neither_the_service_nor_another_job(
    registry: JobQueue, tmp_path: Path
) -> None:
    """FIFOs, folders, devices and names with large numbers, wherever a file of a job is."""
    names = ["process.1", "ended.1", "driver.txt", "job/journal.1", "job/epoch.999999999999"]
    jobs = [died(tmp_path, str(number), number) for number in range(1, 1 + 3 * len(names))]
    for job, (kind, name) in zip(jobs, product(["fifo", "zeros", "folder"], names), strict=True):
        path = job.folder / name
        path.unlink(missing_ok=True)
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "zeros":
                path.symlink_to("/dev/zero")
            case "folder":
                path.mkdir()
        if name == "driver.txt":
            job.folder.joinpath("process.1").unlink()  # so that it is started
    registry.open()
    whole = registry.submit(asked)
    assert poll_for(lambda: registry.status(whole).status == "Completed")
    for job in jobs:
        found = registry.get(job.asked.name)
        assert poll_for(lambda found=found: registry.status(found).status == "Failed")
        found.last_words()
        found.job_state(is_over=True)


def test_the_job_folder_of_one_job_is_read_while_others_start_and_end(
    registry: JobQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journals may take seconds: here as long as the other job takes. One request waits."""
    done, state_of = threading.Event(), daskprs._job.status.state_of

    def slow(folder: JobFolder) -> JobState:
        assert done.wait(60)
        return state_of(folder)

    monkeypatch.setattr("daskprs._job.status.state_of", slow)
    died(tmp_path, "1", 1)
    registry.open()
    job = registry.get("batchjob-1")
    with ThreadPoolExecutor(1) as other:
        slowly = other.submit(lambda: registry.status(job))
        try:
            assert poll_for(job._reading.locked)
            assert registry.status(job).status == "Running"
            assert job.job_state(is_over=True) is None
            with pytest.raises(Refusal, match="CannotResume"):
                registry.resume(job)
            quick = registry.submit(asked)
            assert poll_for(lambda: registry.status(quick).status == "Completed")
            assert not slowly.done()
        finally:
            done.set()
        assert slowly.result().status == "Failed"
    registry.resume(job)
    assert poll_for(lambda: registry.status(registry.get("batchjob-1")).status not in LIVE)
