"""A copy of the files that belong to the project, as a fresh clone has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]


def copy_clone(folder: Path) -> set[str]:
    """Copy the files of the clone into a folder, and return their names; skip without a clone."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    words = [git, "-C", str(HOME), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"this is no clone: {listed.stderr.strip()}")
    names = {name for name in listed.stdout.split("\0") if name and (HOME / name).is_file()}
    if not names:
        pytest.skip("this is a folder that another clone ignores")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(HOME / name, folder / name)
    return names
