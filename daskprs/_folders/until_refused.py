"""Folders that are made before a call is checked as a whole, and removed if it is refused."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs.errors import JobFolderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def until_refused(folder: Path) -> Iterator[None]:
    """Remove a folder that a block makes and then refuses to use, and new folders above it.

    The folders above, of the job and of all jobs, are removed where they are empty.
    """
    new = [path for path in (folder, *folder.parents[:2]) if not path.exists()]
    try:
        yield
    except (UsageError, JobFolderError):
        if folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        for path in new:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
