"""The job folder: its paths, whole files, process names, and one driver at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daskprs._folders.job_folder import JobFolder, default_path
from daskprs._folders.job_lock import MOST_EPOCHS, begun_epochs, has_begun, latest_epoch, locked
from daskprs._system.atomic_file import whole_file
from daskprs._system.file_lock import claimed, held
from daskprs.errors import JobFolderError, JobFolderLocked, worded

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_every_path_lies_in_the_folder_and_no_two_are_the_same(tmp_path: Path) -> None:
    """Names, and functions of node and process."""
    folder = JobFolder(tmp_path / "job")
    members = [getattr(folder, name) for name in dir(JobFolder) if not name.startswith("_")]
    paths = [member for member in members if isinstance(member, Path)]
    paths += [
        path(node, process)
        for path in (
            folder.work,
            folder.process_log,
            folder.stdout,
            folder.stderr,
            folder.entry_script_log,
            folder.tracebacks,
        )
        for node in (0, 1)
        for process in ("process000", "process001")
    ]
    paths += [
        path(epoch)
        for path in (folder.epoch, folder.journal, folder.spools, folder.typed_spools)
        for epoch in (1, 2)
    ]
    assert len(set(paths)) == len(paths)
    assert all(path.is_relative_to(folder.path) for path in paths)


def test_a_job_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Here a file is in its place."""
    (tmp_path / "job").touch()
    with pytest.raises(JobFolderError, match=r"job_dir: .*job cannot be made"):
        JobFolder(tmp_path / "job").create()


@pytest.mark.parametrize("name", ["snapshot", "work", "dropped", "scratch"])
def test_files_that_a_job_would_remove_are_refused(tmp_path: Path, name: str) -> None:
    """A project has such folders, too; an empty one is in nobody's way."""
    (tmp_path / name).mkdir()
    JobFolder(tmp_path).refuse_files_in_the_way()
    (tmp_path / name / "thesis.txt").touch()
    with pytest.raises(JobFolderError, match=rf"{name} is there, and no job has made it"):
        JobFolder(tmp_path).refuse_files_in_the_way()
    (tmp_path / "lock").touch()  # a job was here
    JobFolder(tmp_path).refuse_files_in_the_way()


def test_a_folder_that_is_closed_with_other_files_in_it_is_named(tmp_path: Path) -> None:
    """Once: with what is in it, and how it is kept open."""
    mixed = JobFolder(tmp_path / "mixed")
    mixed.path.mkdir(mode=0o755)
    (mixed.path / "notes.txt").touch()
    told = worded(mixed.create(), lambda option: f"--{option.name}")
    assert f"{mixed} held other files, such as notes.txt, and only its owner may enter it" in told
    assert "keep this one open by --shared. It" in told
    assert mixed.create() == ""


def names_in(folder: Path) -> list[str]:
    """Return what a folder holds."""
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_replaces_the_old_one_in_one_step(tmp_path: Path) -> None:
    """Until it is finished the old one is there."""
    path = tmp_path / "result.txt"
    path.write_text("old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["result.txt"]


def test_a_file_that_fails_half_way_is_not_there_at_all(tmp_path: Path) -> None:
    """Nor is a part of it."""
    with (  # noqa: PT012 - it is raised half way
        pytest.raises(KeyboardInterrupt),
        whole_file(tmp_path / "result.txt") as file,
    ):
        file.write(b"half")
        raise KeyboardInterrupt
    assert names_in(tmp_path) == []


def test_numbers_of_processes_go_on_after_those_of_an_earlier_run(tmp_path: Path) -> None:
    """On each node for itself, whatever was left out."""
    folder = JobFolder(tmp_path)
    assert folder.next_process(0) == 0
    folder.create_logs(0)
    for number in (0, 1, 1003):
        folder.stdout(0, f"process{number:03d}").touch()
    assert folder.next_process(0) == 1004
    assert folder.next_process(1) == 0


# ---- one driver at a time ----


HOLD = """
import sys
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
with locked(JobFolder(sys.argv[1])) as epoch:
    print(epoch, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start another driver, which holds the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        yield process
        process.kill()


def test_a_second_live_driver_is_told_who_is_at_work(
    tmp_path: Path, other_driver: subprocess.Popen[bytes]
) -> None:
    """Process and host of the other one; nothing in the folder is touched."""
    before = names_in(tmp_path)
    with (
        pytest.raises(
            JobFolderLocked, match=f"process {other_driver.pid} on {os.uname().nodename}"
        ),
        locked(JobFolder(tmp_path)),
    ):
        pass
    assert names_in(tmp_path) == before


def test_the_lock_of_a_dead_driver_stands_in_nobodys_way(
    tmp_path: Path, other_driver: subprocess.Popen[bytes]
) -> None:
    """The next one goes on in an epoch of its own."""
    os.kill(other_driver.pid, signal.SIGKILL)
    other_driver.wait()
    assert str(other_driver.pid) in (tmp_path / "lock").read_text()
    with locked(JobFolder(tmp_path)) as epoch:
        assert epoch == 2


def test_each_driver_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    """Numbers only rise, also past those that somebody claimed without the lock."""
    folder = JobFolder(tmp_path)
    assert latest_epoch(folder) == 0
    with locked(folder) as first:
        assert (first, latest_epoch(folder)) == (1, 1)
    folder.epoch(12).touch()
    with locked(folder) as second:
        assert second == 13


def test_what_others_have_put_beside_the_epochs_is_none(tmp_path: Path) -> None:
    """A copy, or the file of an editor."""
    folder = JobFolder(tmp_path)
    for name in ("epoch.2", "epoch.2.bak", "epoch.2~", "epoch.old"):
        (tmp_path / name).touch()
    assert latest_epoch(folder) == 2


def test_a_folder_that_cannot_be_locked_is_refused(tmp_path: Path) -> None:
    """As if it were read-only: here a folder is in the place of the lock."""
    folder = JobFolder(tmp_path)
    folder.lock.mkdir()
    with pytest.raises(JobFolderError, match="lock: it is a folder"), locked(folder):
        pass


def test_a_driver_that_was_refused_has_not_begun(tmp_path: Path) -> None:
    """An epoch without a journal leaves the folder as good as new."""
    folder = JobFolder(tmp_path)
    with locked(folder):
        assert not has_begun(folder)
    folder.journal(1).touch()
    assert has_begun(folder)


def test_whoever_opened_a_claim_before_it_was_removed_does_not_hold_it(tmp_path: Path) -> None:
    """Else two would hold the same name: one the removed file, one the new one."""
    path = tmp_path / "claim"
    with claimed(path, "the file"):
        early = path.open("rb")
    with early, held(path, "the file"):
        assert not os.path.samestat(os.fstat(early.fileno()), path.stat())
        with pytest.raises(JobFolderLocked), held(path, "the file"):
            pass


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("score.py", "score"),
        ("src.score", "src.score"),
        ("main.<locals>.<lambda>", "lambda"),
        ("test.<locals>.Scorer.run", "Scorer.run"),
        ("a b/c", "abc"),
        ("<>", "job"),
        ("x" * 300, "x" * 50),
    ],
)
def test_a_job_folder_is_named_after_what_people_call_the_script(script: str, name: str) -> None:
    """With its time and its number after that, and nothing that a shell would mind."""
    path = default_path(script, "1a2b", "jobs")
    assert re.fullmatch(rf"jobs/{name}-\d{{8}}-\d{{6}}-1a2b", str(path))


def test_the_name_of_a_file_cannot_make_a_look_at_the_epochs_long(tmp_path: Path) -> None:
    """Numbers that no driver has come to are none, whatever they are beside."""
    folder = JobFolder(tmp_path)
    for name in ("epoch.999999999999", "journal.999999999999", "epoch.²", "epoch.007", "epoch.0"):
        (tmp_path / name).touch()
    assert (latest_epoch(folder), has_begun(folder)) == (0, False)
    with locked(folder) as epoch:
        assert epoch == 1
    folder.journal(1).touch()
    assert begun_epochs(folder) == [1]


def test_a_job_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    """Here a circle of links."""
    (tmp_path / "job").symlink_to("job")
    with pytest.raises(JobFolderError, match="job: it cannot be listed: Too many levels"):
        latest_epoch(JobFolder(tmp_path / "job"))


def test_a_folder_whose_epochs_are_used_up_is_refused(tmp_path: Path) -> None:
    """The message names the file with the highest number."""
    (tmp_path / f"epoch.{MOST_EPOCHS}").touch()
    with (
        pytest.raises(JobFolderError, match=rf"epoch\.{MOST_EPOCHS}: .*Remove it"),
        locked(JobFolder(tmp_path)),
    ):
        pass
