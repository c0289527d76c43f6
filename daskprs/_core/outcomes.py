"""Outcomes of attempts, in the terms that agents, workers and the driver share."""

from __future__ import annotations

import signal
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.columnar import ColumnBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.pieces import FailedRows, PiecesEnd
    from daskprs._core.spending import Amounts
    from daskprs.errors import InputChanged


class Status(StrEnum):
    """The end of one attempt at a mini-batch."""

    RUN_DONE = "RUN_DONE"
    LOAD_TIMEOUT = "LOAD_TIMEOUT"
    LOAD_EXCEPTION = "LOAD_EXCEPTION"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    RUN_EXCEPTION = "RUN_EXCEPTION"
    RUN_NULL_RETURN = "RUN_NULL_RETURN"
    INPUT_CHANGED = "INPUT_CHANGED"
    PROCESS_DIED = "PROCESS_DIED"
    NODE_LOST = "NODE_LOST"
    CANCELED = "CANCELED"
    THROTTLED = "THROTTLED"


TIMEOUTS = (Status.RUN_TIMEOUT, Status.LOAD_TIMEOUT)


class Failure(NamedTuple):
    """An error as data: it crosses processes as text, never as a pickle of itself."""

    kind: str
    """The class of the exception (``ValueError``), or a status if there was no exception."""
    message: str
    traceback: str = ""
    """The whole traceback as Python prints it, with the user's own paths."""
    retryable: bool = True
    """False where no further attempt can succeed. For `init`, False where the same failure in
    another process proves this."""
    where: str = ""
    """The mini-batch and the attempt that had the error, for people; empty where it is unknown."""
    fatal: bool = False
    """Whether the process can do nothing more after it, such as a device-side assert of CUDA."""

    def __str__(self) -> str:
        """Return the failure as the last line of a traceback shows it."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


def input_changed(error: InputChanged) -> Failure:
    """Return a changed input as a failure that no retry can mend and no budget allows."""
    return Failure(Status.INPUT_CHANGED.value, str(error), retryable=False)


class Extent(NamedTuple):
    """Bytes that one attempt made."""

    length: int
    checksum: int
    """CRC-32 of the bytes."""
    offset: int | None = None
    """Position of the bytes in their agent's spool; None when they travel with the outcome."""


class Printed(NamedTuple):
    """The output of an attempt in the logs of its process: first byte, and byte behind it."""

    stdout: tuple[int, int]
    stderr: tuple[int, int]


UNKNOWN = -1
"""Stands for a place in a log that cannot be known: the script has put another file there."""
PRINTED_SOMEWHERE = Printed((UNKNOWN, UNKNOWN), (UNKNOWN, UNKNOWN))


def failed_items(status: Status, total: int, succeeded: int) -> int:
    """Return the number of failed items: all of them if the attempt failed."""
    return total if status is not Status.RUN_DONE else max(0, total - succeeded)


class Outcome(NamedTuple):
    """The end of one attempt, and its output."""

    index: int  # type: ignore[assignment]  # it hides tuple.index
    attempt: int
    status: Status
    total: int
    """Items in the mini-batch (rows or files)."""
    succeeded: int = 0
    """``len(result)``; may exceed `total`."""
    started: float = 0.0
    """Wall clock, seconds since the epoch; 0: unknown."""
    elapsed_s: float = 0.0
    """From the start of loading (waiting only) to the end of formatting."""
    run_s: float = 0.0
    """Seconds in `run`, iterating what it returned included, and formatting it not."""
    cpu_s: float = 0.0
    """CPU seconds of the agent process during `run_s`."""
    text: Extent | None = None
    """The rows as append_row writes them."""
    typed: Extent | None = None
    """The rows with their types."""
    header: str | None = None
    """The header line of the returned frames, for text: the driver compares it with the others."""
    failure: Failure | None = None
    empty: bool = False
    """True for a mini-batch without rows: `run` was not called. The driver leaves it True for a
    range in which no row starts, which no count includes, and not for an empty partition."""
    printed: Printed | None = None
    """The printed output; None if there is none."""
    peak_bytes: int = 0
    """The highest resident memory of the agent with its sub-processes meanwhile; 0: unknown."""
    pieces: PiecesEnd | None = None
    """Where an attempt at pieces has ended; None: it ran all items at once, or did not run."""
    failed_rows: FailedRows | None = None
    """The items that a success leaves out; None: there are none."""
    stage_process: str = ""
    """The process of a stage beside `run` in which it failed; empty: it failed in no such one."""
    stage_node: int | None = None
    """The node of that process; None: that of the slot."""
    columns: tuple[str, ...] | None = None
    """The columns of what `run` returned, at the first success of a process where rows of nulls
    need them."""
    failed_before: int | None = None
    """Number of calls that had failed in its process when it began, where that makes several at a
    time."""
    usage: Amounts | None = None
    """What it has used by the script's own count; None: the script has counted nothing."""

    wait_s: float | None = None
    """Seconds after which an endpoint that has refused it wants the next request, if it says so."""
    load_s: float = 0.0
    """Those of `elapsed_s` in which the process waited for the input."""

    @property
    def failed(self) -> int:
        """Items that did not succeed."""
        return failed_items(self.status, self.total, self.succeeded)

    @property
    def is_neutral(self) -> bool:
        """Whether it says nothing about its process.

        `run` was not called, the input could not be loaded, a stage failed in a process of its own,
        an endpoint wanted fewer requests, or no retry mends the failure.
        """
        lasting = self.failure is not None and not self.failure.retryable
        no_run = Status.LOAD_EXCEPTION, Status.THROTTLED
        is_elsewhere = bool(self.stage_process) or self.status in no_run
        return self.empty or lasting or is_elsewhere

    @property
    def is_stage_death(self) -> bool:
        """Whether the process of a stage beside `run` has died."""
        return bool(self.stage_process) and self.status is Status.PROCESS_DIED

    @property
    def is_fatal(self) -> bool:
        """Whether it is an error after which its process can do nothing more."""
        return self.failure is not None and self.failure.fatal

    @property
    def carried_bytes(self) -> int:
        """Number of bytes that travel with the outcome: its extents outside the spool."""
        return sum(
            extent.length
            for extent in (self.text, self.typed)
            if extent is not None and extent.offset is None
        )


NAMED = {
    signal.SIGKILL: "it was killed from outside, mostly by the system for lack of memory",
    signal.SIGSEGV: "native code crashed",
    signal.SIGBUS: "native code crashed",
    signal.SIGILL: "native code crashed",
    signal.SIGFPE: "native code crashed",
    signal.SIGABRT: "native code gave up (abort)",
    signal.SIGTERM: "it was told to end, by the script or from outside",
    signal.SIGINT: "it was told to end, by the script or from outside",
    signal.SIGHUP: "it was told to end, by the script or from outside",
}


def signal_of(returncode: int) -> str:
    """Return the signal that ended a process, in brackets; empty where no signal did."""
    if returncode >= 0:
        return ""
    try:
        return f" ({signal.Signals(-returncode).name})"
    except ValueError:  # a real-time signal has no name
        return f" (signal {-returncode})"


def meaning_of(returncode: int) -> str:
    """Return the usual cause of this return code in a process that should have gone on."""
    if returncode >= 0:
        return "the script, or a library that it uses, ended the process (os._exit)"
    return NAMED.get(-returncode, "a signal ended it")  # type: ignore[call-overload,no-any-return]


class Results(NamedTuple):
    """Outcomes that an agent sent together, with their bytes or the location of those."""

    outcomes: ColumnBatch[Outcome]
    payload: bytes = b""
    """Bytes of the extents outside the spool: for each outcome its text, then its typed rows."""
    spool: str = ""
    """Name of the spool with the agent's bytes; empty where they travel in the payload."""
    unwritten: str = ""
    """Why the agent could not write to the spool; the bytes are lost then."""

    def only(self, positions: Sequence[int]) -> Results:
        """Return only the outcomes at these ascending positions, with their bytes."""
        if len(positions) == len(self.outcomes):
            return self
        ends = list(accumulate(outcome.carried_bytes for outcome in self.outcomes))
        starts = [0, *ends]
        pieces = [self.payload[starts[at] : ends[at]] for at in positions]
        outcomes = ColumnBatch(self.outcomes[at] for at in positions)
        return self._replace(outcomes=outcomes, payload=b"".join(pieces))
