"""Input and output of the ledger: events, past tense, and actions, imperative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from daskprs._core.lease import Lease, LeaseReturned
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure, Outcome, Results
    from daskprs._core.stages import StageHost


OptionValues = tuple[tuple[str, Any], ...]
"""Values of options, by name."""


class SlotId(NamedTuple):
    """A place for one agent at a time."""

    worker: str
    """Address of the Dask worker."""
    number: int
    """Number of the slot on that worker."""
    node: int


class SlotResources(NamedTuple):
    """Devices and threads of a slot's agents."""

    devices: tuple[str, ...] = ()
    """The devices that its worker may use; workers of a node have one name for each."""
    threads: int = 1
    """An agent's share of the cores of its node."""
    names: tuple[str, ...] = ()
    """The names of the devices in ``CUDA_VISIBLE_DEVICES``; empty: they are the same."""
    stage_hosts: tuple[StageHost, ...] = ()
    """Workers of other nodes that run `preprocess` for the slot."""
    stage_processes: int = 0
    """The number of its own stage processes."""


# ---- events ----


class SlotAdded(NamedTuple):
    """A slot has become available."""

    slot: SlotId
    slot_resources: SlotResources = SlotResources()
    ends_at_s: float | None = None
    """Time on the ledger's clock at which its worker ends by itself; None if that is not known."""


class SlotsLost(NamedTuple):
    """Slots are lost, together with their mini-batches.

    All slots of a worker are lost in one event. Otherwise the mini-batches of one slot would go to
    the next one, which is gone as well, and would be lost once more.
    """

    slots: tuple[SlotId, ...]
    expected: bool = False
    """Whether the loss is intended, so that no mini-batch that ran there is to blame."""
    waited: frozenset[int] = frozenset()
    """Ids of leases that waited for their data, so that they are not to blame."""


class LeaseFailed(NamedTuple):
    """The task of a lease raised an error of daskprs itself: no agent was available."""

    lease_id: int
    failure: Failure


class ThreadsCounted(NamedTuple):
    """Workers have reported which of their Dask threads are taken; this replaces earlier counts."""

    busy: frozenset[str]
    """Addresses of the workers without an idle thread."""
    waiting: frozenset[int]
    """Ids of the leases that have waited a second for a thread, and for nothing else."""


class LeaseWithdrawn(NamedTuple):
    """A worker has given back a lease that had not begun, and will never begin it."""

    lease_id: int


class LeaseKept(NamedTuple):
    """A worker has not given a lease back: it has begun, or the worker did not answer."""

    lease_id: int


class Ticked(NamedTuple):
    """Time has gone by."""

    waits: bool = False
    """Whether calls wait for permits, and none is under way."""


class EndSet(NamedTuple):
    """The end of the job is known: near it only what fits is begun."""

    at_s: float | None
    """Time on the ledger's clock; None: without an end."""
    why: str = ""
    """For the message of a job that this end cuts short."""
    by_signal: bool = False
    """Whether SIGTERM has set it: whoever sent it may have sent it to all processes here."""
    again: OptionValues = ()
    """As `Interrupt.again`."""


# ---- actions ----


class Submit(NamedTuple):
    """Send a lease to its slot."""

    lease: Lease
    slot: SlotId


class Withdraw(NamedTuple):
    """Ask a worker to give a lease back, unless it has begun."""

    lease_id: int
    rest: bool = False
    """Whether one that has begun gives back what of it has not."""


class Commit(NamedTuple):
    """Write the results of the attempts that count."""

    mini_batches: list[MiniBatch]
    positions: list[int]
    """Positions of their outcomes in the results: all, unless some failed or came too late."""
    results: Results

    @property
    def made(self) -> Results:
        """The results of these mini-batches: one outcome for each."""
        return self.results.only(self.positions)


class FailAttempt(NamedTuple):
    """Record a failed attempt."""

    mini_batch: MiniBatch
    outcome: Outcome
    final: bool
    """Whether the mini-batch is given up."""
    charged: bool
    """Whether the attempt counts as a try."""
    lost_node: int | None = None
    """Node of the worker lost during the attempt; None where the agent has reported the end."""
    again: bool = False
    """Whether it was recorded before, when its mini-batch was not given up yet."""


class KeepCommit(NamedTuple):
    """Note that a mini-batch is settled, since it stays as an earlier run has committed it."""

    mini_batch: MiniBatch


class HideGpus(NamedTuple):
    """Give workers a slot for each thread: the script uses no GPU, and new agents see none."""


class KeepSize(NamedTuple):
    """Keep the largest number of items of a call of `run`, with which memory is enough."""

    at_most: int


class KeepRowColumns(NamedTuple):
    """Keep the columns of what `run` returns, which rows of nulls have, too."""

    columns: tuple[str, ...]


class Remark(NamedTuple):
    """Log a message for people."""

    level: str
    """``debug``, ``info``, ``notice`` or ``warning``."""
    message: str


class Abort(NamedTuple):
    """End the job as failed."""

    reason: str
    failure: Failure | None


class Finish(NamedTuple):
    """Everything is settled."""


class Interrupt(NamedTuple):
    """End the job before its work is done: its end has come, or nothing fits before it."""

    reason: str
    again: OptionValues = ()
    """The options that a resume needs other values of, else it would end at once, too: each with a
    value that lets it go on. With None, it goes on without the option."""


Action = (
    Submit
    | Withdraw
    | Commit
    | FailAttempt
    | HideGpus
    | KeepSize
    | KeepCommit
    | KeepRowColumns
    | Remark
    | Abort
    | Finish
    | Interrupt
)

if TYPE_CHECKING:
    LedgerEvent = (
        SlotAdded
        | SlotsLost
        | LeaseReturned
        | LeaseFailed
        | LeaseWithdrawn
        | LeaseKept
        | ThreadsCounted
        | EndSet
        | Ticked
    )
