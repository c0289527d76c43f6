"""One lease: the mini-batches that one slot works on without asking again, and its return.

A Dask task costs milliseconds and a mini-batch may cost microseconds, so a task carries many
mini-batches. About once a second a lease returns its finished mini-batches, and the next lease
continues it with more work: the slot is never idle. Where one mini-batch takes long, those behind
it that have not begun go to other slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from signal import SIGTERM
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Failure, Outcome, Results
    from daskprs._core.spending import Amounts
    from daskprs._core.stages import StageHost
    from daskprs._core.usage import UsageSample


class AgentAssignment(NamedTuple):
    """The process name, environment and threads of a new agent."""

    process: str
    """``process000``, …: its name on the node."""
    environment: dict[str, str]
    """Environment variables that select the agent's devices."""
    threads: int
    """The agent's share of the node's cores."""
    stage_processes: int = 0
    """The number of stage processes beside the agent."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An order to one slot of a worker."""

    id: int
    work: ColumnBatch[Assigned]
    """New mini-batches. They run after those that the continued lease, if any, left running."""
    prefetch: bool = True
    """Whether the agent loads mini-batches ahead; False for suspects of an earlier death."""
    most_in_a_row: int = 2
    """Number of failures in a row, those of earlier leases included, after which the agent halts.
    What it has not begun is untouched. A lease that continues another one keeps its number."""
    continues: int | None = None
    """Id of the earlier lease whose remaining mini-batches this lease continues."""
    node: int = 0
    slot: int = 0
    """Number of the slot on its worker; a slot has one agent at a time."""
    return_after_s: float = 1.0
    """Seconds that the first result may wait for others before the lease returns."""
    assignment: AgentAssignment | None = None
    """Assignment of a new agent, which replaces the present one; None keeps the present agent."""
    return_when_ready: bool = False
    """Whether the lease returns once the new agent is ready, with all its work still running."""
    finds_gpu_use: bool = False
    """Whether the lease returns what its agent has to do with GPUs, once a mini-batch has run."""
    gpus: float = 0.0
    """Number of devices, or fraction of one, of the agent. The Dask task requests this amount of
    the resource ``GPU`` where the cluster declares it."""
    stage_hosts: tuple[StageHost, ...] = ()
    """Workers of other nodes that run `preprocess` for the slot from now on."""


class AgentStarted(NamedTuple):
    """An agent process has started; its script has not been imported yet."""

    process: str
    pid: int
    apart: tuple[str, ...] = ()
    """Packages of `preload` that it has to import itself, with the reasons."""


class AgentReady(NamedTuple):
    """`init` has returned."""

    process: str
    elapsed_s: float
    import_s: float = 0.0
    """Seconds of the import of the script alone."""
    packages: tuple[str, ...] = ()
    """Large installed packages that were imported with it."""


class InitFailed(NamedTuple):
    """Import or `init` of the entry script failed, timed out, or ended the process."""

    process: str
    failure: Failure
    elapsed_s: float
    was_idle: bool = False
    """Whether it was ended since it did nothing."""


class AgentExited(NamedTuple):
    """An agent process has ended."""

    process: str
    returncode: int
    """Exit code; a negative one is the signal that ended the process."""
    reason: str
    """Why the process ended, for people: ``run() exceeded 60 s``, ``stopped``."""
    expected: bool
    """True when it ended on its own order."""
    warning: Failure | None = None
    """An error in `shutdown`."""
    usage: tuple[UsageSample, ...] = ()
    """The usage in the last minutes of a process that did not end on its own order."""
    counted: Amounts = ()
    """What the script has counted in it."""


class AgentNoted(NamedTuple):
    """An agent has seen something that people should know."""

    process: str
    text: str


AgentEvent = AgentStarted | AgentReady | InitFailed | AgentExited | AgentNoted


class GpuUse(NamedTuple):
    """The GPU use of an agent and its sub-processes."""

    library: str
    """A library they have loaded that can use a GPU; empty for none."""
    is_open: bool
    """Whether one of them holds a device open."""


class Death(NamedTuple):
    """An agent died, and any of these attempts may be the cause."""

    suspects: tuple[Outcome, ...]
    """Outcomes to charge, if any: the running mini-batch first, then those being loaded ahead. A
    single suspect is to blame; among several the culprit is unknown."""
    alone: tuple[int, ...] = ()
    """Indexes of mini-batches that are not charged but run alone next time: the last one to
    finish, when its outcome was lost with the agent. If it caused a later crash, its neighbours
    would be blamed one after the other, and it never would."""


@dataclass(frozen=True, slots=True)
class LeaseReturned:
    """The return of a lease. Each of its mini-batches is in exactly one of these places.

    `results` (success, or a failure of its own), `death.suspects`, `running` (its agent goes on
    with it; wait for it with a lease that continues this one), `untouched` (to be run, uncharged:
    not begun, or finished but lost with the agent before the agent reported it). Only the
    mini-batches of `death.alone` are in `untouched` as well.
    """

    lease_id: int
    process: str
    results: tuple[Results, ...] = ()
    running: tuple[int, ...] = ()
    untouched: tuple[int, ...] = ()
    recalled: bool = False
    """Whether work was recalled from the agent: it gets new work only after it finishes some."""
    gpu_use: GpuUse | None = None
    """The GPU use of the agent; None if nothing asked for it, or no mini-batch has run."""
    halted: bool = False
    """Whether the agent has stopped after failures in a row; what is left of its work is
    untouched."""
    is_done: bool = False
    """Whether it has stopped after a success: it has grown, or has run as much as it may."""
    vacant: bool = False
    """Whether the agent had ended before, and the lease carried no assignment for a new one."""
    death: Death | None = None
    agent_events: tuple[AgentEvent, ...] = ()
    stage_events: tuple[AgentEvent, ...] = ()
    """Those of the processes of stages beside `run`, for people: nothing depends on them."""
    pid: int = 0
    host: str = ""
    counted: tuple[tuple[str, Amounts], ...] = ()
    """What the script has counted in the processes of the slot so far, by process."""
    withdrawn: bool = False
    """Whether the worker gave the lease back before: none of its mini-batches will begin."""

    def terminated(self) -> LeaseReturned:
        """Return the same without blame, if SIGTERM has ended the agent or a stage process."""
        if any(one.is_stage_death for made in self.results for one in made.outcomes):
            return self._without_lost_stages().terminated()
        exits = [one for one in self.agent_events if isinstance(one, AgentExited)]
        if self.death is None or not any(one.returncode == -SIGTERM for one in exits):
            return self
        suspects = tuple(outcome.index for outcome in self.death.suspects)
        return replace(self, death=None, vacant=True, untouched=(*suspects, *self.untouched))

    def _without_lost_stages(self) -> LeaseReturned:
        """Return the same with untouched mini-batches where a stage process has died."""
        lost = [one.index for made in self.results for one in made.outcomes if one.is_stage_death]
        kept = [
            made.only([at for at, one in enumerate(made.outcomes) if not one.is_stage_death])
            for made in self.results
        ]
        results = tuple(made for made in kept if made.outcomes)
        # `vacant` explains work that comes back whole.
        vacant, untouched = self.vacant or not self.running, (*lost, *self.untouched)
        return replace(self, results=results, vacant=vacant, untouched=untouched)
