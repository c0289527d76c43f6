"""Folders that a script has filled are removed, and measured, whatever it did to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daskprs._system.disk_space import used_bytes
from daskprs._system.remove_tree import remove_tree
from tests.support.other_user import USER, as_user, reached, why_not

DEEP = 3000
"""Folders within each other: more than Python's stack, and longer than a path may be."""


def make_deep(folder: Path) -> None:
    """Make folders within each other, each by the descriptor of the one around it."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.mark.attack
def test_a_folder_that_is_too_deep_for_python_is_removed(tmp_path: Path) -> None:
    """Its size is that of what can be reached."""
    make_deep(tmp_path / "deep")
    assert used_bytes(tmp_path / "deep") >= 0
    remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither as the folder to remove, nor within it."""
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.joinpath("file").write_bytes(b"x" * 10_000)
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.joinpath("link").symlink_to(kept)
    (tmp_path / "link").symlink_to(kept)
    assert used_bytes(folder) < 10_000 <= used_bytes(kept)
    remove_tree(tmp_path / "link")
    remove_tree(folder)
    remove_tree(kept / "file")
    remove_tree(tmp_path / "not-there")
    assert [*tmp_path.rglob("*")] == [kept]


@pytest.mark.attack
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_folder_that_its_owner_has_closed_is_removed(tmp_path: Path) -> None:
    """Root may enter every folder, so another user tries it."""
    folder = tmp_path / "closed"
    folder.joinpath("inner").mkdir(parents=True)
    folder.joinpath("inner", "file").touch()
    subprocess.run(["/bin/chown", "-R", str(USER), tmp_path], check=True)
    for path in (folder / "inner", folder):
        path.chmod(0)
    for path in [tmp_path, *tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | 0o011)
    program = (
        "import sys; from pathlib import Path; "
        "from daskprs._system.remove_tree import remove_tree; remove_tree(Path(sys.argv[1]))"
    )
    home = Path(__file__).parents[2]
    words = reached(as_user(sys.executable, "-c", program, str(folder)))
    subprocess.run(words, check=True, cwd=home)
    assert not folder.exists()
