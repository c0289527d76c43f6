"""A disk that fills up: the job fails with a clear error, and nothing that was done is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("small_disk.py")
NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def can_mount() -> bool:
    """Say whether this machine lets its users mount in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    trial = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("story", ["spool", "journal", "output", "part", "spill"])
def test_a_full_disk_loses_nothing(tmp_path: Path, story: str) -> None:
    """Where: spool, journal, the output's disk, half way into the output, an agent's result."""
    if not can_mount():
        pytest.skip("a small disk cannot be mounted here: no unprivileged mount namespaces")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(PROGRAM), str(disk), story],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
