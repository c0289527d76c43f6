"""The lock of a job folder, which admits one driver at a time, and the drivers' epochs."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs._system.file_lock import held, holder_of, in_use
from daskprs._system.private_folder import not_entered
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder

MOST_EPOCHS = 999_999
"""The highest number of an epoch; daskprs never writes a file with a higher one."""
_NUMBERED = re.compile(r"([a-z]+)\.([1-9][0-9]{0,5})")


@contextmanager
def locked(folder: JobFolder) -> Iterator[int]:
    """Hold the job folder, and yield the number of this epoch.

    The kernel lets go of the lock when its holder dies, so that a stale one never stands in the
    way. Each epoch writes a journal and spools of its own; its number is claimed by creating a
    file exclusively, and a driver that finds a higher one than its own has lost the folder.

    Raise `JobFolderLocked` when another driver is at work in it.
    """
    with held(folder.lock, f"the job folder {folder}"):
        number = latest_epoch(folder) + 1
        while True:
            _refuse_more_epochs(folder, number)
            try:
                # Even where two drivers hold the lock of a network file system, only one of them
                # can make the file.
                folder.epoch(number).touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
        yield number


def latest_epoch(folder: JobFolder) -> int:
    """Return the number of the newest epoch; 0 when there was none.

    The files of an epoch count, too: the file that claims the epoch may have been removed.
    """
    kinds = (folder.epoch, folder.journal, folder.spools, folder.typed_spools)
    return max(epochs_of(folder, *kinds), default=0)


def begun_epochs(folder: JobFolder) -> list[int]:
    """Return the numbers of the epochs that have a journal, in order."""
    return epochs_of(folder, folder.journal)


def epochs_of(folder: JobFolder, *kinds: Callable[[int], Path]) -> list[int]:
    """Return the epochs, in order, for which the job folder has an entry of one of these kinds.

    A kind gives the path of the entry of an epoch.
    """
    stems = {path_of(0).stem for path_of in kinds}
    try:
        with os.scandir(folder.path) as entries:
            found = [_NUMBERED.fullmatch(entry.name) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:
        raise not_entered(folder.path) from None
    except OSError as error:
        msg = f"{folder}: it cannot be listed: {error.strerror}. Make it readable, or use another."
        raise JobFolderError(msg) from error
    return sorted({int(one[2]) for one in found if one is not None and one[1] in stems})


def _refuse_more_epochs(folder: JobFolder, number: int) -> None:
    if number > MOST_EPOCHS:
        msg = (
            f"{folder.epoch(MOST_EPOCHS)}: it is the last epoch that a job folder may have. Remove "
            "it if no driver has made it, or use another job_dir."
        )
        raise JobFolderError(msg)


def holder(folder: JobFolder) -> str | None:
    """Return the driver that is at work in a job folder; None if no driver is."""
    try:
        return holder_of(folder.lock)
    except OSError:
        return None


def refuse_a_driver(folder: JobFolder) -> None:
    """Refuse a job folder in which a driver is at work, as `locked` does."""
    if (driver := holder(folder)) is not None:
        what = f"the job folder {folder}"
        raise in_use(what, driver)


def has_begun(folder: JobFolder) -> bool:
    """Return whether a job has begun in this folder.

    An epoch without a journal is that of a driver that was refused before it began: what it was
    refused for can be put right, and the folder used as if it were new.
    """
    return bool(begun_epochs(folder))
