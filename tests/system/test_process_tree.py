"""What a process and its descendants use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from daskprs._system import linux, process_tree
from daskprs._system.linux import peak_bytes, reset_peak
from daskprs._system.process_tree import MemoryLooks, held_bytes, pss_bytes, tree_usage

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1 << 20
PARENT = """
import os, subprocess, sys, time
path, code = sys.argv[1:]
with open(path, "wb") as file:
    file.write(b"x" * (3 << 20))
    os.fsync(file.fileno())
subprocess.run([sys.executable, "-c", "sum(i * i for i in range(2_000_000))"])  # it has ended
subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=1)
sys.stdin.read()
"""
CHILD = (
    "kept = b'x' * (50 << 20); big = b'x' * (40 << 20); del big; print('up', flush=True); input()"
)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield a process that has a child with 50 MB, which has had 90 MB."""
    file = tmp_path_factory.mktemp("tree") / "file"
    command = [sys.executable, "-c", PARENT, str(file), CHILD]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_descendants_count(parent: int, tmp_path: Path) -> None:
    """Memory of the living ones, the processor of the ended ones, too, and the disk."""
    used = tree_usage(parent)
    assert len(used.pids) == 2
    assert used.pids[0] == parent
    assert 60 * MB < used.rss_bytes < 90 * MB
    assert 95 * MB < used.children_peak_bytes < 115 * MB
    assert used.cpu_s > 0.05
    file_system = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path])  # noqa: S607
    assert used.written_bytes >= 3 * MB or file_system == b"tmpfs\n"


def test_pss_divides_what_is_shared(parent: int) -> None:
    """Both run the same interpreter, whose pages the sum of the memory counts twice."""
    used = tree_usage(parent)
    pss = pss_bytes(used.pids)
    assert pss is not None
    assert 50 * MB < pss < used.rss_bytes
    assert held_bytes(parent, used.rss_bytes) >= used.rss_bytes
    assert 50 * MB < held_bytes(parent, 0) < used.rss_bytes


def test_a_process_whose_shares_the_kernel_does_not_tell_counts_as_a_whole(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user, beside one of ours."""
    (hidden,) = tree_usage(parent).pids[1:]
    tells = linux.number_after

    def number_after(label: bytes, file: Path) -> int | None:
        return None if file == Path(f"/proc/{hidden}/smaps_rollup") else tells(label, file)

    monkeypatch.setattr(linux, "number_after", number_after)
    assert held_bytes(parent, 0) > 50 * MB


def test_looks_take_a_part_of_the_time_and_a_stop_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by Ctrl-Z: after one of hours, nobody would look at the limit for days."""
    looks, now_s, cpu_s = MemoryLooks(), 100.0, 0.0

    def held(*_: object) -> int:
        """Take 0.1 s, and be stopped for an hour."""
        nonlocal now_s, cpu_s
        now_s, cpu_s = now_s + 3600.1, cpu_s + 0.1
        return 7

    clocks = SimpleNamespace(monotonic=lambda: now_s, thread_time=lambda: cpu_s)
    monkeypatch.setattr(process_tree, "time", clocks)
    monkeypatch.setattr(process_tree, "held_bytes", held)
    assert looks.look(0, 0) == 7
    assert looks.look(0, 0) == 7
    now_s -= 3600.0
    assert looks.look(0, 0) is None
    now_s += 2.0
    assert looks.look(0, 0) == 7


def test_a_process_that_has_gone_uses_nothing() -> None:
    """It may end at any time."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert tree_usage(process.pid) == ((), 0.0, 0, 0, 0, 0)
    assert pss_bytes((process.pid,)) is None
    assert (peak_bytes(process.pid), reset_peak(process.pid)) == (0, False)


def test_a_peak_is_forgotten_on_request(parent: int) -> None:
    """What is left is what the process holds now."""
    child = tree_usage(parent).pids[1]
    assert peak_bytes(child) > 95 * MB
    assert reset_peak(child)
    assert 50 * MB < peak_bytes(child) < 75 * MB
