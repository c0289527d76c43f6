"""Rows that agents put into the job folder by themselves: what counts of them, and what not."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import daskprs
from daskprs._agent.child.outbox import Outbox
from daskprs._core.outcomes import Outcome, Status
from daskprs._folders.job_folder import JobFolder
from daskprs._output.read_rows import read_rows
from daskprs._output.spec import SpoolSpec
from daskprs._output.spool import WRITE_BYTES, AgentSpool, SpoolFile, UnwritableError
from tests.support.formatted import format_result
from tests.support.store_driver import BOTH, TEXT, driving, frame_of, serial

N = 20


def spool_of(folder: Path, *, synced: bool = False) -> AgentSpool:
    """Return a spool in a folder."""
    return AgentSpool(SpoolSpec("0-process000", f"{folder}/text", f"{folder}/typed", synced=synced))


# ---- the file of an agent ----


def test_what_is_appended_is_there_in_order_whatever_its_size(tmp_path: Path) -> None:
    """Small pieces wait for each other, and a large one waits for nobody."""
    file = SpoolFile(str(tmp_path / "rows"))
    sizes = [0, 1, 100, WRITE_BYTES, 1, WRITE_BYTES - 1, 2, 3 * WRITE_BYTES, 7]
    pieces = [os.urandom(size) for size in sizes]
    for number, piece in enumerate(pieces):
        assert file.end == sum(sizes[:number])
        file.append(memoryview(piece))
    file.flush()
    assert (tmp_path / "rows").read_bytes() == b"".join(pieces)
    file.forget()


def test_without_a_byte_there_is_no_file(tmp_path: Path) -> None:
    """A job of many processes that return nothing has nothing to tidy up."""
    file = SpoolFile(str(tmp_path / "rows"))
    file.append(memoryview(b""))
    file.flush()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 2 * WRITE_BYTES])
def test_what_is_cut_off_is_as_if_it_had_never_been(tmp_path: Path, size: int) -> None:
    """The rows of an attempt that failed half way take no room."""
    file = SpoolFile(str(tmp_path / "rows"))
    file.append(memoryview(b"before"))
    begun = file.end
    file.append(memoryview(bytes(size)))
    file.append(memoryview(bytes(size)))
    file.cut(begun)
    assert not size > WRITE_BYTES or (tmp_path / "rows").stat().st_size == begun
    file.append(memoryview(b" behind"))
    file.flush()
    assert (tmp_path / "rows").read_bytes() == b"before behind"
    file.forget()


def test_what_takes_the_place_of_what_was_cut_off_is_synced_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a failed attempt had come to the disk, and those of the next one are as long."""
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append((tmp_path / "rows").read_bytes()))
    file = SpoolFile(str(tmp_path / "rows"), synced=True)
    for rows in (b"failed", b"worked"):
        file.cut(0)
        file.append(memoryview(rows))
        file.flush()
    assert synced == [b"failed", b"worked"]
    file.forget()


def test_another_thread_may_flush_at_any_time(tmp_path: Path) -> None:
    """Outcomes that have waited long enough are sent while the next result is formatted."""
    file = SpoolFile(str(tmp_path / "rows"))
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            file.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    pieces = [bytes([number % 256]) * (number % 400) for number in range(3000)]
    for number, piece in enumerate(pieces):
        begun = file.end
        file.append(memoryview(b"a failed attempt" * (number % 1500)))
        file.cut(begun)
        file.append(memoryview(piece))
    over.set()
    thread.join()
    file.flush()
    assert (tmp_path / "rows").read_bytes() == b"".join(pieces)
    file.forget()


def test_a_fork_cannot_write_into_the_file_of_its_parent(tmp_path: Path) -> None:
    """Its rows would lie where the parent believes its own to be."""
    file = SpoolFile(str(tmp_path / "rows"))
    file.append(memoryview(bytes(WRITE_BYTES + 1)))
    file.forget()
    with pytest.raises(UnwritableError, match="another process's"):
        file.append(memoryview(bytes(WRITE_BYTES + 1)))


@pytest.mark.parametrize("synced", [False, True])
def test_outcomes_are_sent_once_their_rows_can_be_read(tmp_path: Path, synced: bool) -> None:  # noqa: FBT001 - a parameter
    """By a driver on another host that is when they are on the disk."""
    told: list[str] = []

    class Connection:
        def send_bytes(self, _: object) -> None:
            told.append(f"sent {(tmp_path / 'text').stat().st_size}")

    spool = spool_of(tmp_path, synced=synced)
    outbox: Any = Outbox(Connection(), None, spool)  # type: ignore[arg-type] # all that it needs of one
    outbox._wake_the_thread = lambda: True  # no time goes by
    rows = format_result(["a", "b"], TEXT, spool)
    real = os.fdatasync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: (real(fd), told.append("synced")))
        outbox.add(Outcome(0, 1, Status.RUN_DONE, 1, 1, 0, 0, 0, 0, rows.text), rows.payload)
        outbox.flush()
        outbox.add(Outcome(1, 1, Status.RUN_DONE, 1, 0, 0, 0, 0, 0), b"")
        outbox.flush()
    assert told == ["synced", "sent 4", "sent 4"] if synced else ["sent 4", "sent 4"]
    spool.forget()


# ---- the store ----


def test_the_output_is_that_of_a_serial_run_whoever_has_written_which_rows(tmp_path: Path) -> None:
    """Many agents, more than files can be open, and some that do not see the job folder."""
    order = list(range(200))
    random.Random(7).shuffle(order)  # noqa: S311 - any order will do
    target = tmp_path / "rows.txt"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with driving(tmp_path / "job", target, BOTH) as driver:
        for index in order:
            if index % 3:
                agent = driver.new_agent(f"1-process{index:03d}")
                driver.commit(index, frame_of(index), agent=agent)
                agent.forget()
            else:
                driver.commit_carried(index, frame_of(index))
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, most[1]))
        try:
            driver.store.publish()
            rows = read_rows(JobFolder(tmp_path / "job"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert target.read_bytes() == serial(range(200))
    assert rows is not None
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(range(200))
    assert not list((tmp_path / "job").glob("spool.*"))


def test_what_lies_between_the_regions_is_never_looked_at(tmp_path: Path) -> None:
    """Half of a result, of an agent that was killed; a whole one, of an answer that was late."""
    target = tmp_path / "rows.txt"
    with driving(tmp_path / "job", target, BOTH) as driver:
        for index in range(0, N, 2):
            driver.commit(index, frame_of(index))
            format_result(["too late"], BOTH, driver.agent)
        driver.agent.flush()
        os.truncate(tmp_path / "job" / "spool.1" / driver.agent.name, driver.agent.text.end - 3)
    with driving(tmp_path / "job", target, BOTH, resume=True) as driver:
        assert [index for index in range(N) if driver.has(index)] == list(range(0, N, 2))
        for index in range(1, N, 2):
            driver.commit(index, frame_of(index))
        driver.store.publish()
    assert target.read_bytes() == serial(range(N))


def test_a_spool_that_is_gone_costs_what_was_in_it(tmp_path: Path) -> None:
    """The others stand: each commit has a spool of its own to be looked for in."""
    target = tmp_path / "rows.txt"
    with driving(tmp_path / "job", target) as driver:
        other = driver.new_agent("0-process001")
        for index in range(N):
            driver.commit(index, frame_of(index), agent=other if index % 4 else driver.agent)
    (tmp_path / "job" / "spool.1" / "0-process000").unlink()
    with driving(tmp_path / "job", target, resume=True) as driver:
        assert [index for index in range(N) if not driver.has(index)] == list(range(0, N, 4))
        for index in range(0, N, 4):
            driver.commit(index, frame_of(index))
        driver.store.publish()
    assert target.read_bytes() == serial(range(N))


def test_all_spools_are_synced_before_the_journal_that_tells_of_them(tmp_path: Path) -> None:
    """And the folder that they are in, when they are new to it; only those with something new."""
    synced: list[str] = []
    data, whole = os.fdatasync, os.fsync

    def noting(real: object, fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)  # type: ignore[operator] # one of two functions

    with driving(tmp_path / "job", None, TEXT) as driver, pytest.MonkeyPatch.context() as patch:
        other = driver.new_agent("0-process001")
        patch.setattr(os, "fdatasync", lambda fd: noting(data, fd))
        patch.setattr(os, "fsync", lambda fd: noting(whole, fd))
        driver.commit(0, frame_of(0))
        driver.commit(1, frame_of(1), agent=other)
        driver.commit_carried(2, frame_of(2))
        driver.store.publish()
        assert sorted(synced[:3]) == ["0-process000", "0-process001", "driver"]
        assert synced[3:] == ["spool.1", "journal.1"]
        synced.clear()
        driver.commit(3, frame_of(3), agent=other)
        driver.store.publish()
        assert synced == ["0-process001", "journal.1"]


# ---- whole jobs ----


def lines(mini_batch: pd.DataFrame) -> object:
    """Yield long lines; in the first attempt at some mini-batches the process ends half way."""
    number = int(mini_batch["n"].iloc[0])
    for line in range(8):
        yield f"{number} {line} " + "x" * 200_000
        begun = Path(f"../../../begun-{number}")
        if number in (1, 4) and line == 5 and not begun.exists():
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_an_agent_that_dies_in_the_middle_of_a_result_leaves_nothing_of_it(tmp_path: Path) -> None:
    """It had put a megabyte into its spool; the next attempt is that of another process."""
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(6)}),
        lines,
        mini_batch_size=8,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        process_count_per_node=2,
        progress=False,
    )
    assert result.mini_batches.succeeded == 6
    assert len(list((tmp_path / "job").glob("begun-*"))) == 2
    expected = "".join(f"{n} {line} {'x' * 200_000}\n" for n in range(6) for line in range(8))
    assert result.output_file is not None
    assert result.output_file.read_text() == expected
