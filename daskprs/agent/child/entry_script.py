"""The entry script in its agent, and what it may ask about its process and its mini-batches."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from daskprs.agent.child import stand_ins
from daskprs.errors import ScriptError
from daskprs.system import masks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs.agent.protocol.messages import JobSpec, ProcessSpec, ScriptSpec
    from daskprs.core.mini_batch import MiniBatch


class EntryScript:
    """The process of an entry script, seen from inside; there is one in each process.

    Outside of an agent it works as well, for debugging: logs go to stderr, and the folders are
    the working directory.

    Attributes
    ----------
    logger : logging.Logger
        Writes to a log file of this process.
    log_dir : str
        The folder of that file.
    output_dir : str
        The output folder of the job.
    agent_name : str
        ``process000``, …
    working_dir : str
        The private working directory of this process.
    side_inputs : dict
        Where the side inputs of the job are, by name.

    """

    _only: Any = None

    logger: logging.Logger
    log_dir: str
    output_dir: str
    agent_name: str
    working_dir: str
    side_inputs: dict[str, str]

    def __new__(cls) -> Self:
        """Return the one that there is."""
        if cls._only is None:
            here = str(Path.cwd())
            one = super().__new__(cls)
            one._describe(here, here, here, "process000")
            one._log_to(logging.StreamHandler(sys.stderr), "INFO")
            cls._only = one
        only: Self = cls._only
        return only

    @classmethod
    def install(cls, job: JobSpec, process: ProcessSpec) -> None:
        """Describe the agent that this process is."""
        one = super().__new__(cls)
        log = Path(process.entry_script_log)
        log.parent.mkdir(parents=True, exist_ok=True)
        one._describe(str(log.parent), job.output_dir, process.working_dir, process.name)
        one.side_inputs = {side.name: side.path for side in job.side_inputs}
        masks.install(job.mask)
        one._log_to(logging.FileHandler(log, delay=True, encoding="utf-8"), job.logging_level)
        cls._only = one

    def _describe(self, log_dir: str, output_dir: str, working_dir: str, name: str) -> None:
        self.log_dir = log_dir
        self.output_dir = output_dir
        self.working_dir = working_dir
        self.agent_name = name
        self.side_inputs = {}

    def _log_to(self, handler: logging.Handler, level: str) -> None:
        handler.setFormatter(_Masking("%(asctime)s|%(levelname)s|%(process)d|%(message)s"))
        self.logger = logging.getLogger("entry_script")
        self.logger.handlers[:] = [handler]
        self.logger.setLevel(level)
        self.logger.propagate = False


class _Masking(logging.Formatter):
    """Formats a record without the secrets of this process."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return masks.masked(super().format(record))


@dataclass(frozen=True, slots=True)
class Slice:
    """A small description of where a mini-batch comes from; ``str`` of it suits a log."""

    label: str
    identity: str
    size_bytes: int | None = None

    def __str__(self) -> str:
        """Return the line that people read: ``trips.csv, bytes 0-1048576``."""
        return self.label or self.identity


@dataclass(frozen=True, slots=True)
class MiniBatchContext:
    """The second argument of `run`, for those that take one; it cannot be changed.

    Attributes
    ----------
    minibatch_index : int
        The number of the mini-batch, the same in every run over the same input.
    partition_key_value : dict
        Names and values of the partition keys, in the order of `partition_keys`.
    global_row_index_lower_bound : int or None
        Offset of its first row or file in the whole input, where the plan knows it.
    dataset : Slice
        What it is a slice of.

    """

    minibatch_index: int
    partition_key_value: Mapping[str, Any] = field(default_factory=dict)
    global_row_index_lower_bound: int | None = None
    dataset: Slice = Slice("", "")

    @classmethod
    def of(cls, mini_batch: MiniBatch) -> MiniBatchContext:
        """Return the context of a mini-batch."""
        return cls(
            mini_batch.index,
            dict(mini_batch.partition_key),
            mini_batch.row_lower_bound,
            Slice(mini_batch.label, mini_batch.identity, mini_batch.size_bytes),
        )


class ScriptFunctions:
    """The functions `init`, `run` and `shutdown` of an imported script; only `run` is required."""

    def __init__(self, script: Any, name: str) -> None:
        run = script if inspect.isfunction(script) else getattr(script, "run", None)
        if run is None and callable(script):
            run = script
        if not callable(run):
            msg = f"{name} has no function run(mini_batch)."
            raise ScriptError(msg)
        self._run: Callable[..., Any] = run
        self._takes_context = takes_two(run)
        self.init: Callable[[], Any] = getattr(script, "init", None) or _do_nothing
        self.shutdown: Callable[[], Any] = getattr(script, "shutdown", None) or _do_nothing

    def run(self, data: Any, mini_batch: MiniBatch) -> Any:
        """Call `run`, with the mini-batch's context if it takes one."""
        if self._takes_context:
            return self._run(data, MiniBatchContext.of(mini_batch))
        return self._run(data)


def _do_nothing() -> None:
    """Take the place of a function that the script does not have."""


def takes_two(run: Callable[..., Any]) -> bool:
    """Say whether a function can take two positional arguments, whatever their names."""
    try:
        inspect.signature(run).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def takes_one(run: Callable[..., Any]) -> bool:
    """Say whether a function can be called with the mini-batch, alone or with its context."""
    try:
        inspect.signature(run).bind(None)
    except TypeError:
        return takes_two(run)
    except ValueError:  # a builtin without a signature
        return True
    return True


def load_entry_script(job: JobSpec, process: ProcessSpec) -> ScriptFunctions:
    """Make this process one that runs the script, and import it."""
    script = job.script
    EntryScript.install(job, process)
    stand_ins.install()
    sys.argv[:] = [script.name, *job.arguments]
    logging.basicConfig(
        stream=sys.stdout,
        level=job.logging_level,
        format="%(asctime)s|%(name)s|%(levelname)s|%(process)d|%(message)s",
        force=True,
    )
    if script.source_directory is not None:
        sys.path.insert(0, script.source_directory)
    return ScriptFunctions(_imported(script), script.name)


def _imported(script: ScriptSpec) -> Any:
    if script.pickled is not None:
        script.know_lines()
        loaded = pickle.loads(script.pickled)
        return loaded() if inspect.isclass(loaded) else loaded
    if script.module is not None:
        return importlib.import_module(script.module)
    if script.file is None:
        msg = f"{script.name}: neither a file nor an object came with the job."
        raise ScriptError(msg)
    name = Path(script.file).stem
    spec = importlib.util.spec_from_file_location(name, script.file)
    if spec is None or spec.loader is None:
        msg = f"{script.file} is not a Python file."
        raise ScriptError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
