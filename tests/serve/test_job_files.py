"""Files of jobs, as a script may leave them: links, FIFOs, and more than anybody can list."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from daskprs._output.publish.output_file import attempts_of, part_of
from daskprs._serve import job_files
from daskprs._serve.http_errors import Refusal
from daskprs._serve.job_files import listed, opened
from daskprs._serve.served_job import RequestedJob, ServedJob
from daskprs._system.atomic_file import whole_file
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "planted-secret"  # noqa: S105 - nobody's


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return the output of a job, and a secret beside it."""
    folder = tmp_path / "job" / "output"
    folder.joinpath("inner").mkdir(parents=True)
    folder.joinpath("inner", "a.csv").write_text("ours")
    tmp_path.joinpath("keys").mkdir()
    tmp_path.joinpath("keys", "a.csv").write_text(SECRET)
    return folder


def paths(folder: Path) -> list[str]:
    """Return what a listing shows."""
    return [one["path"] for one in listed(folder)["value"]]


def content(folder: Path, relative: str) -> bytes | None:
    """Return a file as a caller gets it; None where there is none for him."""
    try:
        with opened(folder, relative) as file:
            return file.read()
    except Refusal:
        return None


def test_files_of_daskprs_beside_an_unfinished_output_are_not_listed(output: Path) -> None:
    """Hidden files of the script are."""
    claim, part = ".p.csv.daskprs-claim", part_of(output / "p.csv", "job", 1)
    for name in (claim, part.name, f"{attempts_of(part).name}/1.parquet", ".hidden/x"):
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).touch()
    assert paths(output) == [".hidden/x", "inner/a.csv"]
    part.unlink()


@pytest.mark.attack
def test_no_part_of_a_path_may_be_a_link(output: Path, tmp_path: Path) -> None:
    """The file, a folder on the way, the output itself, and the folder of the job."""
    keys = tmp_path / "keys"
    output.joinpath("link").symlink_to(keys / "a.csv")
    output.joinpath("folder").symlink_to(keys)
    output.joinpath("self").symlink_to("/proc/self")
    assert paths(output) == ["inner/a.csv"]
    assert content(output, "inner/a.csv") == b"ours"
    for path in ("link", "folder/a.csv", "self/environ", "inner/../inner/a.csv", "", ".", "inner"):
        assert content(output, path) is None
    assert content(output, str(keys / "a.csv")) is None
    for swapped in (output / "inner", output, output.parent):
        swapped.rename(tmp_path / "elsewhere")
        swapped.symlink_to(keys)
        assert content(output, "inner/a.csv") is None
        assert "inner/a.csv" not in paths(output)
        swapped.unlink()
        tmp_path.joinpath("elsewhere").rename(swapped)
    assert content(output, "inner/a.csv") == b"ours"


@pytest.mark.attack
def test_a_folder_that_is_swapped_for_a_link_all_the_time_leads_nowhere(
    output: Path, tmp_path: Path
) -> None:
    """Whatever moment the service looks at."""
    over = threading.Event()

    def swap() -> None:
        while not over.wait(0.001):
            output.joinpath("inner").rename(output / "kept")
            output.joinpath("inner").symlink_to(tmp_path / "keys")
            output.joinpath("inner").unlink()
            output.joinpath("kept").rename(output / "inner")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        found = {content(output, "inner/a.csv") for _ in range(500)}
        assert poll_for(lambda: content(output, "inner/a.csv") == b"ours")
        for _ in range(200):
            assert set(paths(output)) <= {"inner/a.csv", "kept/a.csv"}
    finally:
        over.set()
        swapping.join()
    assert found <= {b"ours", None}


@pytest.mark.attack
@pytest.mark.timeout(60)
def test_a_fifo_in_any_place_is_passed_over_at_once(output: Path) -> None:
    """Nobody will ever open its other end."""
    os.mkfifo(output / "pipe")
    output.joinpath("to-pipe").symlink_to(output / "pipe")
    assert paths(output) == ["inner/a.csv"]
    assert content(output, "pipe") is content(output, "to-pipe") is None
    mine = output / f".whole.{os.getpid()}-{threading.get_native_id()}.part"
    os.mkfifo(mine)
    with whole_file(output / "whole") as file:
        file.write(b"ours")
    assert output.joinpath("whole").read_bytes() == b"ours"
    output.joinpath("victim").write_text("kept")
    mine.symlink_to(output / "victim")
    with whole_file(output / "whole") as file:
        file.write(b"theirs")
    assert output.joinpath("victim").read_text() == "kept"


@pytest.mark.attack
@pytest.mark.timeout(60)
def test_a_listing_ends_however_much_there_is(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it is cut off: too many files, too many entries, and too deep folders."""
    monkeypatch.setattr(job_files, "MOST_LISTED", 3)
    assert not listed(output)["isTruncated"]
    for number in range(4):
        output.joinpath(str(number)).touch()
    assert listed(output)["isTruncated"]
    assert paths(output) == ["0", "1", "2"]
    monkeypatch.undo()
    monkeypatch.setattr(job_files, "MOST_LOOKED_AT", 4)
    assert len(paths(output)) <= 4
    assert listed(output)["isTruncated"]
    monkeypatch.undo()
    deep = os.open(output, os.O_RDONLY)
    for _ in range(3000):  # longer than any path may be
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    assert listed(output)["isTruncated"]
    assert "inner/a.csv" in paths(output)
    subprocess.run(["/bin/rm", "-rf", output / "d"], check=True)


def test_names_may_have_any_bytes(output: Path) -> None:
    """A line feed, quotes, and what is no UTF-8."""
    for name in (b"a\nb", b'q"\\', b"\xff"):
        output.joinpath(os.fsdecode(name)).write_text("ours")
    assert paths(output) == ["a\nb", 'q"\\', "\ufffd", "inner/a.csv"]
    assert content(output, "a\nb") == content(output, 'q"\\') == b"ours"


# ---- records that a script has forged ----


@pytest.fixture
def job(tmp_path: Path) -> ServedJob:
    """Return a job of the service."""
    folder = tmp_path / "batchjob-1"
    output = str(folder / "output")
    asked = RequestedJob(
        "batchjob-1", "first", "2026", "ann", {}, {}, {}, ["this"], output, {}, {}, {}, []
    )
    return ServedJob.create(folder, asked, 1)


@pytest.mark.attack
def test_the_number_of_another_process_in_a_jobs_folder_has_none_ended(job: ServedJob) -> None:
    """Even while the job holds its lock, what has the number must hold it, too."""
    victim = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    lock = job.folder / "process.1"
    lock.touch()
    holder = subprocess.Popen(
        ["/usr/bin/flock", "--no-fork", "-x", str(lock), "/bin/sleep", "60"], start_new_session=True
    )
    try:
        assert poll_for(job.is_alive)
        for forged in (str(victim.pid), "1", "0", "-1", str(os.getpid()), "9" * 60, "x"):
            lock.write_text(forged)
            job.cancel()
            assert victim.poll() is None
            assert holder.poll() is None
        lock.write_text(str(holder.pid))
        job.cancel()
        assert holder.wait(30) == -signal.SIGTERM
    finally:
        for process in (victim, holder):
            process.kill()
            process.wait()


@pytest.mark.attack
@pytest.mark.parametrize(
    ("record", "forged"),
    [
        ("request.json", '"name": "batchjob-2"'),
        ("request.json", '"labels": {"status": "Completed"}'),
        ("request.json", '"labels": ["a"]'),
        ("request.json", '"inputs": {"a": 1}'),
        ("request.json", '"words": "rm"'),
        ("request.json", '"deep": ' + "[" * 100_000),
        ("ticket.1", f"{10**50} 0"),
        ("ticket.1", "-1 0"),
        ("ticket.1", "x 0"),
    ],
)
def test_a_forged_record_makes_the_folder_none_of_a_job(
    job: ServedJob, record: str, forged: str
) -> None:
    """And takes neither the name nor the numbers of other jobs."""
    path = job.folder / record
    assert ServedJob.read(job.folder) is not None
    if record == "request.json":
        # In front: of one key that comes twice, some versions of pydantic leave out a wrong value.
        own = json.loads(path.read_text())
        own.pop(forged.split('"')[1], None)
        forged = f"{{{forged}, {json.dumps(own)[1:]}"
    path.write_text(forged)
    assert ServedJob.read(job.folder) is None


@pytest.mark.attack
@pytest.mark.parametrize(
    "forged", ["Infinity", '{"exit_code": Infinity}', '{"exit_code": {}}', "{}", "[" * 100_000, "1"]
)
def test_a_forged_exit_code_is_none(job: ServedJob, forged: str) -> None:
    """The job counts as one that died without a word."""
    job.folder.joinpath("ended.1").write_text('{"exit_code": 3}')
    assert job.exit_code() == 3
    job.folder.joinpath("ended.1").write_text(forged)
    assert job.exit_code() is None


@pytest.mark.attack
@pytest.mark.parametrize("name", ["job.json", "journal.1", "epoch.1", "lock"])
def test_a_forged_job_folder_has_no_state_and_fails_no_request(job: ServedJob, name: str) -> None:
    """A link to itself, a link to nothing, a folder, and deep JSON in the place of each record."""
    job.job.path.mkdir()
    path = job.job.path / name
    for is_over in (False, True):
        path.symlink_to(name)
        assert job.job_state(is_over=is_over) is None
        path.unlink()
    path.mkdir()
    assert ServedJob.read(job.folder) is not None
    assert job.job_state(is_over=False) is None
    path.rmdir()
    path.write_text("[" * 100_000)
    state = job.job_state(is_over=False)
    assert state is None or state.mini_batches.total == 0


@pytest.mark.attack
def test_a_turn_whose_record_is_a_link_to_itself_was_started(job: ServedJob) -> None:
    """Otherwise the service would start it a second time."""
    job.folder.joinpath("process.1").unlink(missing_ok=True)
    job.folder.joinpath("process.1").symlink_to("process.1")
    assert job.is_alive() is False
    assert job._was_started() is True
