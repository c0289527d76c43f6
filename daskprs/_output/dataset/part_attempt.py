"""Attempts of other processes at a part: each has a folder of its own, and the driver takes one.

An attempt that was given up may still be at work, such as on a host that was cut off. So no attempt
writes into the data set. The driver moves the finished files of one attempt there, and removes the
folders of all others.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import shutil
from contextlib import chdir
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from daskprs._output.journal.history import PublishedFile, PublishedPart

if TYPE_CHECKING:
    from daskprs._output.dataset.part_file import PartPlan

SWEEPS = 5
"""Number of tries to remove a folder into which an attempt still writes."""


class PartAttempt(NamedTuple):
    """A finished attempt."""

    folder: str
    """The name of its folder, beside those of other attempts."""
    pid: int
    """The process that has written the files."""
    made: PublishedPart

    @classmethod
    def parsed(cls, report: bytes, number: int) -> PartAttempt:
        """Return the attempt of a number that a process reports; else raise a `ValueError`."""
        folder, pid, mini_batches, files = json.loads(report)
        made = [PublishedFile(*file) for file in files]
        places = [PurePosixPath(folder), *(PurePosixPath(one.name) for one in made)]
        if any(".." in place.parts or place.is_absolute() for place in places):
            msg = "its files lie outside of its folder"
            raise ValueError(msg)
        if not re.fullmatch(rf"{number}\.[0-9a-f]+", folder):
            msg = f"{folder!r} is another attempt's folder"
            raise ValueError(msg)
        return cls(folder, int(pid), PublishedPart(int(mini_batches), made))

    def is_whole(self, attempts: Path) -> bool:
        """Say whether the files are there with the sizes that were written."""
        try:
            sizes = [(attempts / self.folder / one.name).stat().st_size for one in self.made.files]
        except OSError:
            return False
        return sizes == [one.size for one in self.made.files]

    def put(self, attempts: Path, plan: PartPlan) -> PublishedPart:
        """Move the files into the data set."""
        for one in self.made.files:
            path = Path(plan.folder, one.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            (attempts / self.folder / one.name).replace(path)
        return self.made


def write_aside(attempts: str, number: int, plan: bytes) -> bytes:
    """Write the part of a pickled plan into a new folder; return the attempt, as JSON.

    That is the only work of its process, and the owner of the process loads neither plan nor
    attempt. The process writes by paths relative to its folder. When the driver has removed the
    folder, the kernel lets the process make no file and no folder by such a path.
    """
    # Not at the top: a Dask worker, which only names this function, need not load Arrow.
    from daskprs._output.dataset.part_file import write_part

    folder = f"{number}.{secrets.token_hex(8)}"
    own = Path(attempts, folder)
    own.mkdir()
    with chdir(own):
        made = write_part(pickle.loads(plan)._replace(folder="."))
    return json.dumps((folder, os.getpid(), *made)).encode()


def sweep(attempts: Path, number: int | None = None) -> None:
    """Remove what the attempts with a number have left; without a number, what all have."""
    for _ in range(SWEEPS):
        left = [attempts] if number is None else [*attempts.glob(f"{number}.*")]
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        if not any(map(os.path.lexists, left)):
            return
