"""Locks on files: who waits, and for whom."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from daskprs._system.file_lock import holder_of, in_turn

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_holds_between_processes(tmp_path: Path) -> None:
    """Who waits goes on when the other process ends."""
    script = (
        "import pathlib, sys; from daskprs._system.file_lock import in_turn\n"
        "with in_turn(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    lock = tmp_path / "below/lock"
    held = ThreadPoolExecutor(1)

    def wait() -> None:
        with in_turn(lock):
            pass

    command_line = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command_line, stdin=-1, stdout=-1, text=True) as other, held:
        assert other.stdout is not None
        other.stdout.readline()
        assert holder_of(lock) is not None
        waiting = held.submit(wait)
        assert not waiting.done()
        other.communicate("")
        waiting.result(timeout=60)
    assert holder_of(lock) is None


@pytest.mark.attack
@pytest.mark.parametrize("forged", ["[" * 3000, "1", '{"pid": 1}', "\0", ""])
def test_a_forged_lock_file_is_held_by_a_process_without_a_name(
    tmp_path: Path, forged: str
) -> None:
    """Whoever holds the lock may write anything into its file."""
    lock = tmp_path / "lock"
    with in_turn(lock):
        lock.write_text(forged)
        assert holder_of(lock) == "a process that has not said its name"
