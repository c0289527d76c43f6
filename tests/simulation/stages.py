"""Stages in processes of their own: the files between them, and what wakes the slots."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakValueDictionary

from daskprs._core.stages import POSTPROCESS, PREPROCESS, RUN
from tests.simulation.items import GOOD, OF_STAGES
from tests.simulation.promises import demand

if TYPE_CHECKING:
    from daskprs._core.stages import Stages, StageWork

INIT_S = 0.05
"""Seconds that `init` takes in a stage process, and most often in one of `run`."""
BEFORE = {RUN: PREPROCESS, POSTPROCESS: RUN}
"""The stage that makes what a stage reads."""


class File:
    """In place of `StageFile`: a file in memory, which is gone once nobody has it open."""

    there: ClassVar[WeakValueDictionary[str, File]] = WeakValueDictionary()
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        File.made += 1
        self.path = f"/proc/file/{File.made}"
        self.there[self.path] = self
        self.content: tuple[str, int] | None = None
        """The stage and the mini-batch that it was written for."""

    def close(self) -> None:
        """Close it."""
        self.there.pop(self.path, None)


def read(work: StageWork, index: int) -> None:
    """Read what the stage before has made for a mini-batch."""
    file = File.there.get(work.source or "")
    demand(file is not None, f"{work.stage} of {index} reads a file that is closed")
    assert file is not None
    wanted = BEFORE[work.stage], index
    demand(file.content == wanted, f"{work.stage} of {index} reads {file.content}")


def write(work: StageWork, index: int) -> None:
    """Write what a stage has made of a mini-batch."""
    file = File.there.get(work.target or "")
    demand(file is not None, f"{work.stage} of {index} writes a file that is closed")
    assert file is not None
    demand(file.content is None, f"{work.stage} of {index} writes over {file.content}")
    file.content = work.stage, index


def done_by(what: str, work: StageWork | None, stages: Stages | None, index: int) -> str:
    """Return what a mini-batch does in a process: where it has stages, it fails in one of them."""
    if work is None or stages is None:
        return what
    beside = [*stages.functions]
    stage = beside[index % len(beside)] if what in OF_STAGES else RUN
    return OF_STAGES.get(what, what) if work.stage == stage else GOOD


class Wakes:
    """In place of the module `os` where slots wait for their stages: its descriptors are signs."""

    EFD_NONBLOCK = EFD_CLOEXEC = 0
    readable: ClassVar[set[int]] = set()
    made: ClassVar[int] = 0

    def eventfd(self, *_: int) -> int:
        """Return a new sign, not set."""
        Wakes.made += 1
        return Wakes.made

    def eventfd_write(self, fd: int, _: int) -> None:
        """Set it."""
        self.readable.add(fd)

    def eventfd_read(self, fd: int) -> None:
        """Take that back, where it is set."""
        if fd not in self.readable:
            raise BlockingIOError
        self.readable.remove(fd)

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


class Holder:
    """In place of the connection that holds a sign."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Return the sign."""
        return self._fd
