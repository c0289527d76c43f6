"""A file that is not the one that was found: each reader refuses it, and so does the last look."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pandas as pd
import pytest

from daskprs._inputs.files.file_versions import refuse_changed_files
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source import source as sources

FRAME = pd.DataFrame({"n": range(1000, 3000), "text": [f"t{n}" for n in range(1000, 3000)]})
LINES = FRAME.to_json(orient="records", lines=True)
AN_HOUR_NS = 3_600_000_000_000


def csv(path: Path) -> None:
    FRAME.to_csv(path, index=False)


def gz(path: Path) -> None:
    path.write_bytes(gzip.compress(FRAME.to_csv(index=False).encode(), 0))


def utf16(path: Path) -> None:
    FRAME.to_csv(path, index=False, encoding="utf-16")


def json_lines(path: Path) -> None:
    path.write_text(LINES)


def parquet(path: Path) -> None:
    FRAME.to_parquet(path, index=False, row_group_size=500)


KINDS: dict[str, tuple[str, Callable[[Path], None], ReadOptions]] = {
    "csv": ("one.csv", csv, ReadOptions(mini_batch_size=4000)),
    "gz": ("one.csv.gz", gz, ReadOptions(mini_batch_size=4000)),
    "utf-16": ("one.csv", utf16, ReadOptions(mini_batch_size=4000, encoding="utf-16")),
    "json lines": ("one.jsonl", json_lines, ReadOptions(mini_batch_size=4000)),
    "parquet": ("one.parquet", parquet, ReadOptions(mini_batch_size=4000)),
    "folder key": (
        "in/key=1/one.csv",
        csv,
        ReadOptions(partition_keys=("key",), partition_format="key={key}/one.csv"),
    ),
    "files": ("files/one.txt", csv, ReadOptions(input_type="files", mini_batch_size=1)),
}


def rewritten(path: Path) -> None:
    """Write other bytes in place, as many as there were."""
    old = path.stat()
    with path.open("rb+") as file:
        file.write(b"#" * old.st_size)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + AN_HOUR_NS))


def grown(path: Path) -> None:
    """Append bytes, as a program does that writes to a log; the clock may be coarse."""
    old = path.stat()
    with path.open("ab") as file:
        file.write(b"4000,more\n")
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))


def replaced(path: Path) -> None:
    """Put another file of the same size under the name."""
    other = path.with_name("_other")
    other.write_bytes(b"#" * path.stat().st_size)
    os.utime(other, ns=(0, path.stat().st_mtime_ns + AN_HOUR_NS))
    other.replace(path)


def truncated(path: Path) -> None:
    """Cut the file off: what is read of it then ends too early."""
    os.truncate(path, path.stat().st_size // 4)


def touched(path: Path) -> None:
    """Leave all but the time as it was."""
    old = path.stat()
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns - AN_HOUR_NS))


@pytest.fixture(params=list(KINDS))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> sources.Source:
    """Return a source over one file, which lies where `path_of` says."""
    name, write, reading = KINDS[request.param]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path)
    data = path.parent
    found = open_source(str(tmp_path / "in" if "key" in name else data), reading)
    found.prepare(tmp_path)
    return found


def path_of(source: sources.Source) -> Path:
    (file,) = source.files()
    return Path(file.path)


def load_all(reader: sources.Reader, plan: list[MiniBatch]) -> None:
    for one in plan:
        reader.load(one)


@pytest.mark.parametrize("change", [rewritten, grown, replaced, truncated, touched])
def test_a_file_that_changes_is_refused_by_whoever_reads_it(
    source: sources.Source, change: Callable[[Path], None]
) -> None:
    """By an agent that has it open or looks once more, by one that opens it now, and in the end."""
    first, *rest = list(source.mini_batches())
    path = path_of(source)
    reader, other = source.reader(), pickle.loads(pickle.dumps(source.reader()))
    try:
        reader.load(first)
        change(path)
        with pytest.raises(InputChanged, match=f"{path.name}: the file has changed since the job"):
            other.load(first)
        with pytest.raises(InputChanged):
            refuse_changed_files(source.files())
        if change is replaced and path.suffix in (".csv", ".gz", ".jsonl"):
            load_all(reader, rest)  # what was opened before is as it was
        elif rest:
            with pytest.raises(InputChanged):
                load_all(reader, rest)
    finally:
        reader.close()
        other.close()


def test_the_message_has_both_sizes_and_times(tmp_path: Path) -> None:
    """With them it is found out who has written to the file."""
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    source = open_source(str(path), ReadOptions())
    path.write_text("n\n1\n2\n")
    os.utime(path, ns=(0, 1_700_000_060_000_000_000))
    with pytest.raises(InputChanged) as caught:
        refuse_changed_files(source.files())
    assert str(caught.value) == (
        f"{path}: the file has changed since the job began: it had 4 bytes of 2023-11-14 "
        "22:13:20.123456789 UTC, and has 6 bytes of 2023-11-14 22:14:20.000000000 UTC. Wait until "
        "nothing writes to the input."
    )


@pytest.mark.parametrize("change", [rewritten, grown, truncated])
def test_rows_are_not_brought_together_of_a_file_that_changes(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """The driver reads them, with the same care."""
    path = tmp_path / "one.csv"
    csv(path)
    source = open_source(str(path), ReadOptions(partition_keys=("text",)))
    change(path)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(InputChanged):
        source.prepare(tmp_path / "scratch")


def test_a_stream_that_changes_is_not_cut(tmp_path: Path) -> None:
    """The driver reads it for the plan."""
    path = tmp_path / "one.csv.gz"
    gz(path)
    source = open_source(str(path), ReadOptions(mini_batch_size=4000))
    plan = source.mini_batches()
    next(plan)
    truncated(path)
    with pytest.raises(InputChanged):
        list(plan)


def test_files_that_are_gone_or_new_are_no_change(tmp_path: Path) -> None:
    """All that the plan has of the others was read."""
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("n\n1\n")
    source = open_source(str(tmp_path), ReadOptions())
    (tmp_path / "a.csv").unlink()
    (tmp_path / "d.csv").write_text("n\n1\n")
    refuse_changed_files(source.files())
    reader = source.reader()
    assert [len(reader.load(one)) for one in list(source.mini_batches())[1:]] == [1, 1]
    reader.close()


# ---- on another host ----

ANOTHER_PROCESS = """
import sys
from pathlib import Path
from daskprs._inputs.files.file_versions import TimesSeen

table = TimesSeen(Path(sys.argv[1]))
print(*(table.first(path, int(time)) for path, time in (one.split("=") for one in sys.argv[2:])))
"""


def seen_by_another(table: Path, *files: str) -> list[int]:
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(table), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_processes_of_a_host_share_the_first_times(tmp_path: Path) -> None:
    """Replicas have times of their own, and keep these."""
    table = tmp_path / "times"
    assert seen_by_another(table, "/a=5", "/b=-3") == [5, -3]
    assert seen_by_another(table, "/b=1", "/a=7", "/a=5", "/c=2", "/b=4") == [-3, 5, 5, 2, -3]
    many = [f"/{n}=" for n in range(500)]
    assert seen_by_another(table, *(f"{name}1" for name in many)) == [1] * 500
    assert seen_by_another(table, *(f"{name}2" for name in many)) == [1] * 500
    assert seen_by_another(tmp_path / "no folder" / "times", "/a=5", "/a=6") == [5, 6]


READ_THERE = """
import pickle
import sys
from pathlib import Path
from daskprs.errors import InputChanged
from daskprs._inputs.files.file_versions import compare_with_times_seen

compare_with_times_seen(Path(sys.argv[1]))
reader, plan = pickle.load(sys.stdin.buffer)
try:
    print(sum(len(reader.load(one)) for one in plan))
except InputChanged as error:
    print(error)
"""


@pytest.mark.long
def test_another_host_compares_sizes_and_its_own_times(tmp_path: Path) -> None:
    """A replica with another time is taken; with another size it is not, nor when it changes."""
    path = tmp_path / "one.csv"
    csv(path)
    source = open_source(str(path), ReadOptions(mini_batch_size=4000))
    told = pickle.dumps((source.reader(), list(source.mini_batches())))

    def read_there(table: str) -> str:
        command = [sys.executable, "-c", READ_THERE, str(tmp_path / table)]
        done = subprocess.run(command, input=told, capture_output=True, check=True)
        return done.stdout.decode().strip()

    touched(path)
    assert read_there("times") == "2000"
    assert read_there("times") == "2000"
    touched(path)
    assert "has changed" in read_there("times")
    assert read_there("times of another host") == "2000"
    grown(path)
    assert "has changed" in read_there("times of another one")


# ---- in a store ----


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """Yield a store that is empty before and after."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("folders", [1, 40])
def test_files_of_a_store_are_compared_by_listing(
    memory: fsspec.AbstractFileSystem, folders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they lie in one folder or in many; a request for each would take hours."""
    for n in range(120):
        memory.pipe(f"/in/{n % folders}/{n:03}.csv", b"n\n1\n")
    source = open_source("memory://in", ReadOptions())
    asked = []
    info = type(memory).info
    monkeypatch.setattr(type(memory), "info", lambda *a, **k: asked.append(a) or info(*a, **k))
    memory.rm("/in/0/000.csv")
    memory.pipe("/in/0/new.csv", b"n\n2\n")
    refuse_changed_files(source.files())
    memory.pipe(f"/in/{119 % folders}/119.csv", b"n\n7\n")
    with pytest.raises(InputChanged, match=r"119.csv: the file has changed .* of version \d"):
        refuse_changed_files(source.files())
    assert len(asked) < 12  # some by `rm` and `pipe` of an older fsspec


def test_a_few_files_of_a_store_are_asked_for_one_by_one(
    memory: fsspec.AbstractFileSystem,
) -> None:
    """Their folder may hold a million others."""
    urls = [f"memory://in/{n}.csv" for n in range(3)]
    for url in urls:
        memory.pipe(url, b"n\n1\n")
    source = open_source(urls, ReadOptions())
    memory.rm(urls[0])
    refuse_changed_files(source.files())
    memory.pipe(urls[2], json.dumps({}).encode())
    with pytest.raises(InputChanged, match=r"it had 4 bytes of version .*, and has 2 bytes"):
        refuse_changed_files(source.files())
