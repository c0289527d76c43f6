"""A private folder, and all that is made in it or brought into it."""

from __future__ import annotations

import shutil
import stat
from typing import TYPE_CHECKING

from daskprs._system.private_folder import is_private, keep_private, make_private

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_made_or_copied_into_a_private_folder_is_private(tmp_path: Path) -> None:
    """A program that is copied can still be run; the other end of a link stays as it is."""
    program, folder = tmp_path / "program.sh", tmp_path / "private"
    program.touch()
    program.chmod(0o755)
    folder.mkdir(mode=0o755)
    assert not is_private(folder)
    make_private(folder)
    assert is_private(folder)
    (folder / "below").mkdir()
    (folder / "below" / "made").touch()
    shutil.copy2(program, folder)
    (folder / "link").symlink_to(program)
    keep_private(folder)
    modes = {path.name: stat.filemode(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {
        "below": "drwx------",
        "made": "-rw-------",
        "program.sh": "-rwx------",
        "link": "-rwxr-xr-x",
    }
