"""What mini-batches have used by the script's own count, such as tokens: spent, and useful.

Each process counts up, and says now and then how far it is. What was *spent* is the sum over all
processes, those that died included. What was *useful* is the sum over the committed attempts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Amounts = tuple[tuple[str, float], ...]
"""Amounts by name."""
LARGEST = 1 << 62
ROUNDING = 1e-9
"""The share of a limit by which sums of fractions may be wrong."""
DIGITS = 12
"""Digits of an amount that are shown: those that follow may come of the sums."""
SURE_AFTER = 3
"""Mini-batches that have counted something else, after which a name counts as misspelt."""


class Spending:
    """The amounts of a job; those of its earlier runs, and the mini-batches done in them."""

    def __init__(
        self,
        spent: Mapping[str, float] | None = None,
        useful: Mapping[str, float] | None = None,
        done: int = 0,
    ) -> None:
        self._before = Counter[str](spent or {})
        self._useful = Counter[str](useful or {})
        self._means_before = {name: one / done for name, one in self._useful.items() if done}
        self._processes: dict[tuple[int, str], dict[str, float]] = {}
        self._of_run = Counter[str]()
        self._ended_in: dict[tuple[int, str], Counter[str]] = {}
        """What attempts have used that have ended in a process, or with it."""
        self._lost = Counter[str]()
        """What processes had counted when they ended, beyond what their attempts have reported."""
        self._ended = Counter[str]()
        """What the attempts of this run have used that have ended by themselves, and …"""
        self._attempts = 0
        """… their number."""
        self._counting = 0
        """Number of those that are committed and have counted anything."""
        self._is_told = False
        """Whether it was looked which limits name nothing that is counted."""

    @property
    def of_run(self) -> dict[str, float]:
        """What this run has spent."""
        return dict(self._of_run)

    @property
    def spent(self) -> dict[str, float]:
        """What all runs have spent: no less than what was useful, also where a report was lost."""
        names = self._before | self._of_run | self._useful
        return {
            name: max(self._before[name] + self._of_run[name], self._useful[name])
            for name in sorted(names)
        }

    @property
    def useful(self) -> dict[str, float]:
        """What the committed attempts of all runs have used."""
        return {name: self._useful[name] for name in sorted(self._useful)}

    def take(self, node: int, process: str, amounts: Amounts) -> None:
        """Take what a process has counted since its start; an older report changes nothing."""
        known = self._processes.setdefault((node, process), {}) if amounts else {}
        for name, amount in amounts:
            more = amount - known.get(name, 0)
            if more > 0:
                known[name] = amount
                self._of_run[name] += more  # type: ignore[assignment]  # a Counter counts floats

    def end(self, attempts: Sequence[Amounts | None], node: int = 0, process: str = "") -> None:
        """Take what attempts have used that have ended in a process."""
        self._attempts += len(attempts)
        if attempts.count(None) < len(attempts):
            in_process = self._ended_in.setdefault((node, process), Counter())
            for amounts in attempts:
                _add(self._ended, amounts)
                _add(in_process, amounts)

    def lose(self, node: int, process: str) -> None:
        """Take the end of a process: what it has counted beside that is under way no more."""
        counted = self._processes.get((node, process))
        if counted is None:  # most jobs count nothing, and may have a million processes
            return
        ended = self._ended_in.setdefault((node, process), Counter())
        for name, amount in counted.items():
            more = max(0, amount - ended[name])
            self._lost[name] += more  # type: ignore[assignment]  # a Counter counts floats
            ended[name] += more  # type: ignore[assignment]  # as above

    def commit(
        self, attempts: Sequence[Amounts | None], positions: Iterable[int], sign: int = 1
    ) -> None:
        """Take what the attempts at these positions have used; with the sign -1, take it back."""
        if attempts.count(None) < len(attempts):
            for position in positions:
                _add(self._useful, attempts[position], sign)
                self._counting += sign * bool(attempts[position])

    def room(self, limits: Amounts, in_flight: int, untried: int = 1) -> int:
        """Return how many more mini-batches may begin: `untried`, as long as none has ended.

        What those that are under way will use is estimated by the mean of all attempts so far; at
        first, by that of the mini-batches that earlier runs have done. Only half of what fits may
        begin at a time: the next ones may use more than the mean.
        """
        fits = LARGEST if self._attempts else 2 * untried
        spent = self.spent
        for name, limit in limits:
            known = self._means_before.get(name, 0.0)
            mean = self._ended[name] / self._attempts if self._attempts else known
            begun = max(0, self._of_run[name] - self._ended[name] - self._lost[name])
            left = limit - spent.get(name, 0) - max(0.0, mean * in_flight - begun)
            slack = ROUNDING * limit  # three times 0.1 is more than 0.3, and a fourth one fits
            if left <= slack:
                return 0
            if mean > 0:
                fits = min(fits, int((left + slack) / mean))
        return -(-fits // 2)

    def higher(self, limits: Amounts) -> dict[str, Any]:
        """Return limits with which a resume goes on: those that leave no room are doubled."""
        spent = self.spent
        return {
            name: plain(limit if self.room(((name, limit),), 0) else 2 * max(limit, spent[name]))
            for name, limit in limits
        }

    def why_none(self, limits: Amounts) -> str:
        """Return the reason why no more mini-batches may begin."""
        spent = self.spent
        shown = ", ".join(
            f"{plain(spent.get(name, 0)):,} of {plain(limit):,} {name}" for name, limit in limits
        )
        return f"it has used {shown}, and nothing more fits into usage_limits"

    def complaint(self, limits: Amounts, *, at_the_end: bool = False) -> str:
        """Return a warning, once, of limits of what the script does not count.

        It may count some amounts later than others, or only sometimes. So this is said when a few
        mini-batches are done that have counted something else, or when all are.
        """
        if self._is_told or not (at_the_end or self._counting >= SURE_AFTER):
            return ""
        self._is_told = True
        known = self._before.keys() | self._of_run.keys() | self._useful.keys()
        lacking = [name for name, _ in limits if name not in known]
        if not lacking:
            return ""
        shown = " and ".join(map(repr, lacking))
        counted = ", ".join(map(repr, sorted(known))) or "nothing by context.count"
        return (
            f"usage_limits names {shown}, which the script has not counted: that limits nothing. "
            f"It counts {counted}."
        )


def _add(sums: Counter[str], amounts: Amounts | None, sign: int = 1) -> None:
    for name, amount in amounts or ():
        sums[name] += sign * amount  # type: ignore[assignment]  # a Counter counts floats


def plain(amount: float) -> Any:
    """Return an amount as a whole number where it is one, and else without errors of a sum."""
    if not float(amount).is_integer():
        amount = float(f"{amount:.{DIGITS}g}")
    return int(amount) if float(amount).is_integer() else amount
