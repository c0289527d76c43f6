"""What goes into the ledger and what comes out: events, past tense, and actions, imperative."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.lease import Lease, LeaseReturned, Results
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Failure, Outcome


class SlotId(NamedTuple):
    """A place for one agent at a time."""

    worker: str
    """Address of the Dask worker."""
    number: int
    """Its number on that worker."""
    node: int


class SlotResources(NamedTuple):
    """What the agents of a slot have."""

    devices: tuple[str, ...] = ()
    """The devices that its worker may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    threads: int = 1
    """An agent's share of the cores of its node."""


# ---- events ----


class SlotAdded(NamedTuple):
    """A slot is there to be used."""

    slot: SlotId
    slot_resources: SlotResources = SlotResources()


class SlotsLost(NamedTuple):
    """Slots have gone, and so has what they were working on.

    Those of a worker go together: else what was on one would be given to the next one, which is
    gone as well, and be lost once more.
    """

    slots: tuple[SlotId, ...]
    expected: bool = False
    """The worker was told to go, or they were taken away: nothing that ran there is to blame."""


class LeaseFailed(NamedTuple):
    """The task of a lease raised an error of daskprs itself: no agent could be had."""

    lease_id: int
    failure: Failure


class ThreadsCounted(NamedTuple):
    """Workers have reported which of their Dask threads are taken; this replaces earlier counts."""

    busy: frozenset[str]
    """Addresses of the workers without an idle thread."""
    waiting: frozenset[int]
    """Ids of the leases that have waited a second for a thread, and for nothing else."""


class LeaseWithdrawn(NamedTuple):
    """A worker has given a lease back that had not begun, and will not begin it any more."""

    lease_id: int


class LeaseKept(NamedTuple):
    """A worker has not given a lease back: it has begun, or the worker did not answer."""

    lease_id: int


class Ticked(NamedTuple):
    """Time has gone by."""


Event = (
    SlotAdded | SlotsLost | LeaseFailed | ThreadsCounted | LeaseWithdrawn | LeaseKept | Ticked
)  # and LeaseReturned


# ---- actions ----


class Submit(NamedTuple):
    """Send a lease to its slot."""

    lease: Lease
    slot: SlotId


class Withdraw(NamedTuple):
    """Ask a worker to give a lease back, unless it has begun."""

    lease_id: int


class Commit(NamedTuple):
    """Write what attempts made: they are the ones that count."""

    mini_batches: list[MiniBatch]
    positions: list[int]
    """Which of the results are theirs: all of them, unless some failed or came too late."""
    results: Results

    @property
    def made(self) -> Results:
        """What they made: one outcome for each mini-batch."""
        return self.results.only(self.positions)


class FailAttempt(NamedTuple):
    """Record a failed attempt."""

    mini_batch: MiniBatch
    outcome: Outcome
    final: bool
    """The mini-batch is given up."""
    charged: bool
    """It counts as a try."""
    lost_node: int | None = None
    """The node whose worker was lost with it; None where its agent has reported the end."""


class Remark(NamedTuple):
    """Let people know of something."""

    message: str


class Abort(NamedTuple):
    """End the job as failed."""

    reason: str
    failure: Failure | None


class Finish(NamedTuple):
    """Everything is settled."""


Action = Submit | Withdraw | Commit | FailAttempt | Remark | Abort | Finish

if TYPE_CHECKING:
    LedgerEvent = Event | LeaseReturned
