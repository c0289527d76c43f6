"""`daskprs clean`: old job folders go, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._job import cleaning
from daskprs._job.cleaning import Cleaning, is_job_folder
from daskprs.errors import JobFolderError
from tests.support.object_store import SENDS, object_store

if TYPE_CHECKING:
    from collections.abc import Callable

OLD_S = 10 * 86_400
FRAME = pd.DataFrame({"n": range(4)})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a Completed job, one with output, and a Failed one, all made now."""
    root = tmp_path_factory.mktemp("made")
    options = {"progress": False, "start_method": "inline", "run_max_try": 1}
    daskprs.parallel_run(FRAME, lambda rows: rows, job_dir=root / "rows", **options)
    place = {"job_dir": root / "text", "output_dir": root / "text" / "output"}
    daskprs.parallel_run(FRAME, lambda rows: rows, **place, **options)
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(FRAME, lambda rows: rows / None, job_dir=root / "failed", **options)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a root of jobs that has them as old ones."""
    monkeypatch.chdir(tmp_path)
    root = shutil.copytree(made, tmp_path / "daskprs-jobs", copy_function=shutil.copy2)
    for folder in root.iterdir():
        age(folder)
    return root


def age(folder: Path, seconds: float = OLD_S) -> None:
    """Make a folder, and what lies directly in it, older."""
    then = time.time() - seconds
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def clean(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, ("clean", *words), prog_name="daskprs")


def names(folder: Path) -> set[str]:
    """Return what lies in a folder."""
    return {path.name for path in folder.iterdir()}


def test_old_completed_jobs_go_and_their_output_is_named(root: Path) -> None:
    """A dry run says the same, and removes nothing."""
    shown = clean("--older-than", "7d", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert names(root) == {"failed", "rows", "text"}
    removed = clean("--older-than", "1w")
    assert removed.exit_code == 0, removed.output
    assert names(root) == {"failed"}
    assert removed.stdout == shown.stdout.replace("would remove ", "removed      ").replace(
        "would be removed", "removed"
    )
    first, rows, second, output, sums = removed.stdout.splitlines()
    assert first.startswith(f"removed       {root / 'rows'}  Completed, 10 d 0 h old, ")
    assert rows.strip() == "with the rows that to_pandas() reads"
    assert second.startswith(f"removed       {root / 'text'}  Completed, 10 d 0 h old, ")
    assert output.strip() == f"with its output {root / 'text' / 'output'}"
    assert sums.startswith("2 job folders removed, ")
    assert sums.endswith("1 job folder kept: 1 Failed.")


def test_other_statuses_go_only_by_name(root: Path) -> None:
    """A folder that a driver has left before its job began is that of a job that died."""
    journal = JobFolder(root / "rows").journal(1)
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:1]))
    (root / "refused").mkdir()
    shutil.copy2(root / "rows" / "job.json", root / "refused")
    for name in ("rows", "refused"):
        age(root / name)
    assert clean("--older-than", "7d", "--status", "Failed").exit_code == 0
    assert names(root) == {"rows", "refused", "text"}
    assert clean("--older-than", "7d", "--status", "Died").exit_code == 0
    assert names(root) == {"text"}


def test_young_jobs_stay_and_so_does_one_in_which_something_has_changed(root: Path) -> None:
    """The age is that of the last change."""
    assert clean("--older-than", "11d").exit_code == 0
    (root / "text" / "new").touch()
    done = clean("--older-than", "7d")
    assert done.exit_code == 0
    assert names(root) == {"failed", "text"}
    assert "kept: 1 Failed, 1 younger." in done.stdout


def test_a_job_with_a_driver_at_work_stays(root: Path) -> None:
    """Whatever its age, and also where the driver comes between the look and the removal."""
    cleaning = Cleaning(root, 0, ["Completed"])
    (rows, *_) = (job for job in cleaning.found() if job.job_dir.name == "rows")
    with locked(JobFolder(root / "rows")):
        age(root / "rows", 2 * OLD_S)
        done = clean("--older-than", "0s", "--status", "Completed", "--status", "Died")
        assert done.exit_code == 0
        assert "rows" in names(root)
        assert "1 Running" in done.stdout
        assert cleaning.remove(rows) == "a driver is at work in it"
    JobFolder(root / "rows").epoch(3).touch()
    assert cleaning.remove(rows) == "it has changed meanwhile"
    assert (root / "rows" / "job.json").exists()


def test_a_file_that_goes_while_its_folder_is_looked_at_is_a_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver has just come; the folder was said to be removed, and was not."""
    cleaning = Cleaning(root, 0, ["Completed"])
    (rows, *_) = (job for job in cleaning.found() if job.job_dir.name == "rows")
    half, lstat = root / "rows" / "half.part", Path.lstat
    half.touch()
    age(root / "rows")

    def just_gone(path: Path) -> os.stat_result:
        if path == half:
            half.unlink()
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", just_gone)
    assert cleaning.remove(rows) == "it has changed meanwhile"
    assert (root / "rows" / "job.json").exists()


def test_what_is_no_job_folder_stays(root: Path) -> None:
    """A link to a job folder, a folder with files of the same names, and others' work."""
    shutil.move(root / "rows", root.parent / "elsewhere")
    (root / "link").symlink_to(root.parent / "elsewhere")
    (root / "training").mkdir()
    (root / "training" / "job.json").write_text('{"epochs": 3}')
    (root / "training" / "epoch.1").touch()
    (root / "pipeline").mkdir()
    (root / "pipeline" / "pipeline.json").write_text("{}")
    (root / ".mine.daskprs-removed").mkdir()
    (root / ".mine.daskprs-removed" / "thesis.tex").touch()
    (root / "notes.txt").touch()
    outside = root.parent / "outside"
    outside.write_text("mine")
    (root / "text" / "lock").unlink()
    (root / "text" / "lock").symlink_to(outside)
    assert not is_job_folder(root / "text")
    before = names(root)
    done = clean("--older-than", "0s")
    assert done.exit_code == 0
    assert names(root) == before
    assert "0 job folders removed" in done.stdout
    assert "Left alone: 5 others." in done.stdout
    assert outside.read_text() == "mine"


def test_links_in_a_job_folder_are_removed_and_not_followed(root: Path) -> None:
    """What lies outside stays: an output elsewhere, a model that was linked."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "rows.txt").write_text("mine")
    shutil.rmtree(root / "text" / "output")
    (root / "text" / "output").symlink_to(outside)
    (root / "text" / "model").mkdir()
    (root / "text" / "model" / "model.bin").hardlink_to(outside / "rows.txt")
    age(root / "text")
    assert clean("--older-than", "7d").exit_code == 0
    assert names(root) == {"failed"}
    assert (outside / "rows.txt").read_text() == "mine"


def test_a_removal_that_was_cut_off_is_finished(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name of a job folder shows half of one."""

    def cut(path: Path) -> None:
        raise KeyboardInterrupt(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        assert clean("--older-than", "7d").exit_code == 130
    assert names(root) == {".rows.daskprs-removed", "failed", "text"}
    assert clean("--older-than", "7d", "--dry-run").exit_code == 0
    assert ".rows.daskprs-removed" in names(root)
    assert clean("--older-than", "7d").exit_code == 0
    assert names(root) == {"failed"}


def test_a_folder_that_cannot_be_removed_is_named_and_the_others_go(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says that something is left to do."""
    rename: Callable[[Path, Path], Path] = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "rows":
            raise PermissionError(13, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    done = clean("--older-than", "7d")
    assert done.exit_code == 42
    assert f"stays         {root / 'rows'}: it cannot be removed: [Errno 13]" in done.stderr
    assert names(root) == {"failed", "rows"}


def test_a_folder_that_stays_half_removed_does_not_keep_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cleaning tries it again, names it, and goes on."""

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "remove_tree", refused)
        assert clean("--older-than", "7d", "--status", "Failed").exit_code == 42
        done = clean("--older-than", "7d", "--status", "Failed")
        assert done.exit_code == 42
        assert ".failed.daskprs-removed: it cannot be removed: [Errno 13]" in done.stderr
        looked_at: Callable[[JobFolder], str] = cleaning._status

        def unreadable(folder: JobFolder) -> str:
            if folder.path.name == "rows":
                refused(folder.path)
            return looked_at(folder)

        patch.setattr(cleaning, "_status", unreadable)
        done = clean("--older-than", "7d", "--dry-run")
        assert f"{root / 'rows'}: it cannot be read: [Errno 13]" in done.stderr
        assert str(root / "text") in done.stdout
    assert clean("--older-than", "7d").exit_code == 0
    assert names(root) == set()


def test_the_root_is_an_argument_or_that_of_dasks_config(root: Path) -> None:
    """A job folder is no root; a wrong age is refused."""
    elsewhere = root.rename(root.parent / "elsewhere")
    assert clean("--older-than", "7d").exit_code == 2
    with dask.config.set({"daskprs.job-root": str(elsewhere)}):
        assert "2 job folders would" in clean("--older-than", "7d", "--dry-run").stdout
    assert "2 job folders would" in clean(str(elsewhere), "--older-than", "7d", "--dry-run").stdout
    one = clean(str(elsewhere / "rows"), "--older-than", "7d")
    assert one.exit_code == 2
    assert f"is a job folder itself. Name the folder that contains it, {elsewhere}" in one.stderr
    for wrong in ("7", "d", "-1d", "7y"):
        assert clean("--older-than", wrong).exit_code == 2
    assert clean().exit_code == 2


@pytest.mark.long
def test_uploads_that_a_driver_left_open_are_aborted(root: Path, tmp_path: Path) -> None:
    """A store that does not answer keeps the folder, which alone knows of them."""
    failed = root / "failed"
    words = ["-m", "daskprs", "clean", str(root), "--older-than", "7d", "--status", "Failed"]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, *words]
        environment = {**os.environ, **store.environment}
        return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)

    with object_store(tmp_path / "log") as store:
        store.put("bucket")
        (tmp_path / "part").write_bytes(b"rows")
        send = (SENDS, "s3://bucket/rows.parquet", str(failed / "uploads"), str(tmp_path / "part"))
        call("-c", *send, "part-0").check_returncode()
        assert len(store.open_uploads("bucket")) == 1
        age(failed)
        answers, store.environment["AWS_ENDPOINT_URL"] = store.endpoint, "http://127.0.0.1:9"
        done = call(*words)
        assert done.returncode == 42
        assert f"stays         {failed}: 1 uploads are left open" in done.stderr
        store.environment["AWS_ENDPOINT_URL"] = answers
        assert call(*words).returncode == 0
        assert store.open_uploads("bucket") == []
    assert names(root) == {"rows", "text"}


def test_programs_get_json(root: Path) -> None:
    """Each job folder, with its fate."""
    done = clean("--older-than", "7d", "--json")
    assert done.exit_code == 0
    found = {Path(one["job_dir"]).name: one for one in json.loads(done.stdout)}
    assert {name: one["removed"] for name, one in found.items()} == {
        "failed": False,
        "rows": True,
        "text": True,
    }
    assert found["text"]["output"] == str(root / "text" / "output")
    assert found["rows"]["has_rows"] is True
    assert found["failed"]["stays"] == "Failed"
    assert found["rows"]["size_bytes"] > 0


def test_a_result_whose_folder_is_gone_says_so(made: Path, tmp_path: Path) -> None:
    """In words, by whatever reads its rows; and so it does where only its rows are gone."""
    result = daskprs.ParallelRun.of(made / "rows").result()
    here = shutil.copytree(made / "rows", tmp_path / "job")
    result = type(result).of({**result.record(), "job_dir": str(here)})
    assert len(result.to_pandas()) == len(FRAME)
    (spool,) = (path for path in (here / "typed.1").iterdir() if path.stat().st_size)
    spool.unlink()
    readers = [
        result.to_pandas,
        result.to_arrow,
        result.to_polars,
        lambda: [*result.iter_batches()],
    ]
    for read in readers:
        with pytest.raises(daskprs.DaskprsError, match=r"mini-batch 0 in .* are gone. Run the job"):
            read()
    shutil.rmtree(here / "typed.1")
    os.utime(here / "journal.1")  # as one that this process has not read yet
    for read in readers:
        with pytest.raises(JobFolderError, match=r"kept with their types are gone.*resume=True"):
            read()
    shutil.rmtree(here)
    of_failures = lambda: result.failed, lambda: result.failed_rows, lambda: result.failed_file
    for read in (*readers, *of_failures):
        with pytest.raises(JobFolderError, match=f"the job folder {here} is gone, or "):
            read()
