"""The new entries of a plan: made lazily, without those that an earlier run settled."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING

from daskprs._core.ending import INPUT_HAS_CHANGED
from daskprs._core.entry import Entry
from daskprs._core.outcomes import Failure, input_changed
from daskprs._core.pieces import CarriedOverFailure
from daskprs.errors import DaskprsError, InputChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._core.ledger_state import LedgerState
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Pieces, Recovered
    from daskprs._core.settling import Settling
    from daskprs._core.stall_timer import StallTimer


def plan_entries(
    plan: Iterator[MiniBatch | None],
    recovered: Callable[[MiniBatch], Recovered | CarriedOverFailure | None],
    state: LedgerState,
    settling: Settling,
    timer: StallTimer,
    pieces: Pieces | None,
) -> Iterator[Entry | None]:
    """Yield an entry for each mini-batch that has to be run; None where the plan has none yet.

    Each entry runs `pieces` of its mini-batch; all of it without them. Recovered mini-batches are
    counted at once. A plan reads the user's input while it is made; an
    error there fails the job.
    """
    while True:
        try:
            mini_batch = next(plan)
        except StopIteration:
            state.tally.plan_complete = True
            return
        except Exception as error:  # noqa: BLE001 - whatever readers and file systems raise
            state.abort(*_reason(error))
            return
        if mini_batch is None:
            yield None
            continue
        if not state.backlog.is_ahead:
            timer.move_plan()
        done = recovered(mini_batch)
        if done is None:
            state.tally.plan()
            yield Entry(mini_batch, pieces=pieces)
            continue
        if isinstance(done, CarriedOverFailure):
            settling.carry_failure(done.items)
        elif (entry := settling.resumed(mini_batch, done)) is not None:
            state.tally.plan()
            yield entry
        else:
            settling.recover(done.total, done.succeeded, empty=done.empty, alone=done.alone)
        if state.over:
            return


def _reason(error: Exception) -> tuple[str, Failure | None]:
    """Return why a job ends whose plan raised an error, and the failure to show."""
    if isinstance(error, InputChanged):
        return INPUT_HAS_CHANGED, input_changed(error)
    if isinstance(error, DaskprsError):
        return str(error), None  # it names file, line and value, and is meant for people
    text = "".join(traceback.format_exception(error))
    failure = Failure(type(error).__name__, str(error), text)
    return "the next mini-batch could not be made", failure


def with_first_item_deadline(
    plan: Iterator[MiniBatch | None], timeout_s: float, why: Callable[[], str] = str
) -> Iterator[MiniBatch | None]:
    """Pass a plan on, unless its first mini-batch takes too long to make.

    `why` returns the reason, if it is known, and else an empty text.
    """
    begun = time.monotonic()
    for first in plan:
        took_s = time.monotonic() - begun
        if took_s > timeout_s:
            msg = (
                f"the first mini-batch {'is not there after' if first is None else 'took'} "
                f"{took_s:.0f} s, more than first_task_creation_timeout={timeout_s:g} s"
            )
            reason = why() if first is None else ""
            raise DaskprsError(f"{msg}: {reason}." if reason else f"{msg}.")
        yield first
        if first is not None:
            yield from plan
