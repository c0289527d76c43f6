"""What a running job tells: the events that logs, progress and reports listen to.

Past tense, in the order in which they happened, all sent from the driver's one loop. What comes
from agents (`core.lease.AgentEvent`) arrives wrapped with its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.columnar import ColumnBatch
    from daskprs.core.ending import Ending
    from daskprs.core.lease import AgentEvent
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Outcome


class Counts(NamedTuple):
    """Mini-batches or items: how many, and what became of them."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0


class Place(NamedTuple):
    """Where something happened."""

    node: int
    process: str
    """``process000``, …; empty where no agent process had begun on it."""
    host: str = ""
    pid: int = 0


NOWHERE = Place(0, "")


class SlotState(NamedTuple):
    """What one slot is doing just now, as its worker saw it last."""

    place: Place
    phase: str
    """``starting``, ``init``, ``loading``, ``running``, ``returning``, ``shutdown`` or ``idle``."""
    since_s: float
    """For how many seconds."""
    index: int | None  # type: ignore[assignment]  # it hides tuple.index
    """The mini-batch at hand."""


class Progress(NamedTuple):
    """How far the job is."""

    mini_batches: Counts
    """`total`: planned so far; final once `plan_complete`."""
    items: Counts
    plan_complete: bool
    expected: int | None
    """How many mini-batches there will be, where that is known beforehand."""
    running: int
    """In leases just now."""
    waiting: int
    """In no lease, though known: given back, failed with attempts left, or looked at ahead."""
    recovered: int
    """Found committed in the journal of an earlier run."""
    left_out: tuple[str, ...] = ()
    """Processes, devices and nodes on which everything failed that worked elsewhere."""


class JobStarted(NamedTuple):
    """The driver begins: everything was checked, the job folder is there and locked."""

    job_id: str
    script: str
    unit: str
    """``row`` or ``file``."""
    started: float
    """Wall clock, seconds since the epoch."""
    expected: int | None
    resumed: bool
    options: dict[str, object]
    """The options as the user would write them, for the log."""


class SlotsChanged(NamedTuple):
    """Workers came or went."""

    nodes: int
    slots: int


class AgentChanged(NamedTuple):
    """An agent started, was ready, failed its init, or exited."""

    place: Place
    event: AgentEvent


class MiniBatchesDone(NamedTuple):
    """Attempts at some mini-batches went well, and what they made is committed."""

    place: Place
    mini_batches: list[MiniBatch]
    outcomes: ColumnBatch[Outcome]
    """One for each of them."""


class AttemptFailed(NamedTuple):
    """One attempt at one mini-batch has failed."""

    place: Place
    mini_batch: MiniBatch
    outcome: Outcome
    final: bool
    """True when this settles the mini-batch: it is given up."""
    charged: bool
    """False where the attempt does not count as a try (its node was lost, another died)."""


class ProgressReported(NamedTuple):
    """A few times a second: how far, and what each slot is doing."""

    standing: Progress
    slots: tuple[SlotState, ...]
    elapsed_s: float
    since_progress_s: float
    """Seconds since a mini-batch was settled."""


class MessageLogged(NamedTuple):
    """Something a person should know; goes to the driver's log, and warnings to the terminal."""

    level: str
    """``debug``, ``info``, ``notice``, ``warning`` or ``error``; people see all from notices on."""
    message: str


class OutputPublished(NamedTuple):
    """The output file is there, whole."""

    path: str
    size_bytes: int


class JobEnded(NamedTuple):
    """The job is over, and all its agents are gone."""

    ending: Ending
    standing: Progress
    elapsed_s: float
    output: str
    """The published file; empty where there is none."""
    go_on_by: str = ""
    """What goes on with the job, where it was called."""


Event = (
    JobStarted
    | SlotsChanged
    | AgentChanged
    | MiniBatchesDone
    | AttemptFailed
    | ProgressReported
    | MessageLogged
    | OutputPublished
    | JobEnded
)
