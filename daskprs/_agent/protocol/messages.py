"""The wire protocol between an agent and its supervisor, and an agent's start specification.

Named tuples over a socket pair (`multiprocessing.connection.Connection`). Those of the supervisor
are pickled, and those of the agent are plain values (`agent.protocol.answers`):

======================  =========================================================================
supervisor → agent
`Start`                 once, first: the job and the process
`RunLease`              work
`ExtendLease`           work to be done after that, as if it had come with it
`TruncateLease`         after a recall: go on up to this position, drop what is beyond
`Stop`                  call `shutdown` and exit with 0
agent → supervisor
`Started`               interpreter up, protocol understood, script not imported yet
`InitDone`              the script is imported and `init` came back
`InitRaised`            import or `init` failed; the agent exits with 41
`Outcomes`              some mini-batches are finished; sent at once when no work is left
`Noted`                 something for people, at any time
`Stopped`               `shutdown` came back; the agent exits with 0
======================  =========================================================================

Between two messages, the shared page (`agent.protocol.shared_page`) shows the agent's activity.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._system.masks import mask_of

if TYPE_CHECKING:
    from daskprs._core.calls import Calls
    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.limits import Limits
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Failure, Results
    from daskprs._core.rate_limit import RateLimit
    from daskprs._core.stages import Stages
    from daskprs._inputs.source.batch_format import BatchForm
    from daskprs._inputs.source.included import Included
    from daskprs._output.spec import OutputSpec, SpoolSpec
    from daskprs._system.hidden_values import HiddenValues
    from daskprs._system.masks import Mask


PROTOCOL = 12
INLINE = "inline"
"""The start method of an agent in the process and thread of the caller."""
THREADS_LEFT = "ThreadsLeft"
"""The kind of a failure in `Stopped`: threads of the script keep the process from its end."""


class SourceText(NamedTuple):
    """The text of a file or of a cell of a notebook."""

    file: str
    """The name that its code has in tracebacks."""
    cell: str
    """``Cell In[3]``, as IPython writes it; empty for a file."""
    text: str


class LinkedFile(NamedTuple):
    """A large file beside the script, which the snapshot only links to."""

    path: str
    """Relative to the source directory."""
    place: str
    """The absolute path of the original."""
    version: str
    """Size and time; empty for a log, which may grow while the job runs."""
    inode: str
    """Identifies the file on the driver's machine, even while the file grows."""


class PackageFolder(NamedTuple):
    """A folder or archive of installed packages that is on the path of the program."""

    place: str
    """Its absolute path."""
    is_first: bool
    """Whether it comes before the packages of the interpreter."""


class PluginStandIns(NamedTuple):
    """Modules of a plugin that replace modules which scripts import, if these are absent."""

    package: str
    modules: tuple[str, ...]
    """The top-level modules."""
    sources: dict[str, str]
    """The source of each module of the package, for an interpreter without daskprs."""


class ScriptSpec(NamedTuple):
    """The place of the entry script: a file of the snapshot, or an object by value."""

    name: str
    """For people and for ``argv[0]``: ``score.py`` or ``digits.score``."""
    file: str | None = None
    """Absolute path of the script inside the snapshot."""
    module: str | None = None
    """The dotted name under which it is imported from `source_directory`, if it has one."""
    source_directory: str | None = None
    """The snapshot of the source directory: first on ``sys.path``."""
    original_directory: str | None = None
    """The original of the snapshot, shown in tracebacks instead of it."""
    pickled: bytes | None = None
    """cloudpickle of a callable, an object or a class, for scripts that are not files."""
    sources: tuple[SourceText, ...] = ()
    """The code of such a script, for its tracebacks: agents may not see the caller's files."""
    called_in: str = ""
    """The working directory of the caller of such a script, who may name files from there."""
    linked: tuple[LinkedFile, ...] = ()
    """The files of the snapshot that are links, for nodes that see their originals."""
    any_second: bool = False
    """Whether any second parameter of `run` is for the context, as in Azure's entry scripts."""
    packages: tuple[PackageFolder, ...] = ()
    """The folders where `pickled` finds packages by name."""
    cost: str = ""
    """The function that is called in place of `run`, and says what rows cost; empty: `run` is."""

    def as_written(self, text: str) -> str:
        """Return a traceback with the script's paths as its author knows them."""
        if self.source_directory and self.original_directory:
            text = text.replace(self.source_directory, self.original_directory)
        return self.with_cells(text)

    def with_cells(self, text: str) -> str:
        """Return a traceback or a message with cells of a notebook in place of their files."""
        for file, cell, _ in self.sources:
            if cell:
                text = text.replace(f'File "{file}"', cell)
                text = text.replace(f"{Path(file).name}, line ", f"{cell}, line ")
        return text

    def know_lines(self) -> None:
        """Let tracebacks of this process show the lines of code that came with the script."""
        for file, _, text in self.sources:
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


class JobSpec(NamedTuple):
    """Everything that is the same for all agents of a job; pickled once."""

    job_id: str
    script: ScriptSpec
    arguments: tuple[str, ...]
    """System flags and the user's arguments: ``sys.argv[1:]``."""
    environment: HiddenValues
    """Environment variables that the user sets for the agents, over the worker's own."""
    reader: bytes
    """The pickled reader of the source."""
    unit: str
    """``row`` or ``file``."""
    output: OutputSpec
    job_dir: str
    epoch: int
    """The number of the driver's epoch in the job folder."""
    boot_id: str
    """The boot id of the driver's kernel."""
    output_dir: str
    logging_level: str
    start_method: str
    """``fork`` (from a zygote with pandas imported), ``spawn`` or ``inline``."""
    limits: Limits
    side_inputs: tuple[SideInput, ...] = ()
    batch_form: BatchForm | None = None
    """The conversion of rows before `run` gets them; None: frames and paths stay as they are."""
    far: bool = False
    """The driver does not see `job_dir`: logs and large results are fetched from there."""
    included: Included | None = None
    """The columns of the input that stand beside what `run` returns."""
    resource_interval_s: float = 0.0
    """Seconds between two looks at what is used of the machine; 0: there is none."""
    profiling_module: str | None = None
    """``cProfile`` or ``profile``: the module that profiles `run`."""
    python: str | None = None
    """The interpreter that the script runs under; None: that of the agent."""
    secrets: tuple[str, ...] = ()
    """Names of the environment variables whose values are masked in all that is written."""
    stand_ins: tuple[PluginStandIns, ...] = ()
    stages: Stages | None = None
    """The functions beside `run`; None: there are none."""
    preload: tuple[str, ...] = ()
    """Packages that are imported once, before agents are forked."""
    calls: Calls | None = None
    """The calls of `run` at the same time; None: a process makes one after the other."""
    rate_limit: RateLimit | None = None
    """The limits of requests that calls ask permits for; None: there are none."""
    debug_by: tuple[str, str] = ("", "")
    """The command that runs a mini-batch in a debugger, before and after the words that name it."""
    run_id: str = ""
    """The id of the run that the agents are part of, if neither the worker nor the user has one."""

    @property
    def mask(self) -> Mask:
        """Masks the secrets."""
        return mask_of(*(self.environment[name] for name in self.secrets))


class ProcessSpec(NamedTuple):
    """The data of one agent process."""

    name: str
    """``process000``, …"""
    node: int
    working_dir: str
    stdout: str
    stderr: str
    entry_script_log: str
    """File of `EntryScript().logger`; its folder is `log_dir`."""
    spool: SpoolSpec | None
    """The spool for the agent's rows; None: rows travel with the outcomes."""
    environment: dict[str, str]
    """Set after the fork: devices and names."""
    far: bool = False
    """Whether the driver copies the logs and cuts its copies, so that offsets must not move."""
    profile: str | None = None
    """The file of the profile of `run`; None: `run` is not profiled."""
    last_minutes: Path | None = None
    """The file of the samples of a process that died, below the job folder; None: there is none."""
    program: str = "daskprs._agent.child.main"
    """The module whose `main` runs in the process."""
    is_of_stage: bool = False
    """Whether the process runs the stages beside `run`."""
    masked: bool = False
    """Whether stdout and stderr are pipes, out of which the logs are written with masks."""


class Start(NamedTuple):
    """The first message to an agent."""

    job: JobSpec
    process: ProcessSpec


class RunLease(NamedTuple):
    """Run these, in order."""

    lease_id: int
    work: ColumnBatch[Assigned]
    prefetch: bool
    most_in_a_row: int
    """Number of failures in a row after which the agent halts."""


class ExtendLease(NamedTuple):
    """Run these after what came before."""

    lease_id: int
    work: ColumnBatch[Assigned]


class TruncateLease(NamedTuple):
    """The supervisor's answer to an agent that saw a recall: the agent's last position."""

    lease_id: int
    last: int


class Stop(NamedTuple):
    """Shut down in an orderly way."""


class Started(NamedTuple):
    """The agent is alive."""

    protocol: int


class InitDone(NamedTuple):
    """The script is ready."""

    elapsed_s: float
    import_s: float = 0.0
    """Seconds of the import alone."""
    packages: tuple[str, ...] = ()
    """Large installed packages that were imported."""


class InitRaised(NamedTuple):
    """The script could not be made ready."""

    failure: Failure


class Outcomes(NamedTuple):
    """Finished mini-batches of a lease, in order."""

    lease_id: int
    results: Results
    halted: str | None = None
    """A text where the agent has dropped the rest of its order after failures in a row: that of the
    error after which the process can do nothing more, or an empty one. None while it goes on."""


class Noted(NamedTuple):
    """Something that people should know."""

    text: str


class Stopped(NamedTuple):
    """`shutdown` is over."""

    failure: Failure | None


class SideInput(NamedTuple):
    """A file or folder."""

    name: str
    path: str
    """Absolute, as it is for agents."""
    version: str
    """A digest of the path, size and time of each of its files."""

    @property
    def key(self) -> str:
        """The key under which the side input is sent."""
        return f"side-{self.version}"

    def below(self, folder: Path) -> SideInput:
        """Return the side input with its path inside another folder."""
        return self._replace(path=str(folder / Path(self.path).name))
