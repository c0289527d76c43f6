"""The entry script in its process, and what it may ask about its process and its mini-batches."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self  # the hints alone need it

LOG_FORMAT = "%(asctime)s|%(name)s|%(levelname)s|%(process)d|%(message)s"
IMPORTING = "DASKPRS_IMPORTING"
"""The environment variable with the process that imports a script, and the name of the script:
this process may not start a job meanwhile."""


class EntryScript:
    """The process that runs an entry script, as the script sees it; one in each process.

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
    _masked: Callable[[str], str]

    def __new__(cls) -> Self:
        if cls._only is None:
            here = os.getcwd()  # noqa: PTH109 - as text
            one = super().__new__(cls)
            one.log_dir = one.output_dir = one.working_dir = here
            one.agent_name, one.side_inputs = "process000", {}
            one._log_to(logging.StreamHandler(sys.stderr), "INFO", str)
            cls._only = one
        only: Self = cls._only
        return only

    @classmethod
    def install(
        cls,
        log_file: str,
        output_dir: str,
        working_dir: str,
        name: str,
        side_inputs: dict[str, str],
        level: str,
        masked: Callable[[str], str],
        mark: Callable[[], str] = str,
    ) -> None:
        """Describe the agent that this process is.

        `masked` hides secrets in its log, where messages begin with what `mark` returns.
        """
        one = super().__new__(cls)
        log = Path(log_file)
        log.parent.mkdir(parents=True, exist_ok=True)
        one.log_dir, one.output_dir, one.working_dir = str(log.parent), output_dir, working_dir
        one.agent_name, one.side_inputs = name, side_inputs
        one._log_to(logging.FileHandler(log, delay=True, encoding="utf-8"), level, masked, mark)
        cls._only = one

    def _log_to(
        self,
        handler: logging.Handler,
        level: str,
        masked: Callable[[str], str],
        mark: Callable[[], str] = str,
    ) -> None:
        formatter = _Masking("%(asctime)s|%(levelname)s|%(process)d|%(mark)s%(message)s")
        formatter.masked = self._masked = masked
        formatter.mark = mark
        handler.setFormatter(formatter)
        self.logger = logging.getLogger("entry_script")
        self.logger.handlers[:] = [handler]
        self.logger.setLevel(level)
        self.logger.propagate = False


def masked_here(text: str) -> str:
    """Return a text without the secrets of this process."""
    return EntryScript()._masked(text)  # noqa: SLF001 - scripts have no use for it


class _Masking(logging.Formatter):
    """Formats a record without the secrets of this process."""

    masked: Callable[[str], str]
    mark: Callable[[], str]

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """Return when a record was made: UTC, as in all other logs.

        To the microsecond, as attempts begin: the next attempt may begin a tenth of a millisecond
        after the line that tells why this one fails.
        """
        return f"{datetime.fromtimestamp(record.created, timezone.utc):%Y-%m-%d %H:%M:%S,%f}"

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        record.mark = self.mark()
        return self.masked(super().format(record))


@dataclass(frozen=True)
class Slice:
    """A small description of where a mini-batch comes from; ``str`` of it suits a log."""

    label: str
    identity: str
    size_bytes: int | None = None

    def __str__(self) -> str:
        """Return the line that people read: ``trips.csv, bytes 0-1048576``."""
        return self.label or self.identity


class Throttled(Exception):  # noqa: N818 - what has happened
    """An endpoint wants fewer requests; ``context.throttled()`` raises it."""

    def __init__(self, after_s: float | str | None = None) -> None:
        if after_s is not None:
            try:
                seconds = float(after_s)
            except (TypeError, ValueError):
                seconds = nan
            if not isfinite(seconds):
                msg = f"context.throttled({after_s!r}): after_s is a number of seconds."
                raise ValueError(msg)
            after_s = max(0.0, seconds)  # a time that has passed is over
        when = "" if after_s is None else f" for {after_s:g} s"
        super().__init__(f"the endpoint wants no request{when}")
        self.after_s: float | None = after_s


class FreePermit:
    """A permit where nothing limits requests: it is there at once, awaited or not."""

    def __await__(self) -> Iterator[Any]:
        return iter(())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class CallTools:
    """What the context of a call works with; outside a job, or elsewhere, it has none of it."""

    failed: list[tuple[int, str]] | None = None
    """Takes the positions and reasons of `context.fail`."""
    count: Callable[[str, float], None] | None = None
    """Takes what `context.count` counts."""
    permits: Any = None
    """Gives the permits of the call; None: nothing limits it."""


NO_TOOLS = CallTools()


@dataclass(frozen=True)
class MiniBatchContext:
    """The second argument of `run`, if `run` asks for it; it cannot be changed.

    It is for a second positional parameter that has no default, or is called ``context`` or
    ``mini_batch_context``, or has this class as its annotation.

    Attributes
    ----------
    minibatch_index : int
        The number of the mini-batch, the same in every run over the same input.
    partition_key_value : dict
        Names and values of the partition keys, in the order of `partition_keys`.
    global_row_index_lower_bound : int or None
        Number of rows or files of the input before it; None if the plan does not have it.
    dataset : Slice
        Its place in the input.
    piece : tuple of int or None
        Where `run` gets only a piece of the mini-batch: number of its first row or file in the
        mini-batch, from 0, and of the one after its last. None: `run` gets all of it.

    """

    minibatch_index: int
    partition_key_value: Mapping[str, Any] = field(default_factory=dict)
    global_row_index_lower_bound: int | None = None
    dataset: Slice = Slice("", "")
    piece: tuple[int, int] | None = None
    _tools: CallTools = field(default=NO_TOOLS, repr=False, compare=False)

    def count(self, name: str, amount: float = 1) -> None:
        """Count what the mini-batch uses, such as tokens or calls of a service, under any name.

        The result of the job has the sums: all that was spent, and what of it was useful. It costs
        no message, so that each call of a service may count. It cannot be used under another
        interpreter.

        Parameters
        ----------
        name
            What is counted: ``"tokens_in"``, say. A process may count 32 names.
        amount
            How much more of it was used, 0 or more.

        Raises
        ------
        ValueError
            For another amount, a name of more than 64 bytes, or too many names.
        RuntimeError
            Under another interpreter (`python`).

        """
        if self._tools.count is None:
            msg = "context.count() has no effect under another interpreter, or outside a job."
            raise RuntimeError(msg)
        self._tools.count(name, amount)

    def fail(self, positions: Iterable[int], reason: str) -> None:
        """Name rows or files that have failed, for ``failed_rows.parquet``.

        The mini-batch succeeds without them. Leave them out of what `run` returns. It needs no
        option, and cannot be used under another interpreter.

        Parameters
        ----------
        positions
            Their numbers in what `run` got, from 0.
        reason
            The cause, for people.

        Raises
        ------
        RuntimeError
            Under another interpreter (`python`).

        """
        if self._tools.failed is None:
            msg = "context.fail() has no effect under another interpreter: raise an error instead."
            raise RuntimeError(msg)
        self._tools.failed.extend((int(one), str(reason)) for one in positions)

    def permit(self, tokens: int = 0) -> Any:
        """Wait until the limits of the job (`rate_limit`) allow a request.

        In a coroutine, write ``await context.permit()``; in a plain function, the call itself
        waits. No timeout counts the wait. Without `rate_limit` it returns at once. The request
        counts as under way until the same task or thread asks for its next permit or ends, or until
        the end of the block in ``async with context.permit():`` or ``with context.permit():``.

        Parameters
        ----------
        tokens
            The tokens that the request costs, as far as they are known.

        """
        permits = self._tools.permits
        return FreePermit() if permits is None else permits.permit(tokens)

    def used(self, tokens: int) -> None:
        """Correct the tokens of the last permit: what the answer says, in place of the guess.

        Parameters
        ----------
        tokens
            The tokens that the request has cost.

        """
        if self._tools.permits is not None:
            self._tools.permits.used(tokens)

    def throttled(self, after_s: float | str | None = None) -> None:
        """End this call: an endpoint wants fewer requests. The mini-batch runs again, uncharged.

        All calls of the job pause. Most clients raise an error for the statuses 429 and 503, which
        daskprs recognizes without this.

        Parameters
        ----------
        after_s
            Seconds after which the endpoint wants the next request, also as text of a header. None:
            1 second at first, and up to a minute if that does not help.

        Raises
        ------
        Throttled
            Always; let it leave `run`.
        ValueError
            If `after_s` is not a finite number of seconds. A date is none.

        """
        raise Throttled(after_s)


def begin_script(
    name: str, arguments: Sequence[str], level: str, source_directory: str | None
) -> None:
    """Give this process the arguments, the log and the path of a script."""
    sys.argv[:] = [name, *arguments]
    logging.basicConfig(stream=sys.stdout, level=level, format=LOG_FORMAT, force=True)
    if source_directory is not None:
        sys.path.insert(0, source_directory)


def import_script(module: str | None, file: str) -> Any:
    """Import a script by the name of its module, or else by its path, and return its module."""
    # A script without `if __name__ == "__main__"` starts its job in each import. That made jobs
    # within jobs, until no memory was left.
    os.environ[IMPORTING] = f"{os.getpid()} {module or file}"
    try:
        return importlib.import_module(module) if module else _module_of_file(file)
    finally:
        os.environ.pop(IMPORTING, None)  # the script may have emptied it


def _module_of_file(file: str) -> Any:
    """Import a file as a module; raise `ImportError` if it is not a file of Python."""
    name = Path(file).stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file."
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def do_nothing() -> None:
    """Take the place of a function that the script does not have."""
