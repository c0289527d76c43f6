"""The promises that a seed checks while its job runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daskprs._core.actions import Commit, FailAttempt, Remark, Submit
from daskprs._core.events import MiniBatchesDone
from daskprs._core.lease import LeaseReturned
from daskprs._core.ledger import Ledger
from daskprs._core.outcomes import Status
from daskprs._core.settling import MOST_THROTTLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daskprs._core.mini_batch import MiniBatch
    from tests.simulation.disk import Operation
    from tests.simulation.items import Items
    from tests.simulation.scenario import Scenario


class Refused(Exception):  # noqa: N818 - what it is
    """A driver refuses to go on, and may: the disk had lied."""


class Ruled(Exception):  # noqa: N818 - what it is
    """After many processes that were renewed in vain, a mini-batch is given up that would pass."""


class Violation(AssertionError):  # noqa: N818 - what it is
    """A promise is broken."""


def demand(holds: object, what: str) -> None:
    """Report a promise that does not hold."""
    if not holds:
        raise Violation(what)


COUNTS_AGAIN = "Failures count as tries again"
SEARCHES_NO_MORE = "No further mini-batch is bisected"
NOT_INDEPENDENT = "are not independent of each other"


@dataclass
class Books:
    """What was promised so far, and the counts of a seed."""

    drivers: int = 0
    reported: set[int] = field(default_factory=set)
    """Mini-batches whose commits were reported, and have to be there for the next driver."""
    reports: list[tuple[int, int, int]] = field(default_factory=list)
    """Each of these commits: the mini-batch, the epoch, and the operations of the disk by then."""
    strikes: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0

    is_rotten: bool = False
    """Whether bytes have changed on the disk: what is damaged runs again, reported or not."""

    def spoil(self) -> None:
        """Demand no commit any more."""
        self.is_rotten = True
        self.reported.clear()
        self.reports.clear()

    def count(self, what: str, moment: str = "") -> None:
        """Count what befell the job."""
        key = f"{what}, {moment}" if moment else what
        self.strikes[key] = self.strikes.get(key, 0) + 1


def durable(reports: list[tuple[int, int, int]], record: list[Operation]) -> set[int]:
    """Return the mini-batches whose commits outlive a loss of power after these operations.

    Rows are synced before the journal: so a commit has both once the journal of its epoch has
    been synced twice since.
    """
    journals = {
        one.given[1].rpartition("/journal.")[2]: one.given[0]
        for one in record
        if one.what == "create" and "/journal." in one.given[1]
    }
    synced: dict[int, int] = {}
    for epoch, node in journals.items():
        syncs = [
            number
            for number, one in enumerate(record)
            if one.what == "sync" and one.given[0] == node
        ]
        synced[int(epoch)] = syncs[-2] if len(syncs) > 1 else 0
    return {index for index, epoch, by in reports if by <= synced.get(epoch, 0)}


class Listener:
    """Hears which commits a driver has reported: its death takes none of them back."""

    def __init__(self, books: Books, epoch: int, record: list[Operation]) -> None:
        self._books = books
        self._driver = books.drivers
        self._epoch = epoch
        self._record = record

    def say(self, level: str, message: str) -> None:
        """Drop a message for people."""

    def tell(self, event: Any) -> None:
        """Note commits, unless another driver has taken over since."""
        books = self._books
        is_newest = self._driver == books.drivers
        if isinstance(event, MiniBatchesDone) and is_newest and not books.is_rotten:
            indexes = {one.index for one in event.mini_batches}
            books.reported |= indexes
            now = len(self._record)
            books.reports += [(index, self._epoch, now) for index in indexes]


class CheckedLedger(Ledger):
    """The ledger of production, with a clerk who checks each of its actions."""

    def __init__(
        self,
        scenario: Scenario,
        reported: set[int],
        recovered: Callable[[MiniBatch], Any],
        is_quiet: Callable[[], bool],
        caused: Mapping[int, int],
        *given: Any,
        **more: Any,
    ) -> None:
        self._scenario = scenario
        self._reported = frozenset(reported)
        self._recovered = recovered
        self._is_quiet = is_quiet
        """Says whether nothing has befallen the cluster, so that no attempt was in vain."""
        self._caused = caused
        """How often each mini-batch was at fault."""
        self._charged = Counter[int]()
        self._counts_again = False
        """Whether so many processes were renewed in vain that all failures count."""
        self._ended = 0
        """Number of attempts that have ended."""
        self._refused = Counter[int]()
        """How often an endpoint has refused a mini-batch."""
        self._committed: set[int] = set()
        self.given_up: set[int] = set()
        self.failed_items = 0
        """Items that failed by themselves, and those of mini-batches that were given up."""
        self._searches = scenario.isolates
        """Whether mini-batches that fail are still searched."""
        super().__init__(*given, recovered=self._found, **more)

    def _found(self, mini_batch: MiniBatch) -> Any:
        """Return the earlier result of a mini-batch; one that has none may be committed."""
        found = self._recovered(mini_batch)
        is_lost = found is None and mini_batch.index in self._reported
        demand(not is_lost, f"the commit of {mini_batch.index} is lost")
        if found is not None and not found.gaps:
            self._committed.add(mini_batch.index)
            self.failed_items += found.alone
        return found

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Handle an event, and check what follows."""
        actions = super().handle(event, now_s)
        if isinstance(event, LeaseReturned):
            self._ended += sum(len(one.outcomes) for one in event.results)
            is_known = self.spending.of_run.get("calls", 0) >= self._ended
            demand(is_known, "an attempt has ended whose calls nobody has counted")
        for action in actions:
            if isinstance(action, Remark):
                self._hear(action.message)
            elif isinstance(action, Commit):
                self._counts_again = False
                for one in action.mini_batches:
                    demand(one.index not in self._committed, f"{one.index} is committed twice")
                    demand(one.index not in self.given_up, f"{one.index} is given up already")
                    self._committed.add(one.index)
                if self._scenario.items is not None:
                    self._check_items(self._scenario.items, action)
            elif isinstance(action, FailAttempt):
                self._check_failure(action)
            elif isinstance(action, Submit) and self._is_quiet():
                self._check_attempts(action)
        return actions

    def _hear(self, message: str) -> None:
        if COUNTS_AGAIN in message:
            self._counts_again = True
        elif SEARCHES_NO_MORE in message:
            self._searches = False
            items = self._scenario.items
            is_right = NOT_INDEPENDENT not in message or (items and items.is_dependent)
            demand(is_right, f"items are independent: {message}")

    def _check_failure(self, action: FailAttempt) -> None:
        """Check a failed attempt: whom it is charged to, and why a mini-batch is given up."""
        index, scenario = action.mini_batch.index, self._scenario
        demand(index not in self._committed, f"{index} fails after its commit")
        self._refused[index] += action.outcome.status is Status.THROTTLED
        if action.outcome.status is Status.THROTTLED and action.charged:
            demand(self._refused[index] > MOST_THROTTLED, f"{index} is charged for a refusal")
            demand(self._state.tally.succeeded, f"{index} is charged where nothing succeeds")
            if scenario.is_innocent(index):  # by chance it was refused so often
                raise Ruled
        # A second driver removes what this one has brought together, if it has lost its locks.
        is_keyless = action.outcome.status is Status.LOAD_TIMEOUT and scenario.keyed is not None
        if is_keyless and any(kind == "second driver" for _, kind in scenario.strikes):
            raise Ruled
        is_innocent = scenario.is_innocent(index)
        passes_later = scenario.items is None and index not in scenario.settled_bad
        if self._counts_again and action.final and (is_innocent or passes_later):
            raise Ruled
        demand(not (is_innocent and action.final), f"the innocent {index} is given up")
        is_rule = self._counts_again or not action.charged or self._is_searched(index)
        demand(is_rule or not is_innocent, f"the innocent {index} is charged: {action.outcome}")
        if action.charged and scenario.items is None and not self._counts_again:
            self._charged[index] += 1
            is_right = self._charged[index] <= self._caused.get(index, 0) + self._refused[index]
            demand(is_right, f"{index} is charged more often than it was at fault")
        if action.final:
            self.given_up.add(index)
            self.failed_items += action.outcome.total
            if self._searches:
                self._check_given_up(index)

    def left_of(self, indexes: Iterable[int]) -> set[int]:
        """Return those of some mini-batches that are not settled."""
        return {*indexes} - self._committed - self.given_up

    def _is_searched(self, index: int) -> bool:
        """Return whether a search after the last try tells if its items or a process are to blame.

        Then a failure in a process that may be broken counts as a try.
        """
        items = self._scenario.items
        return self._searches and items is not None and items.sizes[index] > 1

    def _check_given_up(self, index: int) -> None:
        """Check that a mini-batch which is searched is given up only where nothing ever passes."""
        items = self._scenario.items
        assert items is not None
        size, acts = items.sizes[index], items.acts_of(index)
        may_fail = len(acts) >= min(2, size) or items.lacks_memory(index, size)
        is_all = not self._state.tally.items_succeeded
        demand(may_fail and is_all, f"{index} is given up as a whole")

    def _check_items(self, items: Items, commit: Commit) -> None:
        """Check which items mini-batches are committed without."""
        tries = self._scenario.limits.run_max_try
        for one, outcome in zip(commit.mini_batches, commit.made.outcomes, strict=True):
            listed = () if outcome.failed_rows is None else outcome.failed_rows.items
            why = items.objection(one.index, listed, tries)
            demand(not why, f"{why}: {listed}")
            failed = sum(item.stop - item.start for item in listed)
            counts = items.sizes[one.index], items.sizes[one.index] - failed
            found = outcome.total, outcome.succeeded
            demand(found == counts, f"{one.index} is committed with {found} items, not {counts}")
            self.failed_items += failed

    def _check_attempts(self, submit: Submit) -> None:
        """Check that a mini-batch costs few attempts where nothing befalls the job."""
        for index, attempt in submit.lease.work.columns("mini_batch.index", "attempt"):
            most = self._scenario.most_attempts(index) + self._refused[index]
            demand(attempt <= most, f"{index} is attempted {attempt} times, and not {most}")
