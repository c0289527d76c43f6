"""The driver's loop: it passes events to the ledger, and executes the ledger's actions."""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import TYPE_CHECKING, assert_never

from daskprs._agent.supervision.pool import close_pools
from daskprs._core.actions import (
    Abort,
    Commit,
    EndSet,
    FailAttempt,
    Finish,
    HideGpus,
    Interrupt,
    KeepCommit,
    KeepRowColumns,
    KeepSize,
    LeaseFailed,
    LeaseWithdrawn,
    Remark,
    Submit,
    Ticked,
    Withdraw,
)
from daskprs._core.columnar import ColumnBatch
from daskprs._core.ending import Ending, JobStatus
from daskprs._core.events import (
    NOWHERE,
    AgentChanged,
    AttemptFailed,
    MiniBatchesDone,
    Place,
    ProgressReported,
)
from daskprs._core.lease import AgentExited, AgentStarted
from daskprs._core.outcomes import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.actions import Action, LedgerEvent, SlotId
    from daskprs._core.events import SlotState
    from daskprs._core.lease import AgentEvent, LeaseReturned
    from daskprs._core.ledger import Ledger
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure
    from daskprs._driver.ports import Slots
    from daskprs._output.store import ResultStore
    from daskprs._report.listeners import Listeners

TICK_S = 0.25
"""Maximum seconds between turns of the loop when no lease ends."""
NOTE_USAGE_S = 1.0
"""Seconds between two notes of what the job has used."""
NO_END = EndSet(None)


class Dispatcher:
    """Sends the ledger's leases to slots, and their results to the files of the job.

    Everything happens in the thread that calls `run`. `check` raises a `KeyboardInterrupt` if
    another thread wants the job to end, and `end` returns the end of the job, as far as it is known
    by now.
    """

    def __init__(
        self,
        slots: Slots,
        ledger: Ledger,
        files: ResultStore,
        listeners: Listeners,
        job: JobSpec,
        check: Callable[[], None] = lambda: None,
        end: Callable[[], EndSet] = lambda: NO_END,
    ) -> None:
        self._slots = slots
        self._ledger = ledger
        self._files = files
        self._listeners = listeners
        self._job_id = job.job_id
        self._shutdown_timeout_s = job.limits.shutdown_timeout_s
        self._check = check
        self._end, self._known_end = end, NO_END
        self._ending: Ending | None = None
        self._lease_failures: set[tuple[str, str]] = set()
        self._failed_at: dict[int, dict[int, Place]] = {}
        """Where attempts have failed, by mini-batch and attempt; without settled mini-batches."""
        self._has_frozen = False
        self.is_open = False
        """Whether the slots are open, so that the loop hears of an end."""
        self._noted_usage: dict[str, float] = {}
        self._usage_due_s = 0.0
        self._started_s = self._settled_s = time.monotonic()

    def run(self) -> Ending:
        """Work until everything is settled or the ledger gives up."""
        try:
            self._slots.open(self._tell_ledger)
            self.is_open = True
            return self._work()
        except BaseException:  # Ctrl-C, too: agents end at once, without asking Dask
            close_pools(self._job_id)
            raise
        finally:
            if self._has_frozen:
                gc.unfreeze()
            self._slots.close()

    def _work(self) -> Ending:
        # Existing objects of the caller's process are not our garbage: each full collection
        # would walk through them all, and a job of many mini-batches triggers many collections. A
        # caller who has done the same keeps what is frozen: no call thaws a part of it.
        self._has_frozen = gc.get_freeze_count() == 0
        if self._has_frozen:
            gc.freeze()
        while self._ending is None:
            self._turn()
        if self._ending.status is JobStatus.COMPLETED:
            self._stop_agents()
        self._slots.show(self._standing(), is_last=True)
        return self._ending

    # ---- one turn of the loop ----

    def _turn(self) -> None:
        self._check()
        # A flood of returned leases must not starve the ticks, on which all timeouts depend.
        now_s = time.monotonic()
        until_s = now_s + 2 * TICK_S
        for slot, ended in self._slots.ended(self._ledger.wait_s(now_s, TICK_S), self._is_over):
            self._lease_ended(slot, ended)
            if self._ending is not None or time.monotonic() > until_s:
                break
        self._slots.turn(self._ledger.work_s)
        states = self._slots.states()
        for state in states:
            for process, counted in state.counted:
                self._ledger.spending.take(state.place.node, process, counted)
        if (end := self._end()) != self._known_end:
            self._known_end = end
            self._tell_ledger(end)
        self._tell_ledger(Ticked(_waits(states)))
        self._note_usage(time.monotonic())
        self._files.sync_if_due(time.monotonic())
        self._tell_standing()

    def _is_over(self) -> bool:
        """Say whether the end of the job has come, such as some seconds after SIGTERM."""
        at_s = self._end().at_s
        return at_s is not None and time.monotonic() >= at_s

    def _note_usage(self, now_s: float) -> None:
        """Note for a resume what the job has used, about once a second."""
        spending = self._ledger.spending
        if now_s >= self._usage_due_s and (spent := spending.of_run) != self._noted_usage:
            self._files.note_usage(spent)
            self._noted_usage, self._usage_due_s = spent, now_s + NOTE_USAGE_S

    def _take_counts(self, node: int, events: Iterable[AgentEvent]) -> None:
        """Take what was counted in processes that have ended."""
        for event in events:
            if isinstance(event, AgentExited):
                self._ledger.spending.take(node, event.process, event.counted)

    def _tell_standing(self) -> None:
        standing = self._standing()
        self._listeners.tell(standing)
        self._slots.show(standing)

    def _standing(self) -> ProgressReported:
        now, standing = time.monotonic(), self._ledger.standing()
        return ProgressReported(
            standing,
            self._slots.states(),
            now - self._started_s,
            now - self._settled_s,
            self._slots.obstacles(standing),
        )

    def _lease_ended(
        self, slot: SlotId, ended: LeaseReturned | LeaseFailed | LeaseWithdrawn
    ) -> None:
        """Process the end of a lease."""
        place = NOWHERE
        if isinstance(ended, LeaseFailed):
            self._tell_once(slot.worker, ended.failure)
        elif not isinstance(ended, LeaseWithdrawn):
            if self._end().by_signal:
                ended = ended.terminated()
            place = Place(slot.node, ended.process, ended.host, ended.pid)
            self._note_failures(ended, place)
            for process, counted in ended.counted:
                self._ledger.spending.take(slot.node, process, counted)
            self._take_counts(slot.node, (*ended.agent_events, *ended.stage_events))
            for event in ended.agent_events:
                self._listeners.tell(AgentChanged(place._replace(process=event.process), event))
            for event in ended.stage_events:
                pid = event.pid if isinstance(event, AgentStarted) else 0
                beside = place._replace(process=event.process, pid=pid)
                self._listeners.tell(AgentChanged(beside, event))
        self._tell_ledger(ended, place)

    def _note_failures(self, returned: LeaseReturned, place: Place) -> None:
        """Note where attempts have failed: the ledger may tell of them as others return."""
        groups = [made.outcomes for made in returned.results]
        if returned.death is not None:
            groups.append(ColumnBatch(returned.death.suspects))
        for outcomes in groups:
            if outcomes.column("status").count(Status.RUN_DONE) == len(outcomes):
                continue  # nearly always
            for index, attempt, status in outcomes.columns("index", "attempt", "status"):
                if status is not Status.RUN_DONE:
                    self._failed_at.setdefault(index, {})[attempt] = place

    def _tell_once(self, worker: str, failure: Failure) -> None:
        """Warn of a failed lease; further failures of this kind on the worker are only logged."""
        told = f"a lease could not be worked on: {failure}"
        first = (worker, failure.kind) not in self._lease_failures
        self._lease_failures.add((worker, failure.kind))
        self._listeners.say("warning" if first else "debug", told)

    # ---- actions ----

    def _tell_ledger(self, event: LedgerEvent, place: Place = NOWHERE) -> None:
        left = deque(self._ledger.handle(event, time.monotonic()))
        try:
            while left and self._ending is None:
                self._act(left[0], place)
                left.popleft()
        except BaseException:  # a full disk, or Ctrl-C
            # The result must not count work that the journal does not contain.
            self._ledger.take_back(left)
            raise

    def _act(self, action: Action, place: Place) -> None:  # noqa: C901, PLR0912 - one case for each
        match action:
            case Submit(lease, slot):
                self._slots.submit(lease, slot)
            case Withdraw(lease_id, rest):
                self._slots.withdraw(lease_id, rest=rest)
            case Commit(mini_batches):
                made = action.made
                self._files.commit(mini_batches, made)
                self._settle(mini_batches)
                # After the commit: whatever a listener shows or raises, the rows are in the
                # journal.
                self._listeners.tell(MiniBatchesDone(place, mini_batches, made.outcomes))
            case FailAttempt(mini_batch, outcome, final, charged, lost_node, again):
                if lost_node is not None:
                    place = NOWHERE._replace(node=lost_node)
                else:
                    there = self._failed_at.get(mini_batch.index, {})
                    place = there.get(outcome.attempt, place)
                if outcome.stage_process:
                    if outcome.stage_node is not None:
                        place = NOWHERE._replace(node=outcome.stage_node)
                    place = place._replace(process=outcome.stage_process, pid=0)
                if not outcome.started:  # lost with its node: the ledger has no clock
                    outcome = outcome._replace(started=time.time())
                self._files.attempt_failed(mini_batch, outcome, place, final=final, charged=charged)
                if final:
                    self._settle([mini_batch])
                failed = AttemptFailed(place, mini_batch, outcome, final, charged, again)
                self._listeners.tell(failed)
            case KeepCommit(mini_batch):
                self._settle([mini_batch])
            case HideGpus():
                self._slots.hide_gpus()
                self._files.note_hidden_gpus()
            case KeepRowColumns(columns):
                self._files.note_columns(columns)
            case KeepSize(at_most):
                self._files.note_size(at_most)
            case Remark(level, message):
                self._listeners.say(level, message)
            case Abort(reason, failure):
                self._ending = Ending(JobStatus.FAILED, reason, failure, self._ledger.errors)
            case Interrupt(reason, again):
                headline, errors = self._ledger.headline, self._ledger.errors
                self._ending = Ending(JobStatus.INTERRUPTED, reason, headline, errors, again)
            case Finish():
                self._ending = Ending(JobStatus.COMPLETED)
            case _:
                assert_never(action)

    def _settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        self._settled_s = time.monotonic()
        for mini_batch in mini_batches if self._failed_at else ():
            self._failed_at.pop(mini_batch.index, None)
        self._slots.settle(mini_batches)

    def _stop_agents(self) -> None:
        """Shut down the agents, and report their events."""
        for told in self._slots.stopped(self._shutdown_timeout_s):
            if told is None:
                self._tell_standing()
            else:
                self._take_counts(told.place.node, [told.event])
                self._listeners.tell(told)


def _waits(states: Iterable[SlotState]) -> bool:
    """Say whether calls wait for permits, and no mini-batch is under way beside them."""
    phases = {state.phase for state in states}
    return "waiting" in phases and not phases & {"running", "loading", "returning"}
