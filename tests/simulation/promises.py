"""The promises that a seed checks while its job runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daskprs._core.actions import Commit, FailAttempt
from daskprs._core.events import MiniBatchesDone
from daskprs._core.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.mini_batch import MiniBatch
    from tests.simulation.scenario import Scenario


class Refused(Exception):  # noqa: N818 - what it is
    """A driver refuses to go on, and may: the disk had lied."""


class Violation(AssertionError):  # noqa: N818 - what it is
    """A promise is broken."""


def demand(holds: object, what: str) -> None:
    """Report a promise that does not hold."""
    if not holds:
        raise Violation(what)


@dataclass
class Books:
    """What was promised so far, and the counts of a seed."""

    drivers: int = 0
    reported: set[int] = field(default_factory=set)
    """Mini-batches whose commits were reported, and have to be there for the next driver."""
    strikes: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0

    def count(self, what: str, moment: str = "") -> None:
        """Count what befell the job."""
        key = f"{what}, {moment}" if moment else what
        self.strikes[key] = self.strikes.get(key, 0) + 1


class Listener:
    """Hears which commits a driver has reported: its death takes none of them back."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._driver = books.drivers

    def tell(self, event: Any) -> None:
        """Note commits, unless another driver has taken over since."""
        if isinstance(event, MiniBatchesDone) and self._driver == self._books.drivers:
            self._books.reported.update(one.index for one in event.mini_batches)


class CheckedLedger(Ledger):
    """The ledger of production, with a clerk who checks each of its actions."""

    def __init__(
        self,
        scenario: Scenario,
        reported: set[int],
        recovered: Callable[[MiniBatch], Any],
        *given: Any,
        **more: Any,
    ) -> None:
        self._scenario = scenario
        self._reported = frozenset(reported)
        self._recovered = recovered
        self._committed: set[int] = set()
        self.given_up: set[int] = set()
        super().__init__(*given, recovered=self._found, **more)

    def _found(self, mini_batch: MiniBatch) -> Any:
        """Return the earlier result of a mini-batch; one that has none may be committed."""
        found = self._recovered(mini_batch)
        is_lost = found is None and mini_batch.index in self._reported
        demand(not is_lost, f"the commit of {mini_batch.index} is lost")
        if found is not None:
            self._committed.add(mini_batch.index)
        return found

    def handle(self, event: Any, now_s: float) -> list[Any]:
        """Handle an event, and check what follows."""
        actions = super().handle(event, now_s)
        for action in actions:
            if isinstance(action, Commit):
                for one in action.mini_batches:
                    demand(one.index not in self._committed, f"{one.index} is committed twice")
                    demand(one.index not in self.given_up, f"{one.index} is given up already")
                    self._committed.add(one.index)
            elif isinstance(action, FailAttempt):
                index = action.mini_batch.index
                demand(index not in self._committed, f"{index} fails after its commit")
                is_innocent = index not in self._scenario.bad
                demand(not (is_innocent and action.final), f"the innocent {index} is given up")
                demand(not (is_innocent and action.charged), f"the innocent {index} is charged")
                if action.final:
                    self.given_up.add(index)
        return actions
