"""The events of a running job, which logs, progress and reports receive.

Past tense, in the order in which they happened, all sent from the driver's one loop. What comes
from agents (`core.lease.AgentEvent`) arrives wrapped with its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.limits import Limits

if TYPE_CHECKING:
    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.ending import Ending
    from daskprs._core.lease import AgentEvent
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._core.spending import Amounts
    from daskprs._core.usage import NodeUsage


class Counts(NamedTuple):
    """Number of mini-batches or items: all, succeeded and failed ones."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0


class Place(NamedTuple):
    """The place of an event: node, process and host."""

    node: int
    process: str
    """``process000``, …; empty where no agent process had begun on it."""
    host: str = ""
    pid: int = 0


NOWHERE = Place(0, "")


class SlotState(NamedTuple):
    """The current state of one slot, as its worker last reported it."""

    place: Place
    phase: str
    """``starting``, ``init``, ``loading``, ``running``, ``waiting`` (for a permit), ``returning``,
    ``shutdown`` or ``idle``."""
    since_s: float
    """Seconds in this phase."""
    index: int | None  # type: ignore[assignment]  # it hides tuple.index
    """Index of the current mini-batch."""
    printed: tuple[int, int] = (0, 0)
    """First byte of its output in the stdout and in the stderr of its process."""
    size: int | None = None
    """Size of the current mini-batch, as of `MiniBatch.size`."""
    counted: tuple[tuple[str, Amounts], ...] = ()
    """What the script has counted in the processes of the slot so far, by process."""


class Progress(NamedTuple):
    """The progress of the job."""

    mini_batches: Counts
    """`total`: planned so far; final once `plan_complete`."""
    items: Counts
    plan_complete: bool
    expected: int | None
    """Number of mini-batches of the plan, where that is known beforehand."""
    running: int
    """Number of mini-batches in leases."""
    waiting: int
    """Number of known mini-batches in no lease: returned, to be retried, or made in advance."""
    recovered: int
    """Number of mini-batches that the journal of an earlier run shows as committed."""
    left_out: tuple[str, ...] = ()
    """Devices and nodes on which everything failed that worked elsewhere."""
    renewals: int = 0
    """Number of processes that were renewed since a mini-batch may have broken them."""
    not_returned: int = 0
    """Failed items of mini-batches that succeeded: `run` returned fewer than it was given."""
    delayed: int = 0
    """Number of the waiting mini-batches whose retry is delayed."""
    retry_in_s: float | None = None
    """Seconds until the next of these is due; None without one."""
    spent: Amounts = ()
    """What the mini-batches have used by the script's own count, in all runs of the job."""
    useful: Amounts = ()
    """The part of it that committed attempts have used."""
    throttled: int = 0
    """Number of attempts that an endpoint has refused since there were too many requests."""

    @property
    def planned(self) -> int | None:
        """Number of mini-batches of the plan; None where it is unknown."""
        return self.mini_batches.total if self.plan_complete else self.expected

    @property
    def of_plan(self) -> Counts:
        """The counts of mini-batches: `total` is that of the plan, or of what is known of it."""
        counts, planned = self.mini_batches, self.planned
        return counts if planned is None else counts._replace(total=planned)

    @property
    def settled(self) -> int:
        """Number of mini-batches that are done or given up."""
        return self.mini_batches.succeeded + self.mini_batches.failed


class JobStarted(NamedTuple):
    """The driver begins: all checks have passed, and the job folder exists and is locked."""

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
    limits: Limits = Limits()
    sizes: dict[int, int] | None = None
    """Sizes of the mini-batches to be run, by index, as of `MiniBatch.size`; None where unknown."""
    recovered: int = 0
    """Number of mini-batches that earlier runs have committed."""


class SlotsChanged(NamedTuple):
    """Workers came or went."""

    nodes: int
    slots: int


class AgentChanged(NamedTuple):
    """An agent started, was ready, failed its init, or exited."""

    place: Place
    event: AgentEvent


class MiniBatchesDone(NamedTuple):
    """Attempts at some mini-batches succeeded, and their results are committed."""

    place: Place
    mini_batches: list[MiniBatch]
    outcomes: ColumnBatch[Outcome]
    """One outcome for each mini-batch."""


class AttemptFailed(NamedTuple):
    """One attempt at one mini-batch has failed."""

    place: Place
    mini_batch: MiniBatch
    outcome: Outcome
    final: bool
    """Whether the mini-batch is given up."""
    charged: bool
    """False where the attempt does not count as a try (after the loss of a node, say)."""
    again: bool = False
    """Whether it was told before, when its mini-batch was not given up yet."""


class ProgressReported(NamedTuple):
    """Progress and the state of each slot, a few times a second."""

    standing: Progress
    slots: tuple[SlotState, ...]
    elapsed_s: float
    since_progress_s: float
    """Seconds since a mini-batch was settled."""
    obstacles: tuple[str, ...] = ()
    """Clauses on what keeps slots from work, as the cluster sees it, the most important first."""
    doing: str = ""
    """The driver's work after the last mini-batch, with its progress; empty before that."""


class UsageMeasured(NamedTuple):
    """A worker has measured its machine and its agents."""

    node: int
    usage: NodeUsage
    of_node: bool
    """Whether the worker speaks for the node; of several on a node only one does."""


class MessageLogged(NamedTuple):
    """A message for people, in the driver's log; warnings also appear on the terminal."""

    level: str
    """``debug``, ``info``, ``notice``, ``warning`` or ``error``; people see all from notices on."""
    message: str


class AdviceGiven(NamedTuple):
    """The figures of the job suggest other options."""

    text: str


class OutputPublished(NamedTuple):
    """The complete output file is published."""

    path: str
    size_bytes: int


class JobEnded(NamedTuple):
    """The job is over, and all its agents have ended."""

    ending: Ending
    standing: Progress
    elapsed_s: float
    output: str
    """The published file; empty without one."""
    go_on_by: str = ""
    """The command or arguments that resume the job, as its caller would write them."""
    go_on_mended_by: str = ""
    """The same for a script or an input that was mended; empty if neither has a part in the end."""
    why_by: str = ""
    """The command that shows what failed, and why."""


Event = (
    JobStarted
    | SlotsChanged
    | AgentChanged
    | MiniBatchesDone
    | AttemptFailed
    | ProgressReported
    | UsageMeasured
    | MessageLogged
    | AdviceGiven
    | OutputPublished
    | JobEnded
)
