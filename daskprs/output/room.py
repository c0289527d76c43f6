"""Room on a disk: looked for before it is needed, and missed with a sentence."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from daskprs.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


def check_room(folder: Path, size: int) -> None:
    """Refuse to begin a file that would not fit.

    Raises
    ------
    OutputError
        When there is less room than `size` bytes.

    """
    free = shutil.disk_usage(folder).free
    if free < size:
        msg = (
            f"the output needs {size >> 20} MiB in {folder}, and {free >> 20} MiB are free. Make "
            "room, and resume the job."
        )
        raise OutputError(msg)


def no_room(folder: Path, error: OSError) -> str:
    """Return what to say when something cannot be written to a job folder."""
    free = shutil.disk_usage(folder).free
    return (
        f"results cannot be written to {folder}: {error} ({free >> 20} MiB are free). What was "
        "committed is kept: make room, and resume the job."
    )
