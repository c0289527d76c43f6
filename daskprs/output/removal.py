"""What an output file was made of: removed once it is in place."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs.folders.job_lock import epochs_of
from daskprs.system.atomic_file import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.folders.job_folder import JobFolder


def drop_spools(folder: JobFolder, target: Path, last: int) -> str:
    """Remove the spools of all epochs up to one, and return what went wrong: that is no failure."""
    try:
        sync_folder(target.parent)  # else a loss of power could undo the publishing
        for epoch in epochs_of(folder, folder.spools):
            if epoch <= last:
                with suppress(FileNotFoundError):
                    shutil.rmtree(folder.spools(epoch))
    except OSError as error:
        return (
            f"{target} is published. What it was made of is kept in {folder}, since its folder "
            f"cannot be synced, or that cannot be removed: {error}."
        )
    return ""
