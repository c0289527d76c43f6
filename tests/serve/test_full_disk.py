"""A full disk: what is refused leaves nothing, and what waits goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.mounting import NAMESPACE, can_mount
from tests.support.services import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.attack
def test_a_full_disk_leaves_no_half_job(tmp_path: Path) -> None:
    """Whichever file of a submit, a resume, a cancel or a start finds no room."""
    if not can_mount():
        pytest.skip("a small disk cannot be mounted here: no unprivileged mount namespaces")
    folders = [tmp_path / "disk", tmp_path / "elsewhere"]
    for folder in folders:
        folder.mkdir()
    paths = [str(PROGRAMS), str(PROGRAMS.parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(PROGRAMS / "full_disk.py"), *map(str, folders)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
