"""Settling: each mini-batch is committed or given up once; until then, its failures are charged."""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING

from daskprs._core.actions import Commit, FailAttempt, KeepCommit
from daskprs._core.columnar import ColumnBatch
from daskprs._core.ending import INPUT_HAS_CHANGED
from daskprs._core.entry import Entry
from daskprs._core.memory_sizes import MemorySizes
from daskprs._core.outcomes import TIMEOUTS, Failure, Outcome, Status
from daskprs._core.placement import ELSEWHERE_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from daskprs._core.actions import SlotId
    from daskprs._core.isolation import Isolation
    from daskprs._core.lease import Death, LeaseReturned
    from daskprs._core.ledger_state import AgentRecord, InFlightLease, LedgerState
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Results
    from daskprs._core.pieces import FailedRows, Recovered
    from daskprs._core.placement import Placement
    from daskprs._core.quarantine import Location
    from daskprs._core.renewals import Renewals
    from daskprs._core.stall_timer import StallTimer

REFUSALS_PER_SLOT = 5
"""Fail the job after more than REFUSALS_PER_SLOT × slots refused leases of the same mini-batch."""
MOST_THROTTLED = 10
"""Attempts at a mini-batch that an endpoint may refuse, uncharged, while others succeed."""
NOT_BEGUN = Failure("AgentError", "an agent did not begin what it was given")
SETTLING = (
    "index",
    "attempt",
    "status",
    "elapsed_s",
    "run_s",
    "failed_rows",
    "total",
    "succeeded",
    "empty",
    "failed_before",
)
"""The fields of an outcome that settle its mini-batch if nothing went wrong."""


class Settling:
    """Takes mini-batches out of leases: it settles them, or returns them to the backlog."""

    def __init__(
        self,
        state: LedgerState,
        placement: Placement,
        timer: StallTimer,
        renewals: Renewals,
        isolation: Isolation,
    ) -> None:
        self._state = state
        self._isolation = isolation
        self._memory = MemorySizes(state, isolation)
        self._host = self._process = ""
        """Where the work was done that is settled."""
        self._next: list[Entry] = []
        """What goes on in pieces: it comes before all other work, since its process is warm."""
        self._placement = placement
        self._quarantine = placement.quarantine
        self._timer = timer
        self._renewals = renewals

    # ---- what an earlier run has settled ----

    def recover(self, total: int, succeeded: int, *, empty: bool, alone: int) -> None:
        """Settle a mini-batch that an earlier run has committed."""
        state = self._state
        failed = state.tally.recover(total, succeeded, empty=empty, alone=alone)
        state.abort_if(state.budgets.fail_items(failed))

    def resumed(self, mini_batch: MiniBatch, done: Recovered) -> Entry | None:
        """Return the entry that runs just the failed items of a committed mini-batch, if any."""
        if not done.gaps:
            return None
        return self._isolation.resumed(Entry(mini_batch), done)

    def carry_failure(self, items: int) -> None:
        """Settle a mini-batch that an earlier run gave up and this run does not retry."""
        state = self._state
        state.tally.carry_failure(items)
        state.abort_if(state.budgets.fail_mini_batch(items))

    # ---- results of a lease ----

    def settle(self, returned: LeaseReturned, flight: InFlightLease) -> None:
        """Commit the successful attempts, and charge the failed ones."""
        state = self._state
        self._host, self._process = returned.host, returned.process
        count, seconds = 0, 0.0
        entries = flight.entries
        for results in returned.results:
            if self._isolation.is_on:  # it unpacks columns
                # A resume that finds these commits knows the columns, too: they are noted before.
                self._isolation.learn_columns(results.outcomes.column("columns"))
            # Most groups are settled as one, which saves a seventh of the driver's calls for a
            # mini-batch.
            if self._commit_all(results, flight):
                count += len(results.outcomes)
                seconds += sum(results.outcomes.column("elapsed_s"))
                if self._isolation.is_on:
                    self._isolation.learn(results.outcomes.column("run_s"))
                continue
            commit = Commit([], [], _as_planned(results, entries))
            outcomes = results.outcomes.columns(*SETTLING)
            for position, (index, attempt, status, elapsed_s, *items, failed_before) in enumerate(
                outcomes
            ):
                entry = flight.take(index, attempt)
                if entry is None:
                    continue
                if status is not Status.RUN_DONE or _is_trial(entry):
                    self._settle_other(entry, results.outcomes[position], flight)
                else:
                    count, seconds = count + 1, seconds + elapsed_s
                    self._commit(entry, commit, position, *items)
                    empty = items[-1] or (entry.pieces is not None and entry.pieces.is_empty)
                    self._succeed(entry, flight, empty=empty, failed_before=failed_before)
                if state.over:
                    return
        state.sizes.learn(count, seconds / state.limits.calls)
        if count:
            self._quarantine.work(self._placement.locations(flight))

    def _settle_other(self, entry: Entry, outcome: Outcome, flight: InFlightLease) -> None:
        """Settle an attempt without rows that count: a failure, or a trial."""
        if outcome.status is Status.RUN_DONE:
            self._timer.progress()
            self._succeed(entry, flight, empty=False, failed_before=outcome.failed_before)
            self._go_on(entry, self._isolation.passed(entry, outcome))
        elif outcome.status is Status.THROTTLED:
            self._throttle(entry, outcome, flight)
        elif outcome.status is Status.INPUT_CHANGED:
            outcome = self._give_up(entry, outcome)
            self._state.abort(INPUT_HAS_CHANGED, outcome.failure)
        else:
            self._fail(entry, outcome, flight)

    def _throttle(self, entry: Entry, outcome: Outcome, flight: InFlightLease) -> None:
        """Let a mini-batch run again that an endpoint has refused, at first without a charge.

        One that is refused again and again while others succeed may ask for too much.
        """
        state, failure, wait_s = self._state, outcome.failure, outcome.wait_s
        flight.agent.attempts += 1
        state.throttled += 1
        state.is_throttled = True
        if failure is not None and not failure.retryable:
            state.interrupt_soon(f"the quota of the endpoint is spent: {failure}")
        most_s = state.limits.progress_update_timeout_s
        if wait_s is not None and wait_s > most_s:
            state.interrupt_soon(
                f"the endpoint wants no request for {wait_s:g} s, more than "
                f"progress_update_timeout={most_s:g} s"
            )
        succeeded = state.tally.succeeded - state.tally.recovered
        again = entry.refused_by_endpoint(succeeded, state.throttled)
        # Not where an endpoint refuses most requests: some are refused ten times by chance.
        if again.singled_out >= MOST_THROTTLED:
            counted = again._replace(attempt=entry.attempt)
            self._charge(counted, outcome, flight.slot.id, alone=False)
            return
        self._record(entry, outcome)
        state.delay_throttled(again, wait_s)

    def _commit_all(self, results: Results, flight: InFlightLease) -> bool:
        """Commit a group as a whole if nothing went wrong in it, as in most groups."""
        state, outcomes, entries = self._state, results.outcomes, flight.entries
        indexes, totals = outcomes.column("index"), outcomes.column("total")
        succeeded = outcomes.column("succeeded")
        known = [entries.get(index) for index in indexes]
        if (
            outcomes.column("status").count(Status.RUN_DONE) != len(known)
            or [entry and entry.attempt for entry in known] != list(outcomes.column("attempt"))
            or len(set(indexes)) != len(known)
            or any(outcomes.column("empty"))
            or any(map(gt, totals, succeeded))
            or any([entry.failed_on or entry.pieces for entry in known if entry])  # noqa: C419 - no call for each
            or state.errors.has_pending(indexes)
            or not self._renewals.is_calm(flight.agent)
        ):
            return False
        done = [entries.pop(index).mini_batch for index in indexes]
        state.errors.any_attempt = True
        if done:
            self._timer.progress()
            state.actions.append(Commit(done, [*range(len(done))], results))
            state.tally.commit_all(len(done), sum(totals), sum(succeeded))
        return True

    def _commit(
        self,
        entry: Entry,
        to: Commit,
        position: int,
        run_s: float,
        failed_rows: FailedRows | None,
        total: int,
        succeeded: int,
        empty: bool,  # noqa: FBT001 - columns
    ) -> None:
        """Commit a successful attempt, at a position of the results of a commit."""
        state = self._state
        if not to.positions:
            self._timer.progress()
            state.actions.append(to)
        to.mini_batches.append(entry.mini_batch)
        to.positions.append(position)
        if failed_rows is None:
            state.errors.mend(entry.mini_batch.index)
        else:
            state.errors.isolate(entry.mini_batch.index)
        if entry.bisection is None:
            self._isolation.learn([run_s])
        self._memory.succeed(entry)
        alone = 0 if failed_rows is None else failed_rows.count
        if entry.bisection is not None:
            self._isolation.finish(entry, to.results.outcomes[position].pieces)
        uncounted = empty and not _is_empty_partition(entry)
        failed = state.tally.commit(total, succeeded, empty=uncounted, alone=alone)
        if failed:
            state.abort_if(state.budgets.fail_items(failed))

    def take_back(self, commits: Iterable[Commit]) -> None:
        """Undo the counts of commits that could not be written; the job ends then."""
        for commit in commits:
            names = "total", "succeeded", "empty", "failed_rows"
            for total, succeeded, empty, rows in commit.made.outcomes.columns(*names):
                alone = 0 if rows is None else rows.count
                self._state.tally.take_back(total, succeeded, empty=empty, alone=alone)

    # ---- failed attempts ----

    def _succeed(
        self,
        entry: Entry,
        flight: InFlightLease,
        *,
        empty: bool,
        failed_before: int | None = None,
    ) -> None:
        """Record a success, and charge the failures before it: the process did not cause them."""
        if entry.failed_on:
            self._replace(
                self._quarantine.worked(entry.mini_batch.index, self._placement.locations(flight))
            )
        flight.agent.attempts += 1
        if empty:  # `run` was not called
            return
        self._charge_held(flight.agent, flight.slot.id, failed_before)

    def _charge_held(
        self, agent: AgentRecord, slot: SlotId, failed_before: int | None = None
    ) -> None:
        """Charge what a process holds: it has succeeded since."""
        for held, outcome in self._renewals.succeed(agent, failed_before):
            if not self._state.over:
                self._charge(held, outcome, slot, alone=held.lease_at_most == 1)

    def release_idle(self) -> bool:
        """Put back what processes hold that have nothing else to run; return whether any did."""
        idle = [slot.agent for slot in self._state.slots.values() if slot.lease_id is None]
        holding = [agent for agent in idle if agent is not None and agent.held]
        for agent in () if self._state.over else holding:
            agent.is_worn = True
            self._renewals.release(agent)
        return bool(holding)

    def _replace(self, bad: Collection[Location]) -> None:
        """Replace the agents that use a bad device."""
        for agent in self._placement.replace_agents(bad):
            self._renewals.retire(agent)

    def _fail(
        self,
        entry: Entry,
        outcome: Outcome,
        flight: InFlightLease,
        *,
        alone: bool = False,
    ) -> None:
        """Charge a failed attempt, unless its process or its location may have caused it."""
        slot, agent = flight.slot.id, flight.agent
        is_first = agent.attempts == 0  # whatever pieces of this mini-batch have passed before
        if outcome.pieces is not None and outcome.pieces.passed_before:
            entry_there, before = entry._replace(failed_on=()), outcome.failed_before
            self._succeed(entry_there, flight, empty=False, failed_before=before)
        if (smaller := self._memory.smaller(entry, outcome, agent)) is not None:
            agent.attempts += 1
            if outcome.failed_before is not None:  # its process has counted it
                agent.soundness.fail(outcome.failed_before)
            self._timer.progress()
            self._record(entry, outcome)
            self._next.append(smaller)
            return
        is_charged = self._is_charged(entry, outcome, flight, alone=alone, is_first=is_first)
        agent.attempts += 1
        if outcome.pieces is not None and outcome.pieces.passed_after:
            is_charged = True  # the process is whole
            self._charge_held(agent, slot)
        if not is_charged:
            if entry.is_searched:
                agent.is_done = True
                self._next.append(entry.again().first())
            return
        if self._quarantine.holds(self._placement.locations(flight)) and self._placement.any_good():
            self._record(entry, outcome)
            self._state.backlog.again(entry.forgiven(slot))
            return
        self._charge(entry, outcome, slot, alone=alone)

    def _is_charged(
        self,
        entry: Entry,
        outcome: Outcome,
        flight: InFlightLease,
        *,
        alone: bool,
        is_first: bool,
    ) -> bool:
        """Return whether a failure is charged at once; else the process holds it.

        `is_first` says that no other attempt has ended in the process.
        """
        agent, index = flight.agent, entry.mini_batch.index
        is_new = agent.calls == 0
        if outcome.is_neutral and not outcome.is_fatal:
            if outcome.failure is None or outcome.failure.retryable:  # it could not be loaded here
                self._quarantine.fail(index, self._placement.locations(flight))
            return True
        is_searched = self._isolation.is_to_tell(entry, outcome)
        held = entry.alone() if alone else entry
        is_charged = self._renewals.fail(
            agent, held, outcome, is_first=is_first, is_searched=is_searched
        )
        has_ended = outcome.status is Status.PROCESS_DIED
        if outcome.failure is not None and outcome.is_fatal and not has_ended:
            self._renewals.replace(
                flight.slot,
                agent,
                f"mini-batch {index} ended with {outcome.failure.kind}, after which a process can "
                "use its device no more",
            )
        # The place is not to blame for an item that fails wherever it runs.
        if is_charged and is_new and entry.bisection is None:
            self._quarantine.fail(index, self._placement.locations(flight))
        return is_charged

    def _charge(self, entry: Entry, outcome: Outcome, slot: SlotId, *, alone: bool) -> None:
        """Charge a failed attempt; give the mini-batch up when its tries are spent."""
        limits = self._state.limits
        if self._state.over:  # what the process held was one failure too many
            return
        self._timer.progress()
        place = self._host, self._process
        if entry.bisection is not None:
            self._go_on(entry, self._isolation.failed(entry, outcome, *place))
            return
        again = entry.charged(slot, alone=alone, timed_out=outcome.status in TIMEOUTS)
        retryable = outcome.failure is None or outcome.failure.retryable
        if retryable and again.tries < limits.run_max_try:
            self._record(entry, outcome, charged=True)
            self._again_elsewhere(again, self._state.delay_s(again))
            return
        is_sure = not self._renewals.is_helpless
        if (bisected := self._isolation.begun(again, outcome, place, is_sure=is_sure)) is not None:
            self._record(entry, outcome, charged=True)
            self._go_on(entry, bisected)
            return
        self._spend(again, outcome)

    def _spend(self, entry: Entry, outcome: Outcome, *, again: bool = False) -> None:
        """Give up a mini-batch whose tries are spent; `again`: its attempt is recorded already."""
        outcome = self._give_up(entry, outcome, tries=entry.tries, again=again)
        index, tries = entry.mini_batch.index, entry.tries
        if self._state.limits.fail_on_timeout and tries and entry.timeouts == tries:
            which = f"all its {tries} attempts" if tries > 1 else "its attempt"
            why = f"mini-batch {index} ran out of time in {which} (fail_on_timeout)"
            self._state.abort(why, outcome.failure)
        self._replace(self._quarantine.given_up(index, entry.failed_on))

    def put_first(self) -> None:
        """Put back what goes on in pieces, before the rest of its lease and all others."""
        work, self._next = self._next, []
        self._state.backlog.put_back(work, anywhere=True)

    def _go_on(self, entry: Entry, again: Entry | None) -> None:
        """Make the next attempt of a bisection, or give the mini-batch up for its own failure."""
        if again is not None:
            waits = self._isolation.waits(again)
            (self._isolation.waiting if waits else self._next).append(again)
        elif entry.bisection is not None and entry.bisection.outcome is not None:
            self._spend(entry, entry.bisection.outcome, again=True)

    def release_waiting(self) -> None:
        """Put back the mini-batches that had to wait until any item has succeeded."""
        self._state.backlog.put_back(self._isolation.released(), anywhere=True)

    def give_up_waiting(self, *, is_last: bool) -> None:
        """Give up the mini-batches that wait in vain for a success."""
        for entry in self._isolation.given_up(is_last=is_last):
            if not self._state.over:
                self._go_on(entry, None)

    def lose(self, entry: Entry, slot: SlotId) -> None:
        """Count the loss of a worker against the mini-batch that was alone in its lease there."""
        again = entry.lost(slot)
        outcome = _lost(entry, slot, again.losses)
        if again.losses < self._state.limits.max_node_losses:
            self._record(entry, outcome, lost_node=slot.node)
            self._again_elsewhere(again)  # the workers of a lost node go one after the other
        else:
            self._give_up(entry, outcome, lost_node=slot.node)

    def handle_death(self, death: Death, flight: InFlightLease) -> None:
        """Charge the only suspect of a death; retry several suspects uncharged, in small leases."""
        known = [
            (entry, outcome)
            for outcome in death.suspects
            if (entry := flight.take(outcome.index, outcome.attempt)) is not None
        ]
        if len(known) == 1:
            self._fail(*known[0], flight, alone=True)
        else:
            for entry, outcome in known:
                self._record(entry, outcome)
                self._state.backlog.again(entry.suspected(len(known)))
        # The outcome of the last mini-batch was lost with the agent, so that it may be the culprit.
        # In one lease with others, these would be blamed one after the other.
        for index in death.alone:
            if index in flight.entries:
                flight.entries[index] = flight.entries[index].alone()

    def refuse(self, flight: InFlightLease, failure: Failure) -> None:
        """Take back entries that no agent began; too many refusals of one end the job."""
        state, entries = self._state, flight.entries.values()
        refused = [entry.refused(flight.slot.id, len(entries)) for entry in entries]
        state.backlog.put_back(refused)
        most = REFUSALS_PER_SLOT * max(1, len(state.slots))
        if any(entry.refusals > most for entry in refused):
            index = refused[0].mini_batch.index
            state.abort(f"no process could be given mini-batch {index}", failure)

    def _again_elsewhere(self, entry: Entry, delay_s: float = 0.0) -> None:
        """Retry an entry, after a delay if any, on another node if one is free soon then."""
        state = self._state
        entry = entry._replace(elsewhere_until_s=state.now_s + delay_s + ELSEWHERE_S)
        if delay_s:
            state.delay(entry, delay_s)
        elif entry.runs_first:  # now: its process has ended, so that a new one takes its place
            state.backlog.put_back([entry], anywhere=True)
        else:
            state.backlog.again(entry)

    def _record(
        self,
        entry: Entry,
        outcome: Outcome,
        *,
        charged: bool = False,
        lost_node: int | None = None,
    ) -> None:
        """Record a failed attempt of a mini-batch that is retried."""
        self._state.errors.retry(entry.mini_batch.index, outcome.failure)
        self._state.actions.append(
            FailAttempt(
                entry.mini_batch, outcome, final=False, charged=charged, lost_node=lost_node
            )
        )

    def _give_up(
        self,
        entry: Entry,
        outcome: Outcome,
        *,
        tries: int | None = None,
        lost_node: int | None = None,
        again: bool = False,
    ) -> Outcome:
        """Settle a mini-batch as failed; return the outcome with its items, and its error's place.

        All items of the mini-batch count as failed, unless an earlier run has committed some: then
        it stays as it was. `tries` is the number of its charged attempts, if these are spent. The
        attempt is charged, unless its node was lost. The job ends if a budget does not allow that.
        """
        state, charged = self._state, lost_node is None
        self._timer.progress()
        if entry.kept is not None:
            self._record(entry, outcome, charged=charged, lost_node=lost_node)
            self._keep(entry, entry.kept, outcome)
            return outcome
        items = outcome.total or entry.mini_batch.items or 1
        failure = state.errors.give_up(entry.mini_batch, outcome, tries)
        state.tally.give_up(items)
        outcome = outcome._replace(total=items, failure=failure)
        state.actions.append(
            FailAttempt(
                entry.mini_batch,
                outcome,
                final=True,
                charged=charged,
                lost_node=lost_node,
                again=again,
            )
        )
        if outcome.status is not Status.INPUT_CHANGED:  # that ends the job by itself
            state.abort_if(state.budgets.fail_mini_batch(items))
        return outcome

    def _keep(self, entry: Entry, kept: Recovered, outcome: Outcome) -> None:
        """Leave a mini-batch as an earlier run has committed it: its items cannot run again."""
        state = self._state
        state.errors.isolate(entry.mini_batch.index)
        failed = state.tally.commit(kept.total, kept.succeeded, empty=False, alone=kept.alone)
        state.tally.recovered += 1
        state.actions.append(KeepCommit(entry.mini_batch))
        items = "item that has" if kept.alone == 1 else "items that have"
        state.remark(
            "warning",
            f"{entry.mini_batch.described} stays as it was, without {kept.alone} {items} failed "
            f"before: {outcome.failure or outcome.status}",
        )
        state.abort_if(state.budgets.fail_items(failed))


def _is_trial(entry: Entry) -> bool:
    return entry.bisection is not None and entry.bisection.is_trying


def _is_empty_partition(entry: Entry | None) -> bool:
    """Return whether the plan says that a mini-batch has no rows; it cannot, of a range of text."""
    return entry is not None and entry.mini_batch.items == 0


def _as_planned(results: Results, entries: Mapping[int, Entry]) -> Results:
    """Return results in which empty partitions count: they are mini-batches of the plan."""
    outcomes = results.outcomes
    counted = {
        position
        for position, (index, empty) in enumerate(outcomes.columns("index", "empty"))
        if empty and _is_empty_partition(entries.get(index))
    }
    if not counted:
        return results
    changed = (
        one._replace(empty=False) if at in counted else one for at, one in enumerate(outcomes)
    )
    return results._replace(outcomes=ColumnBatch(changed))


def _lost(entry: Entry, slot: SlotId, losses: int) -> Outcome:
    message = (
        f"the worker {slot.worker} was lost while this was at work on it; that was loss {losses}. "
        "The mini-batch may have ended the workers. It fails at max_node_losses losses."
    )
    return Outcome(
        index=entry.mini_batch.index,
        attempt=entry.attempt,
        status=Status.NODE_LOST,
        total=entry.mini_batch.items or 0,
        failure=Failure("NODE_LOST", message),
    )
