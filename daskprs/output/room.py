"""Room on a disk: looked for before it is needed, and missed with a sentence."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


def check_room(folder: Path, size: int) -> None:
    """Refuse to write more of the output than would fit.

    Raises
    ------
    OutputError
        When there is less room than `size` bytes.

    """
    free = shutil.disk_usage(folder).free
    if free < size:
        msg = (
            f"the output needs {size >> 20} MiB more in {folder}, and {free >> 20} MiB are free. "
            "Make room, and resume the job."
        )
        raise OutputError(msg)


def no_room(folder: Path, error: OSError | str) -> str:
    """Return what to say when something cannot be written to a job folder."""
    free = ""
    with suppress(
        OSError
    ):  # it may be the folder that is gone: what went wrong is told all the same
        free = f" ({shutil.disk_usage(folder).free >> 20} MiB are free)"
    return (
        f"results cannot be written to {folder}: {error}{free}. What was committed is kept: make "
        "room, and resume the job."
    )
