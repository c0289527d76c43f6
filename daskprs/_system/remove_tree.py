"""Removal of folders that a script has filled: deep ones, and those that it has closed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder with everything in it; links are not followed.

    Before 3.13 Python cannot remove a folder that is deeper than its stack, and only root removes
    one that its owner may not list. The programs of the system remove both. Raise `OSError` if
    something cannot be removed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except (PermissionError, RecursionError) as error:
        if isinstance(error, PermissionError):
            subprocess.run(["chmod", "-R", "u+rwx", "--", path], capture_output=True, check=False)  # noqa: S603, S607
        removal = subprocess.run(["rm", "-rf", "--", path], capture_output=True, check=False)  # noqa: S603, S607
        if os.path.lexists(path):
            message = removal.stderr[:1000].decode(errors="replace").strip()
            raise OSError(message or f"{path} cannot be removed") from error
