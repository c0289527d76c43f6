"""The wire protocol between an agent and its supervisor, and what an agent is told at its start.

Pickled named tuples over a socket pair (`multiprocessing.connection.Connection`):

======================  =========================================================================
supervisor → agent
`Start`                 once, first: the job and the process
`RunLease`              work
`ExtendLease`                  work to be done after that, as if it had come with it
`TruncateLease`                  after a recall: go on up to this position, drop what is beyond
`Stop`                  call `shutdown` and exit with 0
agent → supervisor
`Started`               interpreter up, protocol understood, script not imported yet
`InitDone`              the script is imported and `init` came back
`InitRaised`            import or `init` failed; the agent exits with 41
`Outcomes`              some mini-batches are finished; sent at once when there is no more work
`Stopped`               `shutdown` came back; the agent exits with 0
======================  =========================================================================

Between two messages, the shared page (`agent.protocol.shared_page`) says what an agent does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.columnar import ColumnBatch
    from daskprs.core.lease import Results
    from daskprs.core.mini_batch import Assigned
    from daskprs.core.outcomes import Failure
    from daskprs.output.spec import OutputSpec, SpoolSpec


PROTOCOL = 4
THREADS_LEFT = "ThreadsLeft"
"""The kind of a failure in `Stopped`: threads of the script keep the process from its end."""


class ScriptSpec(NamedTuple):
    """Where the entry script is: a file of the snapshot, or an object by value."""

    name: str
    """For people and for ``argv[0]``: ``score.py`` or ``digits.score``."""
    file: str | None = None
    """Absolute path of the script inside the snapshot."""
    module: str | None = None
    """The dotted name under which it is imported from `source_directory`, if it has one."""
    source_directory: str | None = None
    """The snapshot of the source directory: first on ``sys.path``."""
    original_directory: str | None = None
    """Where the snapshot was taken from: shown in tracebacks in place of it."""
    pickled: bytes | None = None
    """cloudpickle of a callable, an object or a class, for scripts that are no file."""


class JobSpec(NamedTuple):
    """Everything that is the same for all agents of a job; pickled once."""

    job_id: str
    script: ScriptSpec
    arguments: tuple[str, ...]
    """System flags and the user's arguments: ``sys.argv[1:]``."""
    environment: dict[str, str]
    """What the user has set for the agents, over what their worker has."""
    reader: bytes
    """The pickled reader of the source."""
    unit: str
    """``row`` or ``file``."""
    output: OutputSpec
    job_dir: str
    epoch: int
    """The number of the driver's time in the job folder."""
    boot_id: str
    """Of the kernel that the driver runs on."""
    output_dir: str
    logging_level: str
    start_method: str
    """``fork`` (from a zygote with pandas imported) or ``spawn``."""
    side_inputs: tuple[SideInput, ...] = ()
    far: bool = False
    """The driver does not see `job_dir`: logs and large results are fetched from there."""


class ProcessSpec(NamedTuple):
    """What is particular to one agent process."""

    name: str
    """``process000``, …"""
    node: int
    working_dir: str
    stdout: str
    stderr: str
    entry_script_log: str
    """File of `EntryScript().logger`; its folder is `log_dir`."""
    spool: SpoolSpec | None
    """Where it puts rows; None: they travel with the outcomes."""
    environment: dict[str, str]
    """Set after the fork: devices and names."""
    far: bool = False
    """Its logs are copied by the driver, which cuts them: places in them stay where they are."""


class Start(NamedTuple):
    """The first message to an agent."""

    protocol: int
    job: JobSpec
    process: ProcessSpec


class RunLease(NamedTuple):
    """Run these, in order."""

    lease_id: int
    work: ColumnBatch[Assigned]
    prefetch: bool


class ExtendLease(NamedTuple):
    """Run these after what came before."""

    lease_id: int
    work: ColumnBatch[Assigned]


class TruncateLease(NamedTuple):
    """The supervisor's answer to an agent that saw the recall: the last position that is its."""

    lease_id: int
    last: int


class Stop(NamedTuple):
    """Shut down in an orderly way."""


class Started(NamedTuple):
    """The agent is alive."""

    pid: int
    protocol: int


class InitDone(NamedTuple):
    """The script is ready."""

    elapsed_s: float


class InitRaised(NamedTuple):
    """The script could not be made ready."""

    failure: Failure


class Outcomes(NamedTuple):
    """Finished mini-batches of a lease, in order."""

    lease_id: int
    results: Results


class Stopped(NamedTuple):
    """`shutdown` is over."""

    failure: Failure | None


class SideInput(NamedTuple):
    """A file or folder."""

    name: str
    path: str
    """Absolute, as it is for agents."""
    version: str
    """What its files are known by: path, size and time of each."""

    @property
    def key(self) -> str:
        """Under which it travels."""
        return f"side-{self.version}"

    def below(self, folder: Path) -> SideInput:
        """Return it as it is when it has come to a folder."""
        return self._replace(path=str(folder / Path(self.path).name))
