"""Reads of a store: many at the same time, and with the errors of one at a time."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from fsspec.asyn import get_loop

from benchmarks.slow_store import SlowStore, slow_store
from daskprs._core.mini_batch import MiniBatch
from daskprs._inputs.files import source as files_source
from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.source import FilesReader, FilesSource
from daskprs._inputs.frames.inline_data import FarReader
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._inputs.source.source import PathsReader
from daskprs._system.store_calls import at_once, each_in_order, takes_several
from daskprs.errors import InputChanged, InputError, LoadError
from tests.support.far_files import FarFiles

if TYPE_CHECKING:
    from collections.abc import Iterator


NAMES = [f"in/{number:02}.bin" for number in range(12)]


@pytest.fixture(scope="module", autouse=True)
def loop() -> None:
    """Start the event loop of fsspec, which stays for the whole process."""
    fsspec.register_implementation("far", FarFiles, clobber=True)
    get_loop()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FarFiles]:
    """Return a store of twelve files, in an empty folder."""
    FarFiles.clear()
    FarFiles.objects = {name: name.encode() * 3 for name in NAMES}
    monkeypatch.chdir(tmp_path)
    return FarFiles


def opened(requests: int = 32, names: list[str] = NAMES) -> tuple[FilesReader, MiniBatch]:
    """Return the reader of one mini-batch of files, and the mini-batch."""
    found = discover([f"far://{name}" for name in names], requests)
    source = FilesSource(found, ReadOptions(mini_batch_size=len(names), store_requests=requests))
    FarFiles.most = 0
    return source.reader(), next(source.mini_batches())


@pytest.mark.usefixtures("far")
def test_fetched_files_of_several_calls_stay_until_each_is_done() -> None:
    """A process that calls `run` for three mini-batches at a time has the files of all three."""
    reader, mini_batch = opened()
    FarReader(reader).expect(3)
    mini_batches = [mini_batch._replace(index=index) for index in range(3)]
    paths = [reader.load(one) for one in mini_batches]
    assert all(Path(path).exists() for ones in paths for path in ones)
    for one in mini_batches:
        reader.check(one)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(("requests", "together"), [(32, 12), (5, 5), (1, 1)])
def test_the_files_of_a_mini_batch_are_fetched_at_once(
    far: type[FarFiles], requests: int, together: int
) -> None:
    """Never more than the option allows, and in the order of the mini-batch."""
    reader, mini_batch = opened(requests)
    far.together = together
    paths = reader.load(mini_batch)
    assert far.most == together
    assert [Path(path).read_bytes() for path in paths] == list(far.objects.values())
    reader.check(mini_batch)
    assert list(Path.cwd().iterdir()) == []


def test_paths_of_a_list_are_looked_up_at_once(far: type[FarFiles]) -> None:
    """And stand in the order of the list's files; the first that is not there is named."""
    far.together = 4
    (found,) = discover([f"far://{name}" for name in NAMES], 4)
    assert far.most == 4
    assert [file.path for file in found] == [f"far://{name}" for name in NAMES]
    far.together = 1
    with pytest.raises(InputError, match="nothing at 'far://in/none1'"):
        discover([f"far://{name}" for name in (*NAMES, "in/none1", "in/none2")])


def test_an_error_names_its_file_and_ends_the_other_fetches(far: type[FarFiles]) -> None:
    """A retry begins anew, so that waiting for the rest is of no use."""
    reader, mini_batch = opened(requests=6)
    far.failing = {NAMES[3]: PermissionError("no access")}
    far.together = 99
    with pytest.raises(OSError, match=r"far://in/03.bin cannot be fetched: PermissionError: no"):
        reader.load(mini_batch)
    assert {*NAMES[:3], *NAMES[4:6]} <= set(far.cancelled)
    assert len(far.fetched) <= 7
    assert list(Path.cwd().iterdir()) == []
    far.failing, far.together = {}, 1
    assert len(reader.load(mini_batch)) == 12
    reader.close()


def test_a_file_that_has_gone_or_changed_is_refused_by_name(far: type[FarFiles]) -> None:
    """Whichever of those that are fetched together."""
    reader, mini_batch = opened()
    far.objects[NAMES[7]] = b"longer than it was before"
    with pytest.raises(InputChanged, match=f"far://{NAMES[7]}: the file has changed"):
        reader.load(mini_batch)
    far.failing = {NAMES[5]: FileNotFoundError(NAMES[5])}
    with pytest.raises(LoadError, match=f"far://{NAMES[5]} has gone since the job began"):
        reader.load(mini_batch)
    assert list(Path.cwd().iterdir()) == []


def test_a_full_disk_is_known_as_one(far: type[FarFiles]) -> None:
    """So that what was loaded ahead is loaded again when the disk has room."""
    reader, mini_batch = opened()
    far.failing = {NAMES[0]: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}
    with pytest.raises(OSError, match="No space left") as raised:
        reader.load(mini_batch)
    assert raised.value.errno == errno.ENOSPC


def test_a_mini_batch_is_loaded_ahead_only_where_it_fits_twice(
    far: type[FarFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running one writes, too."""
    reader, mini_batch = opened()
    size = sum(map(len, far.objects.values()))
    for free, fits in ((2 * size, True), (2 * size - 1, False)):
        usage = shutil.disk_usage("/")._replace(free=free)
        monkeypatch.setattr(files_source.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert reader.has_room(mini_batch) is fits


@pytest.mark.usefixtures("far")
def test_the_files_of_a_running_mini_batch_stay_while_others_come_and_go() -> None:
    """What was loaded ahead and never ran goes with the load after the next."""
    source = FilesSource(
        discover([f"far://{name}" for name in NAMES]), ReadOptions(mini_batch_size=3)
    )
    reader, (first, dropped, running, ahead) = source.reader(), list(source.mini_batches())
    of_first, of_dropped = reader.load(first), reader.load(dropped)
    assert all(map(os.path.exists, of_first + of_dropped))
    reader.check(first)
    assert not any(map(os.path.exists, of_first))
    of_running, of_ahead = reader.load(running), reader.load(ahead)
    assert all(map(os.path.exists, of_running + of_ahead))
    assert not any(map(os.path.exists, of_dropped))
    reader.close()
    assert list(Path.cwd().iterdir()) == []


def test_an_interrupt_ends_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would go on to write into a folder that is gone."""
    filesystem = fsspec.filesystem("far")
    ended = []

    async def endless() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(1)

    submit = asyncio.run_coroutine_threadsafe

    class Interrupted:
        def __init__(self, *given: Any) -> None:
            self.cancel = submit(*given).cancel

        def result(self) -> None:
            submit(asyncio.sleep(0.01), filesystem.loop).result()
            raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        at_once(filesystem, [endless] * 3, 2)
    submit(asyncio.sleep(0.01), filesystem.loop).result()
    assert ended == [1, 1]


def test_a_file_system_without_a_loop_is_asked_one_at_a_time(far: type[FarFiles]) -> None:
    """Its connection belongs to one thread; so is one that adds to its coroutine."""

    class Adding(far):  # type: ignore[misc, valid-type]
        protocol = "adding"

        def get_file(self, rpath: str, lpath: str, **more: Any) -> None:
            super().get_file(rpath, lpath, **more)

    assert takes_several(fsspec.filesystem("far"), "get_file")
    assert not takes_several(Adding(), "get_file")
    assert not takes_several(fsspec.filesystem("memory"), "get_file")


def test_results_come_in_order_and_an_error_ends_the_work() -> None:
    """Nothing is begun behind it, but what was begun already."""
    assert list(each_in_order(str, range(50), 4)) == list(map(str, range(50)))
    begun: list[int] = []

    def fails(number: int) -> int:
        begun.append(number)
        return 1 // (number - 5)

    with pytest.raises(ZeroDivisionError):
        list(each_in_order(fails, range(1000), 4))
    assert max(begun) < 10


# ---- S3 ----

LISTS = """
from daskprs._inputs.files.discover import discover
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions

for url in ("s3://globbed/in/*/*.bin", "s3://nested/in", "s3://nested/in/a.bin"):
    print(*(file.path for files in discover(url) for file in files))
for url in ("s3://tables/p", "s3://tables/c"):
    print(open_source(url, ReadOptions()).count())
"""
READS = """
from contextlib import closing
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions

for url in ("s3://large/p", "s3://large/c"):
    source = open_source(url, ReadOptions(input_type="table"))
    with closing(source.reader()) as reader:
        print(len(reader.load(next(source.mini_batches()))))
"""
FETCHES, FOLDERS, FOOTERS = r"GET b/in/", r"GET globbed in/\d/", r"GET tables/p"
HEADERS = r"GET tables/c"
LENGTHS = """
from pathlib import Path

def run(paths):
    return [f"{Path(path).name} {len(Path(path).read_bytes())}" for path in paths]
"""


@pytest.fixture
def s3() -> Iterator[SlowStore]:
    """Yield a store of one's own."""
    with slow_store() as store:
        yield store


def told(store: SlowStore, *words: str, folder: Path | None = None) -> str:
    """Return what a program prints that uses the store."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **store.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agents_fetch_from_s3_at_once(s3: SlowStore, tmp_path: Path) -> None:
    """As many files as the option says, in forked processes, the next ones behind `run`."""
    for number in range(12):
        s3.objects[f"b/in/{number:02}.bin"] = bytes(number)
    s3.together = {FETCHES: 4}
    (tmp_path / "script.py").write_text(LENGTHS)
    told(
        s3,
        *("-m", "daskprs", "run", "script.py", "s3://b/in/", "--quiet", "--job-dir", "job"),
        *("--store-requests", "4", "--mini-batch-size", "6", "--process-count-per-node", "1"),
        folder=tmp_path,
    )
    assert s3.peaks[FETCHES] == 4
    output = (tmp_path / "job" / "output" / "parallel_run_step.txt").read_text()
    assert output == "".join(f"{number:02}.bin {number}\n" for number in range(12))


def test_s3_is_listed_at_once_and_no_folder_twice(s3: SlowStore, tmp_path: Path) -> None:
    """By a glob, and to learn that a folder is one; footers and header lines are read at once, too.

    The client of S3 lists the folders of a glob one after the other: a new version may do so again.
    """
    for number in range(6):
        s3.objects[f"globbed/in/{number}/a.bin"] = s3.objects[f"globbed/in/{number}/b/c.bin"] = b"x"
    s3.objects["nested/in/a.bin"] = s3.objects["nested/in/deep/b.bin"] = b"x"
    s3.objects["nested/in/"] = s3.objects["nested/in/deep/"] = b""  # as its console marks folders
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    for number in range(8):
        s3.objects[f"tables/p/{number}.parquet"] = (tmp_path / "x.parquet").read_bytes()
        s3.objects[f"tables/c/{number}.csv"] = b"x\n1\n"
    s3.together = {FOLDERS: 6, FOOTERS: 8, HEADERS: 8}
    assert told(s3, "-c", LISTS).splitlines() == [
        " ".join(f"s3://globbed/in/{number}/a.bin" for number in range(6)),
        "s3://nested/in/a.bin s3://nested/in/deep/b.bin",
        "s3://nested/in/a.bin",
        "8",
        "8",
    ]
    assert s3.peaks[FOLDERS] == 6
    assert s3.peaks[FOOTERS] == s3.peaks[HEADERS] == 8
    for folder in (*(f"globbed in/{number}/" for number in range(6)), "nested in/"):
        assert s3.asked.count(f"GET {folder}") == 1


@pytest.mark.long
def test_a_mini_batch_of_a_large_file_reads_a_part_of_it(s3: SlowStore, tmp_path: Path) -> None:
    """The client of S3 reads 50 MB ahead where nobody says how much."""
    frame = pd.DataFrame({"x": np.random.default_rng(0).random(3 << 20)})
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=1 << 17)
    s3.objects["large/p/x.parquet"] = (tmp_path / "x.parquet").read_bytes()
    s3.objects["large/c/x.csv"] = b"x\n" + b"1234567\n" * (3 << 20)
    assert "0" not in told(s3, "-c", READS).split()
    for path in ("large/p/x.parquet", "large/c/x.csv"):
        assert 0 < s3.largest[path] < 8 << 20 < len(s3.objects[path])


def test_a_node_without_the_job_folder_asks_the_same_of_a_reader_of_paths() -> None:
    """Else a file that changes while `run` reads it would not be noticed there."""
    reader = FarReader(FilesReader(1))
    assert isinstance(reader, PathsReader)
    assert reader.has_room(MiniBatch(0, ((), (), ()), "identity", 0))
