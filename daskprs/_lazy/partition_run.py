"""One partition of a collection, run in an agent within a task of Dask.

The ledger of a job decides, too, what runs here: its plan is the mini-batches of the partition, and
its only slot is the seat of the task.
"""

from __future__ import annotations

import io
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from daskprs._cluster.task_host import ended_with_task
from daskprs._core.actions import (
    Abort,
    Commit,
    FailAttempt,
    Finish,
    HideGpus,
    Interrupt,
    LeaseFailed,
    Remark,
    SlotAdded,
    Submit,
    Ticked,
)
from daskprs._core.ledger import Ledger
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure
from daskprs._folders.rows_seal import rows_seal
from daskprs._inputs.collections.staging import staged
from daskprs._inputs.source.pieces import PartitionSlice
from daskprs._lazy.task_agents import seat_of
from daskprs._output.rows.typed_rows import decode
from daskprs.errors import AgentError, Option, PartitionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._core.actions import Action, LedgerEvent
    from daskprs._core.lease import Lease
    from daskprs._core.outcomes import Results
    from daskprs._inputs.collections.staging import StagedPartition
    from daskprs._lazy.lazy_call import LazyCall
    from daskprs._lazy.task_agents import Seat

TICK_S = 0.25
"""Maximum seconds between looks at the ledger while its slot has nothing to do."""


def run_numbered(value: Any, call: LazyCall, partition_info: dict[str, Any]) -> Any:
    """Run a partition of a dask DataFrame, which Dask numbers (a Dask task)."""
    return run_partition(value, call, partition_info["number"])


def run_partition(value: Any, call: LazyCall, number: int) -> Any:
    """Return what `run` makes of a partition (a Dask task).

    Raise `PartitionFailed` when a mini-batch failed in all its tries, unless such rows are dropped,
    and when no agent could be started; `LoadError` when the partition is not as announced; and
    `ReturnTypeError` when `run` returned other columns or types than were announced.
    """
    with seat_of(call) as seat, ended_with_task(seat.cancel):
        seat.prepare()
        folder, seal = seat.folder.scratch, rows_seal(seat.folder)
        partition = staged(value, number, call.form, folder)
        try:
            plan = _mini_batches(partition, number, call, folder)
            rows = PartitionRun(call, seat, number, plan).rows()
        finally:
            partition.remove()
    pieces = (
        (index, piece)
        for index, kept in sorted(rows.items())
        for piece in decode(io.BytesIO(kept), len(kept), seal)
    )
    return call.result.partition(pieces, number)


def _mini_batches(
    partition: StagedPartition, number: int, call: LazyCall, folder: Path
) -> Iterator[MiniBatch]:
    """Yield the mini-batches of a staged partition."""
    cut = partition.cut
    slices = list(cut.slices())
    for index, (start, stop) in enumerate(slices):
        rows = f", {call.unit}s {start}-{stop}" if len(slices) > 1 else ""
        yield MiniBatch(
            index=index,
            piece=partition.placed(PartitionSlice(number, start, stop, cut.digest), folder),
            identity=f"{cut.digest}:{start}-{stop}",
            items=stop - start,
            size_bytes=cut.size_bytes * (stop - start) // max(1, cut.rows),
            label=f"partition {number}{rows}",
        )


class PartitionRun:
    """Runs a plan in the agent of one seat, and keeps the rows of the attempts that count."""

    def __init__(self, call: LazyCall, seat: Seat, number: int, plan: Iterator[MiniBatch]) -> None:
        self._call = call
        self._seat = seat
        self._number = number
        limits = seat.limits_of(call.limits)
        process = seat.process
        self._ledger = Ledger(
            plan,
            limits,
            first_process=lambda _: process,
            has_run=seat.has_run,
            seed=f"{call.token}:{number}",  # else all partitions would retry at the same time
        )
        self._log = logging.getLogger(seat.logger)
        self._rows: dict[int, bytes] = {}
        self._failed: FailAttempt | None = None
        """The first mini-batch that was given up."""

    def rows(self) -> dict[int, bytes]:
        """Return the typed rows of each mini-batch, by its number."""
        try:
            return self._rows_of_all()
        finally:
            self._seat.leave(
                is_sound=self._ledger.is_sound, has_found_gpu_use=self._ledger.has_found_gpu_use
            )

    def _rows_of_all(self) -> dict[int, bytes]:
        event: LedgerEvent = SlotAdded(self._seat.slot, self._seat.resources)
        while True:
            actions = deque(self._ledger.handle(event, time.monotonic()))
            lease: Lease | None = None
            while actions:
                match actions.popleft():
                    case Submit(lease, _):
                        pass
                    case Finish():
                        return self._rows
                    case Abort(reason, failure):
                        raise self._error(reason, failure)
                    case Interrupt(reason):
                        raise self._error(reason, None)
                    case action:
                        self._act(action)
            event = self._rested() if lease is None else self._worked(lease)

    def _worked(self, lease: Lease) -> LedgerEvent:
        """Work on a lease."""
        try:
            return self._seat.run(lease)
        except AgentError as error:
            return LeaseFailed(lease.id, Failure("AgentError", str(error)))

    def _rested(self) -> LedgerEvent:
        """Wait a moment: the slot rests after an error of daskprs, or a retry is delayed."""
        self._seat.check()
        time.sleep(self._ledger.wait_s(time.monotonic(), TICK_S))
        return Ticked()

    def _act(self, action: Action) -> None:
        match action:
            case Commit():
                self._keep(action.made)
            case FailAttempt(mini_batch, outcome, final):
                what = "its rows are left out" if final else "it is tried again"
                if final and self._call.on_error == "raise":
                    self._failed = self._failed or action
                else:
                    log = self._log.warning if final else self._log.info
                    told = f"{self._call.script.name}, {mini_batch.label}"
                    attempt, why = outcome.attempt, _told(outcome.failure)
                    log("%s, attempt %d failed: %s. %s", told, attempt, what, why)
            case HideGpus():
                self._seat.hide_gpus()
            case Remark(level, message):
                known = logging.getLevelNamesMapping()
                self._log.log(known.get(level.upper(), logging.WARNING), "%s", message)

    def _keep(self, made: Results) -> None:
        """Keep the rows of mini-batches that have succeeded; they came with their outcomes."""
        at = 0
        for index, length in made.outcomes.columns("index", "typed.length"):
            end = at + (length or 0)
            self._rows[index] = made.payload[at:end]
            at = end

    def _error(self, reason: str, failure: Failure | None) -> PartitionFailed:
        """Return the error of the partition: what failed, its error, and what to do."""
        name, number = self._call.script.name, self._number
        if self._failed is None:
            return PartitionFailed(f"{name}, partition {number}: {reason}. {_told(failure)}")
        mini_batch, outcome = self._failed.mini_batch, self._failed.outcome
        found = outcome.failure
        where = mini_batch.described if found is None else found.where  # with the tries, if spent
        return PartitionFailed(
            f"{name} has failed in {where}. Leave such rows out by ",
            Option("on_error", "drop"),
            f", or correct the script. {_told(found)}",
        )


def _told(failure: Failure | None) -> str:
    """Return the error of an attempt, and the lines of the script that led to it."""
    return "" if failure is None else f"{failure}\n{failure.traceback}".rstrip()
