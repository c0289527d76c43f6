"""Job folders that another user has made or may write to: a resume refuses them."""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING

from daskprs._folders.job_lock import begun_epochs
from daskprs._system.private_folder import is_private
from daskprs._system.regular_files import OTHERS_WRITE
from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder


def refuse_foreign(folder: JobFolder, script: str = "") -> None:
    """Refuse a job folder of another owner.

    With the `script` that the folder names, and that will run, refuse one that others may write to
    as well. The `JobFolderError` names the file, its owner, and the option by which the folder is
    trusted.
    """
    is_open = folder.path.exists() and not is_private(folder.path)
    for path in _records(folder):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        what = f"the job folder {path}" if is_folder else f"{path}"
        if status.st_uid != os.geteuid():
            why = f"belongs to another user, {_name(status.st_uid)}"
        elif stat.S_ISLNK(status.st_mode) and path.is_file():
            why = "is a link"
        elif script and is_open and status.st_mode & OTHERS_WRITE:
            why = "may be written by other users"
        else:
            continue
        runs = f" The folder says which script is run: {script}." if script else ""
        msg = (
            f"{what} {why}.{runs} Look at what is in it. If you trust whoever can write there, go "
            f"on by {Option('trust', value=True)}."
        )
        raise JobFolderError(msg)


def _records(folder: JobFolder) -> Iterator[Path]:
    """Yield the files that decide how a job goes on."""
    yield folder.path
    yield folder.call
    yield from map(folder.journal, begun_epochs(folder))


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
