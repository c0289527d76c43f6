"""The store: committed once, in input order, published whole, gone on with."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._output.committed_rows import CommittedRows
from daskprs._output.journal.changes import check_unchanged
from daskprs._output.journal.history import History
from daskprs._output.journal.recovery import Resumption, _unfinished
from daskprs._output.publish import ordered_text
from daskprs._output.read_rows import read_rows
from daskprs._output.spec import OutputSpec
from daskprs._system.disk_space import check_room, no_room
from daskprs.errors import JobChanged, JobFolderLocked, JournalError, OutputError
from tests.support.cases import mostly_long
from tests.support.polling import poll_for
from tests.support.store_driver import (
    AGENT,
    BOTH,
    TEXT,
    TYPED,
    driving,
    failed_outcome,
    frame_of,
    mini_batch,
    serial,
)

if TYPE_CHECKING:
    from pathlib import Path

N = 20


def target_of(folder: Path) -> Path:
    """Return the output file of the tests."""
    return folder / "out" / "rows.txt"


def commit_all(folder: Path, indexes: list[int], spec: OutputSpec = TEXT, **options: bool) -> None:
    """Commit mini-batches, and go without publishing."""
    with driving(folder / "job", target_of(folder), spec, **options) as driver:
        for index in indexes:
            driver.commit(index, frame_of(index))


def finish(folder: Path, last: int = N, spec: OutputSpec = TEXT, **options: bool) -> list[int]:
    """Commit what is not committed, publish, and return what had to be done."""
    with driving(folder / "job", target_of(folder), spec, **options) as driver:
        todo = [index for index in range(last) if not driver.has(index)]
        for index in todo:
            driver.commit(index, frame_of(index))
        assert driver.store.publish() == target_of(folder)
    return todo


def spool_in(folder: Path, form: str) -> Path:
    """Return the file of the agent in the first epoch."""
    return folder / "job" / f"{form}.1" / AGENT


def names_in(folder: Path) -> list[str]:
    """Return what a folder holds."""
    return sorted(path.name for path in folder.iterdir())


def flip_a_byte(path: Path, place: int) -> None:
    """Damage a file."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


# ---- order and publishing ----


def test_the_output_is_in_input_order_whatever_order_results_come_in(tmp_path: Path) -> None:
    """Commits come shuffled; the bytes are those of a serial run."""
    order = list(range(200))
    random.Random(7).shuffle(order)  # noqa: S311 - any order will do
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        for index in order:
            driver.commit(index, frame_of(index))
        assert not target_of(tmp_path).exists()
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == serial(range(200))


def test_after_publishing_nothing_of_ours_is_in_the_output_folder(tmp_path: Path) -> None:
    """Neither the claim nor a part; and the spool has gone, since its rows are in the file."""
    finish(tmp_path)
    assert names_in(tmp_path / "out") == ["rows.txt"]
    assert not list((tmp_path / "job").glob("spool.*"))


def test_without_mini_batches_the_output_is_an_empty_file(tmp_path: Path) -> None:
    """An input without items is a completed job."""
    finish(tmp_path, last=0)
    assert target_of(tmp_path).read_bytes() == b""


def test_a_header_is_written_once(tmp_path: Path) -> None:
    """It is that of the mini-batches that have rows; one without any may have none."""
    spec = OutputSpec(text=True, typed=False, header=True)
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        driver.commit(2, frame_of(2))
        driver.commit(0, pd.DataFrame())
        driver.commit(1, frame_of(1))
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == b"mini_batch row name\n" + serial([1, 2])


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("other", [["name", "row", "mini_batch"], ["mini_batch", "row", "title"]])
def test_columns_that_differ_name_both_mini_batches(
    tmp_path: Path, other: list[str], *, header: bool
) -> None:
    """The job fails at once, with and without a header, after two resumes too."""
    spec = OutputSpec(text=True, typed=False, header=header)
    where = rf"mini-batches 4 and 2 .*'mini_batch row name' and '{' '.join(other)}'"
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        driver.commit(4, frame_of(4))
        driver.commit(5, frame_of(5))
    for index in (3, 6):
        with driving(tmp_path / "job", target_of(tmp_path), spec, resume=True) as driver:
            with pytest.raises(OutputError, match=where):
                driver.commit(2, pd.DataFrame([[1, 2, 3]], columns=other))
            driver.commit(index, frame_of(index))
    assert not target_of(tmp_path).exists()


def test_columns_are_compared_with_those_of_any_commit_that_stands(tmp_path: Path) -> None:
    """The journal has their names once; the commit that stands beside them may be gone."""
    spool = spool_in(tmp_path, "spool")
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        for index in range(3):
            driver.commit(index, frame_of(index))
    journal = (tmp_path / "job" / "journal.1").read_text()
    assert journal.count("mini_batch row name") == 1
    flip_a_byte(spool, 0)
    with driving(tmp_path / "job", target_of(tmp_path), resume=True) as driver:
        assert [driver.has(index) for index in range(3)] == [False, True, True]
        with pytest.raises(OutputError, match="mini-batches 1 and 0 returned"):
            driver.commit(0, pd.DataFrame({"a": [1]}))


def test_mixed_columns_are_lines_and_a_warning(tmp_path: Path) -> None:
    """As on Azure's surfaces: the first such mini-batches are named, whichever it is."""
    told: list[str] = []
    spec = OutputSpec(text=True, typed=False, mixed_columns=True)
    one, other = pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [3], "a": [4]})
    with driving(tmp_path / "job", target_of(tmp_path), spec, warn=told.append) as driver:
        driver.commit(0, one)
        driver.commit(1, other)
        driver.commit(2, (frame for frame in (other, one)))
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == b"1 2\n3 4\n3 4\n1 2\n"
    (warning,) = told
    assert warning.startswith("mini-batches 0 and 1 returned frames with different columns: 'a b'")
    with driving(tmp_path / "one", None, spec, warn=told.append) as driver:
        driver.commit(7, (frame for frame in (one, other)))
    assert told[1].startswith("mini-batch 7 returned frames with different columns: 'a b'")


def test_a_series_beside_frames_of_one_column_needs_no_name(tmp_path: Path) -> None:
    """In other mini-batches, and after a resume; the frames have to agree with each other."""
    series, frame, other = (pd.DataFrame({name: [1]}) for name in "xab")
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        driver.commit(0, series["x"])
        driver.commit(1, frame)
        with pytest.raises(OutputError, match=r"mini-batches 1 and 2 returned .* 'a' and 'b'"):
            driver.commit(2, other)
    with driving(tmp_path / "job", target_of(tmp_path), resume=True) as driver:
        with pytest.raises(OutputError, match=r"mini-batches 1 and 2 returned .* 'a' and 'b'"):
            driver.commit(2, other)
        with pytest.raises(OutputError, match=r"mini-batches 1 and 2 returned .* 'a' and 'a b'"):
            driver.commit(2, frame.assign(b=2))
        driver.commit(2, series["x"])
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == b"1\n1\n1\n"


def test_a_folder_that_cannot_be_synced_is_no_failure_and_keeps_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power might undo what is published; a resume makes it durable, and tidies up."""
    real, target = os.fsync, target_of(tmp_path)

    def fsync(fd: int) -> None:
        if os.path.samestat(os.fstat(fd), target.parent.stat()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    with driving(tmp_path / "job", target) as driver, monkeypatch.context() as patch:
        driver.commit(0, frame_of(0))
        patch.setattr(os, "fsync", fsync)
        assert driver.store.publish() == target
        assert driver.store.done
        assert "cannot be synced" in driver.store.complaint
    assert list((tmp_path / "job").glob("spool.*"))
    assert finish(tmp_path, last=1, resume=True) == []
    assert target.read_bytes() == serial([0])
    assert not list((tmp_path / "job").glob("spool.*"))


# ---- the output file ----


def test_an_existing_output_file_is_refused_before_a_job_begins(tmp_path: Path) -> None:
    """It stays as it is, and the job folder can be used once the file is out of the way."""
    target_of(tmp_path).parent.mkdir()
    target_of(tmp_path).write_text("precious")
    with pytest.raises(OutputError, match="overwrite=True"):
        finish(tmp_path)
    assert names_in(tmp_path / "out") == ["rows.txt"]
    target_of(tmp_path).unlink()
    finish(tmp_path)


def test_overwrite_replaces_the_file_only_at_the_moment_of_publishing(tmp_path: Path) -> None:
    """Until then the old one is there; a resume need not say it again."""
    target_of(tmp_path).parent.mkdir()
    target_of(tmp_path).write_text("old")
    commit_all(tmp_path, [1, 0], overwrite=True)
    assert target_of(tmp_path).read_text() == "old"
    finish(tmp_path, resume=True)
    assert target_of(tmp_path).read_bytes() == serial(range(N))


def test_a_file_that_came_up_meanwhile_is_not_overwritten_by_a_resume(tmp_path: Path) -> None:
    """It is not ours, and nobody has said that it may be replaced."""
    commit_all(tmp_path, [1, 0])
    target_of(tmp_path).write_text("somebody else's")
    with pytest.raises(OutputError, match="exists"):
        finish(tmp_path, resume=True)
    assert target_of(tmp_path).read_text() == "somebody else's"


def test_two_jobs_cannot_write_the_same_output_file(tmp_path: Path) -> None:
    """The second is told who is at work; when the first is gone it may."""
    with (
        driving(tmp_path / "job", target_of(tmp_path)),
        pytest.raises(JobFolderLocked, match=rf"process {os.getpid()} on .*use another folder"),
        driving(tmp_path / "other", target_of(tmp_path)),
    ):
        pass
    with driving(tmp_path / "other", target_of(tmp_path)):
        pass


def test_an_output_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Here a file is where the folder should be."""
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError, match=r"output_dir='.*' cannot be written"):
        finish(tmp_path)


def test_an_output_that_another_program_has_made_meanwhile_is_refused_too(tmp_path: Path) -> None:
    """Also by a resume, unless it is told that it may replace it."""
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        driver.commit(0, frame_of(0))
        target_of(tmp_path).write_text("precious")
        with pytest.raises(OutputError, match="exists"):
            driver.store.publish()
    with pytest.raises(OutputError, match="exists"):
        finish(tmp_path, 1, resume=True)
    assert target_of(tmp_path).read_text() == "precious"
    finish(tmp_path, 1, resume=True, overwrite=True)
    assert target_of(tmp_path).read_bytes() == serial(range(1))


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_output_that_was_to_be_replaced_comes_back(tmp_path: Path, epoch: int) -> None:
    """A driver died between the two steps of that; its job folder may be gone."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".rows.txt.job.1.old").write_text("old")
    if epoch == 2:
        (tmp_path / "job").mkdir()
        JobFolder(tmp_path / "job").epoch(1).touch()
    with driving(tmp_path / "job", target_of(tmp_path), overwrite=True) as driver:
        assert driver.store.epoch == epoch
        assert target_of(tmp_path).read_text() == "old"
    assert names_in(tmp_path / "out") == ["rows.txt"]


def test_a_reader_of_the_old_output_reads_it_to_its_end(tmp_path: Path) -> None:
    """The new output is another file, which takes the place of the old one in one step."""
    finish(tmp_path)
    commit_all(tmp_path, [N], resume=True)
    with target_of(tmp_path).open("rb") as reader:
        begun = reader.read(10)
        finish(tmp_path, N + 1, resume=True)
        assert begun + reader.read() == serial(range(N))
    assert target_of(tmp_path).read_bytes() == serial(range(N + 1))


def test_a_driver_that_another_one_has_followed_publishes_nothing(tmp_path: Path) -> None:
    """Its lock was lost, as on a network file system: both would write the same output."""
    job = JobFolder(tmp_path / "job")
    with driving(job.path, target_of(tmp_path)) as driver:
        driver.commit(0, frame_of(0))
        job.epoch(2).touch()
        with pytest.raises(JournalError, match="another driver has taken over"):
            driver.store.publish()
    assert names_in(tmp_path / "out") == []


def test_a_driver_that_another_one_has_followed_has_no_result(tmp_path: Path) -> None:
    """Nor does it write the tables of what has failed: they are the newer driver's."""
    job = JobFolder(tmp_path / "job")
    with driving(job.path, None, TYPED) as driver:
        driver.store.attempt_failed(mini_batch(0), failed_outcome(0), final=True)
        job.epoch(2).touch()
        driver.store.write_failed()
        with pytest.raises(JournalError, match="another driver has taken over"):
            driver.store.publish()
        assert not driver.store.done
    assert not job.failed.exists()


def test_of_two_drivers_the_commit_of_the_newer_one_stands(tmp_path: Path) -> None:
    """It alone may publish; the older one had lost its lock, and has committed all the same."""
    for index in (1, 2):
        with driving(tmp_path / "job", None, TYPED) as driver:
            driver.commit(0, frame_of(index))
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert rows is not None
    pd.testing.assert_frame_equal(rows, frame_of(2))


def test_a_driver_that_another_one_has_followed_touches_no_file_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes an unfinished output of its own, where both believe that the folder is theirs."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    monkeypatch.setattr(ordered_text, "WORTH_ROWS", 1)
    with ExitStack() as older_at_work:
        of_both = tmp_path / "job", target_of(tmp_path)
        older = older_at_work.enter_context(driving(*of_both))
        with driving(*of_both, resume=True) as newer:
            for index in range(N):
                newer.commit(index, frame_of(index))
            poll_for(lambda: any((tmp_path / "out").glob(".*.part")))
            older.commit(0, frame_of(3))
            with pytest.raises(JournalError, match="another driver has taken over"):
                older.store.publish()
            older_at_work.close()
            newer.store.publish()
    assert target_of(tmp_path).read_bytes() == serial(range(N))
    assert names_in(tmp_path / "out") == ["rows.txt"]


def test_an_interrupt_while_files_are_closed_leaves_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C may come in the middle of the last sync."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), driving(tmp_path / "job", target_of(tmp_path)) as driver:
        monkeypatch.setattr("daskprs._output.journal.journal.Syncer.sync", interrupted)
    assert names_in(tmp_path / "out") == []
    assert driver.store.published is None


def test_an_interrupt_while_the_store_is_opened_takes_the_begin_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of a job that has begun; what an earlier driver has committed stays."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    folder = JobFolder(tmp_path / "job")
    for resume in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr("daskprs._output.journal.journal.Syncer.sync", interrupted)
            with (
                pytest.raises(KeyboardInterrupt),
                driving(folder.path, target_of(tmp_path), resume=resume),
            ):
                pass
        assert has_begun(folder) == resume
        with driving(folder.path, target_of(tmp_path), resume=True) as driver:
            driver.commit(int(resume), frame_of(0))
    assert History(folder).commits.column("index").tolist() == [0, 1]


# ---- going on ----


def test_a_commit_outlives_a_driver_that_closes_nothing(tmp_path: Path) -> None:
    """Whoever was told of a commit finds it in the journal at once."""
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        driver.commit(3, frame_of(3))
        shutil.copytree(tmp_path / "job", tmp_path / "died" / "job")
    assert 3 not in finish(tmp_path / "died", resume=True)
    assert target_of(tmp_path / "died").read_bytes() == serial(range(N))


def test_what_an_earlier_driver_wrote_is_synced_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power would take back records of the earlier driver whose rows are published."""
    with monkeypatch.context() as unsynced:
        unsynced.setattr(os, "fdatasync", lambda _: None)  # it dies before it has synced
        commit_all(tmp_path, [0, 1, 2], BOTH)
    synced, sync = [], os.fdatasync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", noted)
    finish(tmp_path, spec=BOTH, resume=True)
    folder = JobFolder(tmp_path / "job")
    wrote = [folder.journal(1), folder.spools(1) / AGENT, folder.typed_spools(1) / AGENT]
    assert set(map(str, wrote)) <= set(synced)


@pytest.mark.parametrize("spec", [TEXT, TEXT._replace(format="jsonl", single_file=True)])
def test_lost_records_of_published_rows_are_named(tmp_path: Path, spec: OutputSpec) -> None:
    """The places of the other rows in the output would be wrong."""
    commit_all(tmp_path, [0, 1, 2], spec)
    finish(tmp_path, spec=spec, resume=True)
    journal = JobFolder(tmp_path / "job").journal(1)
    lines = journal.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'["commits"' in line)
    journal.write_bytes(b"".join(lines[:last]))
    with pytest.raises(JournalError, match=r"is whole, but the journals .* lack the records"):
        finish(tmp_path, spec=spec, resume=True)


def test_a_resume_does_only_the_rest(tmp_path: Path) -> None:
    """What is committed comes out of the spool of an earlier epoch."""
    commit_all(tmp_path, [5, 3, 19])
    commit_all(tmp_path, [0, 4], resume=True)
    assert finish(tmp_path, resume=True) == [i for i in range(N) if i not in {0, 3, 4, 5, 19}]
    assert target_of(tmp_path).read_bytes() == serial(range(N))


def test_the_same_file_given_twice_is_done_twice(tmp_path: Path) -> None:
    """Two mini-batches may be the same by content: the commit of one is not that of the other."""
    twice = Resumption(lambda: (mini_batch(index, "a.csv") for index in range(3)))
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        driver.commit(1, ["once"], identity="a.csv")
    with driving(tmp_path / "job", target_of(tmp_path), resumption=twice) as driver:
        assert driver.has(1, "a.csv")
        assert not driver.has(0, "a.csv")
        assert not driver.has(2, "a.csv")
        assert not driver.has(1, "b.csv")


def test_given_up_mini_batches_get_fresh_tries_and_their_rows_a_place_in_the_file(
    tmp_path: Path,
) -> None:
    """The published file is written anew, out of itself and what is new."""
    with driving(tmp_path / "job", target_of(tmp_path), BOTH) as driver:
        for index in (9, 0, 1, 3, 2, 7):
            driver.commit(index, frame_of(index))
        driver.store.attempt_failed(mini_batch(5), failed_outcome(5), final=True)
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == serial([0, 1, 2, 3, 7, 9])
    for last in (6, 9, N):
        had_to_be_done = finish(tmp_path, last, BOTH, resume=True)
        assert 5 in had_to_be_done or last > 6
        there = sorted({*range(last), 7, 9})
        assert target_of(tmp_path).read_bytes() == serial(there)
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(range(N))


def test_what_was_committed_after_publishing_outlives_its_driver(tmp_path: Path) -> None:
    """Some rows are in the published file behind its header, others in spools of later epochs."""
    spec = OutputSpec(text=True, typed=True, header=True)
    header = b"mini_batch row name\n"
    with driving(tmp_path / "job", target_of(tmp_path), spec) as driver:
        for index in (3, 1, 5):
            driver.commit(index, frame_of(index))
        driver.store.publish()
    commit_all(tmp_path, [2], spec, resume=True)
    flip_a_byte(spool_in(tmp_path, "typed"), 30)  # of the first that was committed: 3
    commit_all(tmp_path, [3, 0], spec, resume=True)
    assert target_of(tmp_path).read_bytes() == header + serial([1, 3, 5])
    assert finish(tmp_path, 4, spec, resume=True) == []
    assert target_of(tmp_path).read_bytes() == header + serial([0, 1, 2, 3, 5])
    assert finish(tmp_path, 6, spec, resume=True) == [4]
    assert target_of(tmp_path).read_bytes() == header + serial(range(6))


def test_a_published_job_has_nothing_left_to_do(tmp_path: Path) -> None:
    """Its file is not even written again."""
    finish(tmp_path)
    before = target_of(tmp_path).stat()
    assert finish(tmp_path, resume=True) == []
    after = target_of(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("damage", ["a byte flipped", "cut short", "gone"])
def test_what_is_published_is_settled_by_checksum_not_by_existence(
    tmp_path: Path, damage: str
) -> None:
    """A file that is no longer what was published is done again."""
    finish(tmp_path)
    match damage:
        case "a byte flipped":
            flip_a_byte(target_of(tmp_path), 40)
        case "cut short":
            os.truncate(target_of(tmp_path), 40)
        case "gone":
            target_of(tmp_path).unlink()
    assert finish(tmp_path, resume=True) == list(range(N))
    assert target_of(tmp_path).read_bytes() == serial(range(N))


@pytest.mark.parametrize("form", ["spool", "typed"])
def test_a_damaged_byte_costs_the_mini_batch_that_it_belongs_to(tmp_path: Path, form: str) -> None:
    """Its commit is dropped, and what is done again is what counts from then on."""
    commit_all(tmp_path, list(range(N)), BOTH)
    path = spool_in(tmp_path, form)
    flip_a_byte(path, path.stat().st_size - 3)
    commit_all(tmp_path, [], BOTH, resume=True)
    assert finish(tmp_path, N, BOTH, resume=True) == [N - 1]
    assert finish(tmp_path, N, BOTH, resume=True) == []
    assert target_of(tmp_path).read_bytes() == serial(range(N))
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(range(N))


@pytest.mark.parametrize("form", ["spool", "typed"])
def test_a_truncated_spool_costs_what_lay_beyond(tmp_path: Path, form: str) -> None:
    """As a loss of power may leave it: the journal knows more than the spool holds."""
    commit_all(tmp_path, list(range(N)), BOTH)
    path = spool_in(tmp_path, form)
    os.truncate(path, path.stat().st_size // 2)
    todo = finish(tmp_path, N, BOTH, resume=True)
    assert todo == list(range(todo[0], N))
    assert 0 < todo[0] < N
    assert target_of(tmp_path).read_bytes() == serial(range(N))


def test_typed_rows_damaged_after_publishing_are_told_and_done_again(tmp_path: Path) -> None:
    """Reading them is an error, never other values; a resume mends it."""
    finish(tmp_path, N, BOTH)
    flip_a_byte(spool_in(tmp_path, "typed"), 30)
    with pytest.raises(JournalError, match=r"mini-batch 0 .* are damaged"):
        read_rows(JobFolder(tmp_path / "job"))
    for _ in range(2):
        finish(tmp_path, N, BOTH, resume=True)
        assert target_of(tmp_path).read_bytes() == serial(range(N))
    rows = read_rows(JobFolder(tmp_path / "job"))
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(range(N))


def test_what_was_published_and_is_done_again_and_fails_is_no_longer_in_the_output(
    tmp_path: Path,
) -> None:
    """Result, table of failures and file tell the same."""
    finish(tmp_path, 4, BOTH)
    flip_a_byte(spool_in(tmp_path, "typed"), 30)
    with driving(tmp_path / "job", target_of(tmp_path), BOTH, resume=True) as driver:
        (left,) = [index for index in range(4) if not driver.has(index)]
        driver.store.attempt_failed(mini_batch(left), failed_outcome(left), final=True)
        driver.store.publish()
    assert target_of(tmp_path).read_bytes() == serial([i for i in range(4) if i != left])
    assert finish(tmp_path, 4, BOTH, resume=True) == [left]
    assert target_of(tmp_path).read_bytes() == serial(range(4))


def test_a_spool_that_is_damaged_while_the_job_runs_publishes_nothing(tmp_path: Path) -> None:
    """Each mini-batch's rows are checked on their way into the file; a resume mends it."""
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        for index in range(N):
            driver.commit(index, frame_of(index))
        flip_a_byte(spool_in(tmp_path, "spool"), 0)
        with pytest.raises(JournalError, match="rows of mini-batch 0 are not those"):
            driver.store.publish()
    assert names_in(tmp_path / "out") == []
    assert finish(tmp_path, resume=True) == [0]
    assert target_of(tmp_path).read_bytes() == serial(range(N))


def test_a_job_whose_epoch_file_was_removed_goes_on(tmp_path: Path) -> None:
    """Its journal says which epoch it was: nothing is done twice, and no number is used twice."""
    commit_all(tmp_path, [0, 1, 2])
    JobFolder(tmp_path / "job").epoch(1).unlink()
    assert finish(tmp_path, resume=True) == list(range(3, N))
    assert target_of(tmp_path).read_bytes() == serial(range(N))


def test_a_driver_whose_epoch_file_was_removed_publishes_all_the_same(tmp_path: Path) -> None:
    """No other driver has taken over: none could without a higher number."""
    with driving(tmp_path / "job", target_of(tmp_path)) as driver:
        driver.commit(0, frame_of(0))
        JobFolder(tmp_path / "job").epoch(1).unlink()
        assert driver.store.publish() == target_of(tmp_path)


def test_a_driver_whose_journal_was_removed_says_so(tmp_path: Path) -> None:
    """Without the files of its epoch a driver cannot know whether it is alone."""
    job = JobFolder(tmp_path / "job")
    with driving(job.path, target_of(tmp_path)) as driver:
        for file in (job.epoch(1), job.journal(1)):
            file.unlink()
        for folder in (job.spools(1), job.typed_spools(1)):
            shutil.rmtree(folder, ignore_errors=True)
        with pytest.raises(JournalError, match=r"journal\.1 was removed while the job was at work"):
            driver.store.publish()


def test_only_a_full_disk_asks_for_room(tmp_path: Path) -> None:
    """Agents send the error as text; what is missing is not missing for want of room."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "spool.1/a")
    for error in (full, OSError(str(full))):
        assert re.search(r" bytes are free\).*make room, and resume", no_room(tmp_path, error))
    missing = no_room(tmp_path, OSError(errno.ENOENT, os.strerror(errno.ENOENT), "spool.1/a"))
    assert "room" not in missing
    assert "free" not in missing
    assert missing.endswith("mend the folder, and resume the job.")


def test_the_room_that_is_missing_is_told_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never 0 MiB, and never as much as there is."""
    for free, size, told in (
        (100, 3000, "needs 3,000 bytes more in .*, and 100 bytes are free"),
        ((5 << 20) + 1, (5 << 20) + 7, "needs 5,242,887 bytes .*, and 5,242,881 bytes are free"),
        (1 << 20, 9 << 20, "needs 9 MiB more in .*, and 1 MiB are free"),
    ):
        usage = shutil._ntuple_diskusage(1 << 40, 0, free)  # type: ignore[attr-defined]
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        with pytest.raises(OutputError, match=told):
            check_room(tmp_path, size)


@pytest.mark.parametrize("cuts", mostly_long(["some", "all"], suite=["some"]))
def test_a_torn_journal_costs_the_commits_behind_the_tear(cuts: str, tmp_path: Path) -> None:
    """Cut within its last two records, it is read up to the last whole line."""
    commit_all(tmp_path, [0, 1, 2])
    journal = tmp_path / "job" / "journal.1"
    whole = journal.read_bytes()
    third = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    second = whole.rindex(b"\n", 0, third - 1) + 1
    of_suite = {second, second + 1, third - 1, third, third + 1, len(whole) - 1}
    for length in range(second, len(whole)):
        if cuts == "some" and length not in of_suite:
            continue
        journal.write_bytes(whole[:length])
        with driving(tmp_path / "job", target_of(tmp_path), resume=True) as driver:
            assert [driver.has(i) for i in range(3)] == [True, length >= third, False]
    finish(tmp_path, resume=True)
    assert target_of(tmp_path).read_bytes() == serial(range(N))


@pytest.mark.parametrize("every", mostly_long([25, 1], suite=[25]))
def test_a_flipped_bit_anywhere_in_a_commit_drops_it(every: int, tmp_path: Path) -> None:
    """The checksum is over the whole line."""
    commit_all(tmp_path, [0])
    journal = tmp_path / "job" / "journal.1"
    whole = journal.read_bytes()
    places = range(whole.rindex(b"\n", 0, -1) + 1, len(whole))
    for place in (*places[::every], places[-1]):
        journal.write_bytes(whole)
        flip_a_byte(journal, place)
        with driving(tmp_path / "job", target_of(tmp_path), resume=True) as driver:
            assert not driver.has(0), whole[place:]


def test_rows_of_a_job_whose_journal_has_no_record_yet_are_to_come(tmp_path: Path) -> None:
    """What follows it does not say that it keeps none."""
    commit_all(tmp_path, [0])
    job = JobFolder(tmp_path / "job")
    job.journal(1).write_bytes(b"")
    assert list(CommittedRows(job).new(is_complete=False)) == []


def test_a_job_that_has_changed_says_which_part(tmp_path: Path) -> None:
    """Inputs, script and options are compared value by value."""
    then = {
        "input": {"files": {"/in/a": "1", "/in/b": "1"}, "size": 1},
        "script": {"files": {"old.py": "1", "same.py": "1"}, "object": ""},
        "options": {"sep": " ", "dtypes": {"a": "int64"}},
    }
    now = {
        "input": {"files": {"/in/a": "2", "/in/b": "1", "/in/c": "1"}, "size": 1},
        "script": {"files": {"same.py": "2", "new.py": "1", "notes.txt": "1"}, "object": "9"},
        "options": {"sep": ",", "dtypes": {"a": "str"}},
    }
    with driving(tmp_path / "job", None, TYPED, then) as driver:
        driver.commit(0, frame_of(0))
    with (
        pytest.raises(JobChanged) as refused,
        driving(tmp_path / "job", None, TYPED, now, resume=True),
    ):
        pass
    assert str(refused.value).splitlines()[1:-1] == [
        "  of the input, /in/a has changed",
        "  of the input, /in/c is new",
        "  dtypes of a was 'int64' and is 'str'",
        "  sep was ' ' and is ','",
        "  in the script's folder, new.py is new",
        "  in the script's folder, old.py is gone",
        "  in the script's folder, same.py has changed",
        "  the function or object that is the script has changed",
    ]
    assert "without resume=True and with another job_dir" in str(refused.value)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ({"a": "1", "b": "1"}, {"b": "1", "a": "1"}, "in another order"),
        ("digest", "another", "the files of the input are not the same"),
    ],
)
def test_the_order_of_inputs_counts_and_a_million_of_them_have_one_digest(
    tmp_path: Path, then: Any, now: Any, told: str
) -> None:
    """What comes first in the output is what comes first in the input."""
    with driving(tmp_path / "job", None, TYPED, {"input": {"files": then}}) as driver:
        driver.commit(0, frame_of(0))
    with (
        pytest.raises(JobChanged, match=told),
        driving(tmp_path / "job", None, TYPED, {"input": {"files": now}}, resume=True),
    ):
        pass


def test_the_form_of_text_is_a_change_that_nothing_accepts(tmp_path: Path) -> None:
    """What is done has no header: a file would begin without, or have fields of two kinds."""
    header = "append_row_dataframe_header"
    with driving(tmp_path / "job", None, TYPED, {"options": {header: False, "x": 1}}) as driver:
        driver.commit(0, frame_of(0))
    now = {"options": {header: True, "x": 2}}
    accepting = Resumption(lambda: map(mini_batch, range(9)), accepted=["options"])
    with (
        pytest.raises(JobChanged, match=f"\n  {header} was False and is True\nPut") as refused,
        driving(tmp_path / "job", None, TYPED, now, resumption=accepting),
    ):
        pass
    assert "accept_changes" not in str(refused.value)


def test_a_notebook_beside_the_script_is_no_change(tmp_path: Path) -> None:
    """Its editor saves it every few minutes, and no script imports it."""
    then = {"script": {"files": {"a.py": "1", "work.ipynb": "1"}}}
    now = {"script": {"files": {"a.py": "1", "work.ipynb": "2"}}}
    with driving(tmp_path / "job", None, TYPED, then) as driver:
        driver.commit(0, frame_of(0))
    with driving(tmp_path / "job", None, TYPED, now, resume=True):
        pass


def test_data_that_is_new_beside_the_script_is_no_change(tmp_path: Path) -> None:
    """The outputs of other jobs, notes, the price list that was missing; nor the job's own log."""
    then = {"script": {"files": {"a.py": "1", "log.txt": "", "last.txt": "1"}}}
    now = {"script": {"files": {"a.py": "1", "out/rows.txt": "1", "last.txt": ""}}}
    with driving(tmp_path / "job", None, TYPED, then) as driver:
        driver.commit(0, frame_of(0))
    with driving(tmp_path / "job", None, TYPED, now, resume=True):
        pass


def test_a_file_of_the_script_that_is_input_now_is_no_change() -> None:
    """As where a folder beside the script becomes one of the inputs."""
    then, now = (
        {"script": {"files": files}} for files in ({"a.py": "1", "in/x": "1"}, {"a.py": "1"})
    )
    check_unchanged(then, now, is_input={"in/x"}.__contains__)
    with pytest.raises(JobChanged, match="in the script's folder, in/x is gone"):
        check_unchanged(then, now, is_input={"a.py"}.__contains__)


def test_the_change_of_an_output_with_rows_of_nulls_names_the_option() -> None:
    """Both runs give `on_error`, under which nobody would look for an output."""
    with pytest.raises(JobChanged, match="on_error='null' is given now, and was not"):
        check_unchanged({"output": {"text": True}}, {"output": {"text": True, "errors": True}})


def test_a_job_that_has_nothing_to_show_may_change(tmp_path: Path) -> None:
    """A script that failed at once is mended, and goes on; from the first commit on it stands."""
    bad, good = ({"script": {"files": {"a.py": version}}} for version in ("1", "2"))
    with driving(tmp_path / "job", None, TYPED, bad):
        pass
    with driving(tmp_path / "job", None, TYPED, good, resume=True) as driver:
        driver.commit(0, frame_of(0))
    with driving(tmp_path / "job", None, TYPED, good, resume=True) as driver:
        assert driver.has(0)
    with pytest.raises(JobChanged), driving(tmp_path / "job", None, TYPED, bad, resume=True):
        pass


def test_a_fingerprint_means_the_same_before_and_after_json(tmp_path: Path) -> None:
    """Tuples, and keys that are numbers."""
    fingerprint = {"keys": ("a", "b"), "sizes": {1: 2.0}}
    with driving(tmp_path / "job", None, TYPED, fingerprint):
        pass
    with driving(tmp_path / "job", None, TYPED, fingerprint, resume=True):
        pass


@pytest.mark.parametrize(
    ("count", "left", "text"),
    [(1, 1, "of 1 mini-batch of"), (3, 1, "1 has neither"), (3, 2, "2 have neither")],
)
def test_what_a_job_lacks_is_said_in_the_right_number(
    tmp_path: Path, count: int, left: int, text: str
) -> None:
    """One mini-batch has no rows, two have none."""
    assert text in _unfinished(JobFolder(tmp_path), count, left)
