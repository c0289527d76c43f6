"""The stages of a mini-batch: what runs before `run` and after it, in processes without a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

PREPROCESS, RUN, POSTPROCESS = "preprocess", "run", "postprocess"
"""The names of the stages, in their order."""
RING = 3
"""Number of mini-batches that wait for the next stage, at most: one that it begins, one that is
loaded, and one more. What waits is held in memory."""


class Stages(NamedTuple):
    """The functions of a script beside `run`, by their names in it; None where it has none.

    `preprocess` makes the argument of `run` of a mini-batch, and `postprocess` makes rows of what
    `run` returned.
    """

    preprocess: str | None
    postprocess: str | None
    processes: int | None
    """Number of stage processes of a node; None: its cores without one for each process of
    `run`, and the threads of its workers where there is no such process."""

    @property
    def functions(self) -> dict[str, str]:
        """The name of the function of each stage that there is, but for `run`."""
        names = {PREPROCESS: self.preprocess, POSTPROCESS: self.postprocess}
        return {stage: name for stage, name in names.items() if name is not None}

    def processes_beside(self, threads: int, slots: int) -> list[int]:
        """Return the number of stage processes of each slot of a node.

        `threads` is the share that each has of the cores of the node.
        """
        if self.processes is None:
            return [max(1, threads - 1)] * slots
        each, more = divmod(self.processes, slots)
        return [max(1, each + (slot < more)) for slot in range(slots)]


class StageHost(NamedTuple):
    """A worker on a node that only runs `preprocess`, for the slots of other nodes."""

    worker: str
    node: int
    first: int
    """Number of its first stage process on the node."""
    processes: int
    share: int = 0
    """How many mini-batches one slot gives it at the same time."""


def name_of(function: Any) -> str:
    """Return the name of a function that the caller gave."""
    return str(getattr(function, "__name__", type(function).__name__))


class StageWork(NamedTuple):
    """What a process does for a mini-batch whose stages run in several processes."""

    stage: str
    source: str | None
    """The file with what the stage before has made; None: the reader loads the mini-batch."""
    target: str | None
    """The file for what the next stage gets; None: this stage makes the rows."""
