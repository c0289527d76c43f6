"""The leftovers of a job: what only its agents needed, removed when nothing needs it any more.

The output, the logs, the journal and the records stay. A resume makes anew what it needs of all
that is removed here: frames and rows by key, and the snapshot of the script. Working directories
have gone with their agents, except those of a worker that was killed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs._inputs.collections.partition_table import is_record
from daskprs._report.humanize import amount
from daskprs._system.disk_space import used_bytes
from daskprs._system.remove_tree import remove_tree
from daskprs.errors import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder


def drop_leftovers(folder: JobFolder) -> int:
    """Remove what only the agents of a job needed, and return the bytes of disk space freed.

    All of it is renamed before anything is removed. A driver that dies meanwhile leaves a snapshot
    whole or not at all, and the next call removes what it left. Raise `OSError` when something
    cannot be removed.
    """
    remove_tree(folder.dropped)
    folder.dropped.mkdir()
    for number, path in enumerate(_leftovers(folder)):
        path.rename(folder.dropped / str(number))
    with suppress(OSError):  # it has the records of a collection
        folder.scratch.rmdir()
    freed = used_bytes(folder.dropped)
    remove_tree(folder.dropped)
    return freed


def drop_and_tell(folder: JobFolder, tell: Callable[[str, str], None]) -> None:
    """Do the same at the end of a job, and tell it; an error here does not change the job's end.

    `tell` gets the level of a message, and the message, which may name options.
    """
    try:
        freed = drop_leftovers(folder)
    except OSError as error:
        told = (
            f"what was written for the agents of {folder} cannot all be removed: {error}. "
            "The output is complete; daskprs clean removes the folder."
        )
        tell("warning", told)
    else:
        kept = Option("retain", "all")
        tell("info", f"removed what was written for the agents, {amount(freed)}; {kept} keeps it")


def _leftovers(folder: JobFolder) -> Iterator[Path]:
    """Yield the files and folders that go."""
    yield from (path for path in (folder.snapshot, folder.works) if path.exists())
    if folder.scratch.exists():
        yield from [path for path in folder.scratch.iterdir() if not is_record(path.name)]
