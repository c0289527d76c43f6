"""Files of ours are regular ones: nothing else is waited for, and nothing is read without end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tracemalloc
import zlib
from itertools import product
from typing import TYPE_CHECKING

import pytest

import daskprs
from daskprs._system.regular_files import append_regular, open_regular, read_json, read_regular
from daskprs.errors import JobFolderError
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

LIMITED = (
    "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)); "
)
COMMANDS = ("status", "result", "resume")


@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    """A FIFO that no program writes to, a device without an end, a folder, a link to each."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    kinds = {"fifo": "a FIFO", "folder": "a folder", "link": "a FIFO", "zeros": "a device"}
    for name, kind in kinds.items():
        for act in (open_regular, read_regular, append_regular):
            with pytest.raises(JobFolderError, match=rf"{name}: it is {kind}, .*Remove it"):
                act(tmp_path / name)


@pytest.mark.attack
def test_a_link_to_itself_is_refused_as_what_it_is(tmp_path: Path) -> None:
    """A script has put it in the place of a record."""
    (tmp_path / "loop").symlink_to("loop")
    for act in (open_regular, read_regular, append_regular):
        with pytest.raises(JobFolderError, match=r"loop: it is .*Remove it"):
            act(tmp_path / "loop")


def test_the_memory_that_is_taken_is_that_of_the_file(tmp_path: Path) -> None:
    """Not of the largest that may be: `ulimit -v` would refuse it, or a kernel that lends none."""
    path = tmp_path / "record"
    path.write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert read_regular(path, 1 << 30) == b"{}"
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_a_file_larger_than_any_of_ours_is_refused(tmp_path: Path) -> None:
    """By its size, before a byte of it is read."""
    path = tmp_path / "record"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(JobFolderError, match=rf"record: .* got {1 << 40} bytes of at most 100\."):
        read_regular(path, 100)


def test_what_is_written_can_be_read_again_and_deep_json_is_an_error(tmp_path: Path) -> None:
    """A link to a regular file is one."""
    path = tmp_path / "record"
    for text in ("[1, ", "2]"):
        with append_regular(path) as file:
            file.write(text)
    (tmp_path / "link").symlink_to(path)
    assert read_json(tmp_path / "link") == [1, 2]
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(path)


@pytest.fixture(scope="module")
def failed_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job that has failed, with what it needs to go on."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "script.py").write_text("def run(paths):\n    raise ValueError\n")
    (folder / "in").mkdir()
    (folder / "in" / "a").touch()
    with pytest.raises(daskprs.ParallelRunFailed):
        daskprs.parallel_run(
            folder / "in", folder / "script.py", job_dir=folder / "job", run_max_try=1,
            progress=False, output_dir=folder / "out",
        )  # fmt: skip
    return folder / "job"


def said(command: str, job: Path) -> str:
    """Return what a command says of a job, in a process that cannot use up the memory here."""
    words = ["daskprs", command, str(job)]
    code = f"{LIMITED}sys.argv = {words}; runpy.run_module('daskprs', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return f"{done.returncode} {done.stdout}{done.stderr}"


@pytest.mark.long
def test_a_name_with_a_number_holds_up_nothing(failed_job: Path) -> None:
    """Neither in the folder of the job, nor in that of its logs."""
    names = ["epoch.999999999999", "journal.999999999999", "spool.999999999999"]
    for name in names:
        (failed_job / name).touch()
    try:
        assert re.search(r"^0 <daskprs job Failed>(.|\n)*runs +1\n", said("status", failed_job))
        assert said("result", failed_job).startswith("42 ")
        assert said("resume", failed_job).startswith("42 ")
    finally:
        for name in names:
            (failed_job / name).unlink()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "kind"),
    mostly_long(
        product(["lock", "journal.1", "job.json", "pipeline.json"], ["FIFO", "device"]),
        suite=[("journal.1", "device")],
    ),
)
def test_a_file_of_another_kind_is_named_and_holds_up_nothing(
    failed_job: Path, name: str, kind: str
) -> None:
    """Whichever command reads it."""
    path, aside = failed_job / name, failed_job / "aside"
    if path.exists():
        path.rename(aside)
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    try:
        commands = ["resume"] if name == "job.json" else COMMANDS
        for command in commands:
            assert re.search(rf"(?s)^2 .*{name}: it is a {kind}, ", said(command, failed_job))
    finally:
        path.unlink()
        if aside.exists():
            aside.rename(path)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_log_that_is_a_fifo_stops_the_log_and_not_the_job(failed_job: Path) -> None:
    """A warning names it."""
    log = failed_job / "logs" / "sys" / "master_role.txt"
    log.unlink()
    os.mkfifo(log)
    try:
        assert re.search(r"(?s)^42 .*master_role\.txt: it is a FIFO", said("resume", failed_job))
    finally:
        log.unlink()


def test_a_journal_that_ends_in_zeros_is_read_up_to_them(failed_job: Path) -> None:
    """A disk that was full, or a machine that lost its power, leaves them: here a terabyte."""
    journal = max(failed_job.glob("journal.*"))
    size = journal.stat().st_size
    os.truncate(journal, 1 << 40)
    try:
        assert said("status", failed_job).startswith("0 <daskprs job Failed>")
    finally:
        os.truncate(journal, size)


def test_a_line_of_a_journal_that_is_whole_and_none_of_ours_is_named(failed_job: Path) -> None:
    """With its number."""
    journal = max(failed_job.glob("journal.*"))
    content = journal.read_bytes()
    try:
        for body in (b"[" * 100_000, b'["commits", 1]', b'["renumbered", 1, 2]'):
            journal.write_bytes(b"%08x %b\n" % (zlib.crc32(body), body))
            assert re.search(rf"^2 .*{journal.name}: line 1 holds no", said("status", failed_job))
    finally:
        journal.write_bytes(content)
