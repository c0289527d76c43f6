"""One lease: the mini-batches that one slot works on without asking again, and its return.

A Dask task costs milliseconds and a mini-batch may cost microseconds, so a task carries a run of
mini-batches. What a lease has finished never waits for the rest of it: about once a second the
lease returns what is done, and the next one continues it with more work, so that the slot is
never idle. Where one takes long, what has not begun behind it is given to others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.columnar import ColumnBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.mini_batch import Assigned
    from daskprs.core.outcomes import Failure, Outcome


class AgentAssignment(NamedTuple):
    """What a new agent is given when it starts."""

    process: str
    """``process000``, …: its name on the node."""
    environment: dict[str, str]
    """Of the agent alone: its devices."""
    threads: int
    """Its share of the cores of the node."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An order to one slot of a worker."""

    id: int
    job_id: str
    work: ColumnBatch[Assigned]
    """New work: where the lease continues another one, to be done after what that one left."""
    prefetch: bool = True
    """False for what runs alone: after a death that may be its doing."""
    continues: int | None = None
    """The id of an earlier lease that left mini-batches with its agent, which go on."""
    node: int = 0
    """The number of the node that its slot is on."""
    slot: int = 0
    """The number of the slot on its worker: one slot, one agent at a time."""
    return_after_s: float = 1.0
    """How long its first result may wait for others to come back with."""
    assignment: AgentAssignment | None = None
    """For a new agent, which takes the place of one that is there; None: the one that is there."""
    return_when_ready: bool = False
    """Return once the new agent is up, with all of its work still running."""
    gpus: float = 0.0
    """How many devices, or which part of one, its agent has: so much of the resource ``GPU`` is
    asked of Dask where the cluster declares it."""


class AgentStarted(NamedTuple):
    """An agent process is there; its script has not been imported yet."""

    process: str
    pid: int


class AgentReady(NamedTuple):
    """`init` came back."""

    process: str
    elapsed_s: float


class InitFailed(NamedTuple):
    """Import or `init` of the entry script failed, timed out, or ended the process."""

    process: str
    failure: Failure
    elapsed_s: float


class AgentExited(NamedTuple):
    """An agent process has ended."""

    process: str
    returncode: int
    """Negative: the signal that ended it."""
    reason: str
    """What ended it, for a person: ``run() exceeded 60 s``, ``stopped``."""
    expected: bool
    """True when it ended on its own order."""
    warning: Failure | None = None
    """An error in `shutdown`."""


AgentEvent = AgentStarted | AgentReady | InitFailed | AgentExited


class Death(NamedTuple):
    """An agent died, and any of these attempts may be why."""

    suspects: tuple[Outcome, ...]
    """What was running and what was being loaded ahead, as they are charged if they are: the
    running one first. One alone is to blame; of several nobody knows."""
    alone: tuple[int, ...] = ()
    """Indexes that are not to blame but are to run by themselves next time: what had finished
    last, when its outcome was lost with the agent. Were it the cause of a later crash, it would
    take one neighbour after the other with it, and never be found out."""


class Results(NamedTuple):
    """Outcomes that an agent sent together, with the bytes that they made, or where those are."""

    outcomes: ColumnBatch[Outcome]
    payload: bytes = b""
    """Bytes of the outcomes' extents that are in no spool: text then typed, one after the other."""
    spool: str = ""
    """The name of the spool that the agent has put them into; empty where they travel along."""
    unwritten: str = ""
    """Why the agent could not put them there: then there are none."""

    def only(self, positions: Sequence[int]) -> Results:
        """Return no more than the outcomes at these positions, which ascend, and their bytes."""
        if len(positions) == len(self.outcomes):
            return self
        ends = list(accumulate(outcome.carried_bytes for outcome in self.outcomes))
        starts = [0, *ends]
        pieces = [self.payload[starts[at] : ends[at]] for at in positions]
        outcomes = ColumnBatch(self.outcomes[at] for at in positions)
        return self._replace(outcomes=outcomes, payload=b"".join(pieces))


@dataclass(frozen=True, slots=True)
class LeaseReturned:
    """What a lease came back with: every mini-batch of it is in exactly one of these places.

    `results` (success, or a failure that is its own fault), `death.suspects`, `running` (its
    agent goes on with it; wait for it with a lease that continues this one), `untouched` (not
    begun, or finished but lost with the agent before it could be told: to be run, uncharged).
    Only what is in `death.alone` is in `untouched` as well.
    """

    lease_id: int
    process: str
    results: tuple[Results, ...] = ()
    running: tuple[int, ...] = ()
    untouched: tuple[int, ...] = ()
    recalled: bool = False
    """Work was taken back from the agent: it is given none until something of it is done."""
    vacant: bool = False
    """The agent that was to run it had ended before, and no post for another came with it."""
    death: Death | None = None
    agent_events: tuple[AgentEvent, ...] = ()
    pid: int = 0
    host: str = ""
    withdrawn: bool = False
    """The worker had given the lease back before: nothing of it has begun, or will."""
