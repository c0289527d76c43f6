"""Fill a disk of one or two megabytes, in a mount namespace of its own.

``unshare --map-root-user --mount python small_disk.py MOUNT_POINT STORY``; `STORY` is a function
below. Says what went wrong, and exits with 0 when nothing did.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.status import state_of
from daskprs._output.journal.history import History
from daskprs._output.read_rows import read_rows
from daskprs._output.spec import SpoolSpec
from daskprs._output.spool import AgentSpool, UnwritableError
from daskprs.errors import JobFolderError, OutputError
from tests.support.datasets import PARQUET
from tests.support.formatted import format_result
from tests.support.store_driver import BOTH, TEXT, Driver, driving

N = 40
MANY = 1000
ROWS = ["x" * 99] * 1000


def lines(index: int) -> list[str]:
    """Return 100 kB of lines."""
    return [f"{index:03d} {row[4:]}" for row in ROWS]


def whole() -> bytes:
    """Return the bytes of an undisturbed run."""
    return "".join(f"{line}\n" for index in range(N) for line in lines(index)).encode()


def resize(disk: Path, size: str, *, new: bool = False) -> None:
    """Mount a disk, or make it larger or smaller."""
    options = ["-o", f"size={size}"] if new else ["-o", f"remount,size={size}"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(disk)], check=True)  # noqa: S607


def fill(disk: Path) -> None:
    """Write a file until not one more byte fits."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass


def commit(driver: Driver, results: dict[int, list[str]], committed: list[int]) -> None:
    """Commit as many as go."""
    for index, result in results.items():
        driver.commit(index, result)
        committed.append(index)


def spool(disk: Path) -> None:
    """Let the disk of the job folder fill up while results come in."""
    target = disk.parent / "rows.txt"
    committed: list[int] = []
    full = pytest.raises(OutputError, match=r"No space left .* make room, and resume the job")
    with driving(disk / "job", target, BOTH) as driver, full:
        commit(driver, {index: lines(index) for index in range(N)}, committed)
    assert 2 < len(committed) < N, committed
    assert not target.exists()
    resize(disk, "20m")
    finish(disk / "job", target, committed)


def journal(disk: Path) -> None:
    """Let the disk fill up to the last byte, so that not even a journal line fits."""
    target = disk.parent / "rows.txt"
    committed = [0]
    with driving(disk / "job", target, TEXT) as driver:
        driver.commit(0, lines(0))
        with pytest.raises(OSError, match="No space left"):
            fill(disk)
        nothing_for_the_spool: dict[int, list[str]] = {index: [] for index in range(1, MANY)}
        with pytest.raises(OutputError, match="No space left"):
            commit(driver, nothing_for_the_spool, committed)
    assert len(committed) < MANY
    (disk / "ballast").unlink()
    with driving(disk / "job", target, TEXT, resume=True) as driver:
        assert [index for index in range(MANY) if driver.has(index)] == committed
        driver.store.publish()
    assert target.read_bytes() == "".join(f"{line}\n" for line in lines(0)).encode()


def output(disk: Path) -> None:
    """Find no room on the disk of the output, before anything is written to it."""
    job, target = disk.parent / "job", disk / "rows.txt"
    with driving(job, target, BOTH) as driver:
        for index in range(N):
            driver.commit(index, lines(index))
        with pytest.raises(OutputError, match="the output needs 3 MiB"):
            driver.store.publish()
    assert list(disk.iterdir()) == []
    resize(disk, "20m")
    finish(job, target, list(range(N)))


def part(disk: Path) -> None:
    """Fail in the middle of writing the output: here a limit of the process stops it."""
    resize(disk, "20m")
    job, target = disk / "job", disk / "rows.txt"
    with driving(job, target, BOTH) as driver:
        for index in range(N):
            driver.commit(index, lines(index))
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, unlimited[1]))
        with pytest.raises(OutputError, match=r"the output cannot be written.*File too large"):
            driver.store.publish()
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert [path.name for path in disk.iterdir() if "part" in path.name] == []
    assert [path.name for path in disk.iterdir()] == ["job"]
    finish(job, target, list(range(N)))


def data_set(disk: Path) -> None:
    """Let parts of a data set fill their disk while results come in: they give the room back."""
    job, target = disk.parent / "job", disk / "rows.arrow"
    spec = PARQUET._replace(format="arrow", file_size_bytes=500_000)
    with driving(job, target, spec) as driver:
        for index in range(N):
            driver.commit(index, lines(index))
        with pytest.raises(OutputError, match=r"cannot be written.*No space left.*[Mm]ake room"):
            driver.store.publish()
    assert list(disk.iterdir()) == []
    resize(disk, "20m")
    with driving(job, target, spec, resume=True) as driver:
        assert all(driver.has(index) for index in range(N))
        driver.store.publish()
    rows = pyarrow.dataset.dataset(target, format="arrow").to_table()["result"].to_pylist()
    assert "".join(f"{row}\n" for row in rows).encode() == whole()


def agent(disk: Path) -> None:
    """Let a large result fill the disk: it is taken back, and nothing else is lost with it."""
    spool = AgentSpool(SpoolSpec("0-process000", f"{disk}/text", f"{disk}/typed", synced=True))
    format_result(lines(0), BOTH, spool)
    with pytest.raises(UnwritableError, match=r"No space left on device: .*/(text|typed)"):
        format_result((bytes(1000).hex() for _ in range(10_000)), BOTH, spool)
    format_result(lines(1), BOTH, spool)
    spool.flush()
    expected = "".join(f"{line}\n" for index in (0, 1) for line in lines(index))
    assert (disk / "text").read_bytes() == expected.encode()


def of_a_large_result(disk: Path) -> None:
    """Let one mini-batch of a job make more than there is room for: it is not to blame."""
    target = disk.parent / "out" / "parallel_run_step.txt"
    options: dict[str, Any] = {"arguments": ["--much"], "run_max_try": 1}
    with pytest.raises(daskprs.ParallelRunFailed, match="No space left") as caught:
        run(disk, **options)
    assert "make room, and resume the job" in str(caught.value)
    assert caught.value.result is not None
    assert caught.value.result.mini_batches.failed == 0
    assert list(target.parent.iterdir()) == []
    resize(disk, "80m")
    assert run(disk, **options, resume=True).mini_batches.succeeded == N
    assert target.read_bytes() == whole() + bytes(10_000_000).hex().encode() + b"\n"


def of_a_job(disk: Path) -> None:
    """Let a whole job fill the disk of its folder with results."""
    target = disk.parent / "out" / "parallel_run_step.txt"
    with pytest.raises(daskprs.ParallelRunFailed, match="No space left") as caught:
        run(disk)
    assert "make room, and resume the job" in str(caught.value)
    assert "resume=True" in str(caught.value)
    committed = commits_in(disk)
    assert 2 < len(committed) < N
    assert caught.value.result is not None
    assert caught.value.result.mini_batches.succeeded == len(committed), "the result says too much"
    assert list(target.parent.iterdir()) == []
    resize(disk, "40m")
    assert run(disk, resume=True).mini_batches.succeeded == N
    assert target.read_bytes() == whole()
    assert sorted(commits_in(disk)) == list(range(N)), "done twice, or not kept"


def of_a_frame(disk: Path) -> None:
    """Give a job a frame that is larger than the disk: it says how much room the frame needs."""
    frame = pd.DataFrame({"n": range(N), "text": ["x" * 100_000] * N})
    refused = begin(disk, frame)
    assert re.search(r"The input needs about 4,00\d,\d{3} bytes there", refused), refused
    with pytest.raises(JobFolderError, match=r"interrupted\. Call it again, with the same folder"):
        state_of(JobFolder(disk / "job"))
    resize(disk, "20m")
    assert begin(disk, frame) == "Completed"


def of_keys(disk: Path) -> None:
    """Bring rows of files together on a disk that is too small for them."""
    for number in range(4):
        rows = pd.DataFrame({"n": range(10), "text": ["x" * 100_000] * 10})
        rows.to_parquet(disk.parent / f"{number}.parquet", compression=None)
    data = str(disk.parent / "*.parquet")
    refused = begin(disk, data, partition_keys="n")
    assert re.search(r"The input needs about [\d,]+ bytes there", refused), refused
    resize(disk, "20m")
    assert begin(disk, data, partition_keys="n") == "Completed"


def of_a_call(disk: Path) -> None:
    """Fill the disk to the last byte, so that not even the call can be saved."""
    with pytest.raises(OSError, match="No space left"):
        fill(disk)
    begin(disk, pd.DataFrame({"n": [1]}))
    (disk / "ballast").unlink()
    assert begin(disk, pd.DataFrame({"n": [1]})) == "Completed"


def begin(disk: Path, data: Any, **options: Any) -> str:
    """Run a job whose input takes room; return its status, or the error of one without room."""
    try:
        result = daskprs.parallel_run(
            data,
            lambda rows: rows["n"],
            job_dir=disk / "job",
            output_dir=disk.parent / "out",
            process_count_per_node=1,
            progress=False,
            **options,
        )
    except OutputError as error:
        said = str(error)
        assert said.startswith(f"the job has not begun, since the disk of {disk / 'job'} is full")
        assert "bytes are free)" in said
        assert "Make room there, or use another folder, and call the job again" in said
        return said
    return str(result.status)


def of_logs(disk: Path) -> None:
    """Let the script's own printing fill it: the first commits that find no room end the job."""
    target = disk.parent / "out" / "parallel_run_step.txt"
    with pytest.raises(daskprs.ParallelRunFailed, match="No space left"):
        run(disk, arguments=["--talkative"])
    assert list(target.parent.iterdir()) == []
    resize(disk, "80m")
    assert run(disk, arguments=["--talkative"], resume=True).mini_batches.succeeded == N
    assert target.read_bytes() == whole()


def run(disk: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job that makes the lines, one mini-batch each."""
    return daskprs.parallel_run(
        pd.DataFrame({"n": range(N)}),
        lines_of,
        job_dir=disk / "job",
        output_dir=disk.parent / "out",
        keep_rows=True,
        mini_batch_size=1,
        process_count_per_node=2,
        progress=False,
        **options,
    )


def lines_of(mini_batch: pd.DataFrame) -> list[str]:
    """Return the lines of a mini-batch, and print them if told to."""
    made = lines(int(mini_batch["n"].iloc[0]))
    if "--much" in sys.argv and made[0].startswith(f"{N - 1:03d}"):
        made.append(bytes(10_000_000).hex())
    if "--talkative" in sys.argv:
        print("\n".join(made * 10), flush=True)
    return made


def commits_in(disk: Path) -> list[int]:
    """Return what the journals of a job tell of, a number for each commit."""
    commits = History(JobFolder(disk / "job")).commits
    return [int(index) for index in commits.column("index")]


def finish(job: Path, target: Path, committed: list[int]) -> None:
    """Resume after room was made: what was committed is there, and the bytes are right."""
    with driving(job, target, BOTH, resume=True) as driver:
        assert [index for index in range(N) if driver.has(index)] == committed
        for index in range(N):
            if index not in committed:
                driver.commit(index, lines(index))
        driver.store.publish()
    assert target.read_bytes() == whole()
    rows = read_rows(JobFolder(job))
    assert rows is not None
    assert "".join(f"{line}\n" for line in rows["result"]).encode() == whole()


if __name__ == "__main__":
    resize(Path(sys.argv[1]), "2m", new=True)
    globals()[sys.argv[2]](Path(sys.argv[1]))
