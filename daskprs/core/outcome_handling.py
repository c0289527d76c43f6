"""Results of leases: mini-batches are settled, charged with failures, or retried."""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING

from daskprs.core.actions import Commit
from daskprs.core.outcomes import Failure, Status
from daskprs.core.retry_placement import ELSEWHERE_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from daskprs.core.accounts import Accounts
    from daskprs.core.actions import SlotId
    from daskprs.core.backlog import Backlog
    from daskprs.core.entry import Entry, InFlightLease
    from daskprs.core.lease import Death, LeaseReturned, Results
    from daskprs.core.lease_sizes import LeaseSizes
    from daskprs.core.outcomes import Outcome
    from daskprs.core.placement import Placement
    from daskprs.core.quarantine import Place

REFUSALS_BORNE = 5
"""The job fails after more than this number × slots refused leases of the same mini-batch."""
NOT_BEGUN = Failure("AgentError", "an agent did not begin what it was given")
SETTLING = ("index", "attempt", "status", "elapsed_s", "total", "succeeded", "empty")
"""The fields of an outcome that settle its mini-batch if nothing went wrong."""


class Settling:
    """Moves mini-batches from flights into the accounts, or back into the backlog."""

    def __init__(
        self,
        accounts: Accounts,
        backlog: Backlog,
        sizes: LeaseSizes,
        usable: Placement,
        slots: Collection[SlotId],
    ) -> None:
        self._accounts = accounts
        self._backlog = backlog
        self._sizes = sizes
        self._usable = usable
        self._slots = slots
        self._places = usable.bad
        self.bad: list[Place] = []
        """Places found to be bad, until the ledger has dismissed their agents."""

    def settle(
        self,
        returned: LeaseReturned,
        flight: InFlightLease,
        places: tuple[Place, ...],
        now_s: float,
    ) -> None:
        """Commit the successful attempts in these places, and charge the failed ones."""
        count, seconds = 0, 0.0
        for results in returned.results:
            if self._all_well(results, flight):
                count += len(results.outcomes)
                seconds += sum(results.outcomes.column("elapsed_s"))
                continue
            commit = Commit([], [], results)
            outcomes = results.outcomes.columns(*SETTLING)
            for position, (index, attempt, status, elapsed_s, *items) in enumerate(outcomes):
                entry = flight.take(index, attempt)
                if entry is None:
                    continue
                if status is Status.RUN_DONE:
                    count, seconds = count + 1, seconds + elapsed_s
                    self._accounts.commit(entry, commit, position, *items)
                    if entry.failed_on:
                        self.bad += self._places.worked(index, places, now_s)
                elif status is Status.INPUT_CHANGED:
                    self._accounts.refuse_input(entry, results.outcomes[position])
                else:
                    self._fail(entry, results.outcomes[position], flight, places, now_s)
                if self._accounts.over:
                    return
        self._sizes.learn(count, seconds)
        if count:
            self._places.work(places)

    def _all_well(self, results: Results, flight: InFlightLease) -> bool:
        """Commit a group as a whole if nothing went wrong in it, as in most groups."""
        outcomes, entries = results.outcomes, flight.entries
        indexes, totals = outcomes.column("index"), outcomes.column("total")
        succeeded = outcomes.column("succeeded")
        known = [entries.get(index) for index in indexes]
        if (
            outcomes.column("status").count(Status.RUN_DONE) != len(known)
            or [entry and entry.attempt for entry in known] != list(outcomes.column("attempt"))
            or len(set(indexes)) != len(known)
            or any(outcomes.column("empty"))
            or any(map(gt, totals, succeeded))
            or any(entry.failed_on for entry in known if entry)  # that it works here tells much
            or self._accounts.has_failed(indexes)
        ):
            return False
        done = [entries.pop(index).mini_batch for index in indexes]
        self._accounts.commit_all(Commit(done, [*range(len(done))], results), totals, succeeded)
        return True

    def _fail(
        self,
        entry: Entry,
        outcome: Outcome,
        flight: InFlightLease,
        places: tuple[Place, ...],
        now_s: float,
        *,
        alone: bool = False,
    ) -> None:
        """Charge a failed attempt, unless its place is known to be bad and a good slot exists."""
        if self._places.is_out(places) and any(map(self._usable.is_good, self._slots)):
            self._backlog.again(self._accounts.record_uncharged(entry, outcome, flight.slot))
            return
        if outcome.failure is None or outcome.failure.retryable:
            process, *_ = places
            self._places.fail(entry.mini_batch.index, places, str(process))
        again = self._accounts.charge(entry, outcome, flight.slot, alone=alone)
        if again is None:
            where = (*entry.failed_on, flight.slot)
            self.bad += self._places.given_up(entry.mini_batch.index, where, now_s)
        else:
            self._again_elsewhere(again, now_s)

    def lose(self, entry: Entry, slot: SlotId, now_s: float) -> None:
        """Count a loss; the workers of a node that is lost go one after the other."""
        again = self._accounts.lose(entry, slot)
        if again is not None:
            self._again_elsewhere(again, now_s)

    def _again_elsewhere(self, entry: Entry, now_s: float) -> None:
        """Retry an entry, on another node if one is free soon."""
        self._backlog.again(entry._replace(elsewhere_until_s=now_s + ELSEWHERE_S))

    def handle_death(
        self, death: Death, flight: InFlightLease, places: tuple[Place, ...], now_s: float
    ) -> None:
        """Charge the only suspect of a death; retry several suspects uncharged, in small leases."""
        entries, accounts = flight.entries, self._accounts
        known = [
            (entry, outcome)
            for outcome in death.suspects
            if (entry := flight.take(outcome.index, outcome.attempt)) is not None
        ]
        if len(known) == 1:
            self._fail(*known[0], flight, places, now_s, alone=True)
        else:
            for entry, outcome in known:
                self._backlog.again(accounts.record_suspect(entry, outcome, len(known)))
        for index in death.alone:
            if index in entries:
                entries[index] = entries[index].alone()

    def refuse(self, flight: InFlightLease, failure: Failure, slots: int) -> None:
        """Take back entries that no agent began; too many refusals of one end the job."""
        entries = flight.entries.values()
        refused = [entry.refused(flight.slot, len(entries)) for entry in entries]
        self._backlog.put_back(refused)
        borne = REFUSALS_BORNE * max(1, slots)
        if any(entry.refusals > borne for entry in refused):
            index = refused[0].mini_batch.index
            self._accounts.abort(f"no process could be given mini-batch {index}", failure)
