"""Quarantine of places where everything fails: they get no work, and are tried again later.

A place is an agent process, a device or a node. A mini-batch that fails there and works elsewhere
counts against the place; one that also fails elsewhere does not. Any success there clears the
place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from daskprs.core.actions import SlotId

FAILURES = 3
"""Number of mini-batches that must fail in a place, and work elsewhere, to quarantine it."""
PROCESSES = 2
"""Number of processes in which they must have failed, if the place is a device or a node."""
TRY_AGAIN_S = 60.0
"""Seconds until a place gets one mini-batch as a trial; each further wait is twice as long."""
LONGEST_S = 3600.0


class Process(NamedTuple):
    """An agent process."""

    node: int
    name: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.name} on node {self.node}"


class Device(NamedTuple):
    """A GPU."""

    node: int
    device: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"GPU {self.device} on node {self.node}"


class Node(NamedTuple):
    """A node."""

    node: int

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"node {self.node}"


Place = Process | Device | Node


@dataclass(slots=True)
class _Record:
    """The failures in a place since the last success there."""

    works: int
    """Number of successes anywhere when the record began."""
    failed: dict[int, str] = field(default_factory=dict)
    """Process of each mini-batch that failed here and is not settled."""
    against: dict[int, str] = field(default_factory=dict)
    """Process of each mini-batch that failed here and then worked elsewhere, or was given up while
    others worked."""


@dataclass(slots=True)
class _Out:
    """The time of the next trial of a place in quarantine."""

    at_s: float
    pause_s: float = TRY_AGAIN_S


class Quarantine:
    """Records failures and successes by place, and quarantines bad places."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self.ever: dict[Place, None] = {}
        """All places that were in quarantine at any time."""
        self._records: dict[Place, _Record] = {}
        self._out: dict[Place, _Out] = {}
        self._works = 0

    # ---- what happens ----

    def work(self, places: Iterable[Place]) -> None:
        """Record a success in these places, which clears them."""
        self._works += 1
        if not self._records and not self._out:
            return
        for place in places:
            self._records.pop(place, None)
            if self._out.pop(place, None) is not None:
                self._told.append(f"{place} works again: it is used as before.")

    def fail(self, index: int, places: Iterable[Place], process: str) -> None:
        """Record a failed attempt at a mini-batch in these places."""
        for place in places:
            record = self._records.setdefault(place, _Record(self._works))
            record.failed[index] = process

    def worked(self, index: int, places: Iterable[Place], now_s: float) -> list[Place]:
        """Record the success of a mini-batch after failures; return the places now left out."""
        here = set(places)
        return self._settle(index, now_s, lambda place, _: place not in here)

    def given_up(self, index: int, where: Collection[SlotId], now_s: float) -> list[Place]:
        """Record that a mini-batch is given up; return the places now left out.

        A mini-batch that failed in several places is itself to blame. If all its attempts were in
        one place, they count against the place if others have worked elsewhere meanwhile.
        """
        return self._settle(
            index,
            now_s,
            lambda place, record: _only(place, where) and record.works < self._works,
        )

    def forget(self, place: Place) -> None:
        """Forget a place that will never return."""
        self._records.pop(place, None)

    def _settle(
        self, index: int, now_s: float, speaks: Callable[[Place, _Record], bool]
    ) -> list[Place]:
        bad = []
        for place, record in list(self._records.items()):
            process = record.failed.pop(index, None)
            if process is not None and speaks(place, record):
                record.against[index] = process
                if _is_bad(place, record):
                    del self._records[place]
                    self._leave_out(place, record, now_s)
                    bad.append(place)
        return bad

    def _leave_out(self, place: Place, record: _Record, now_s: float) -> None:
        self.ever[place] = None
        one, *_ = record.against
        because = (
            f"{len(record.against)} mini-batches failed on it, one after the other, that worked "
            f"elsewhere or while others did, such as number {one}"
        )
        if isinstance(place, Process):
            self._told.append(f"{place} is replaced: {because}.")
        else:
            self._out[place] = _Out(now_s + TRY_AGAIN_S)
            self._told.append(
                f"{place} is left out: {because}. It is tried again in {TRY_AGAIN_S:.0f} s."
            )

    # ---- what follows ----

    def taken_out(self) -> list[str]:
        """Return the messages for the user, and clear them."""
        told, self._told = self._told, []
        return told

    @property
    def any(self) -> bool:
        """Whether any place is left out now."""
        return bool(self._out)

    def is_out(self, places: Iterable[Place]) -> bool:
        """Say whether one of these places is left out."""
        return bool(self._out) and any(place in self._out for place in places)

    def devices(self, node: int) -> set[str]:
        """Return the devices of a node that are left out."""
        return {
            place.device for place in self._out if isinstance(place, Device) and place.node == node
        }

    def to_try(self, now_s: float) -> list[Place]:
        """Return the places whose next trial is due."""
        return [place for place, out in self._out.items() if out.at_s <= now_s]

    def tried(self, place: Place, now_s: float) -> None:
        """Record a trial of a place; the wait for the next trial is twice as long."""
        out = self._out[place]
        out.pause_s = min(2 * out.pause_s, LONGEST_S)
        out.at_s = now_s + out.pause_s


def _only(place: Place, where: Collection[SlotId]) -> bool:
    """Return whether a mini-batch that failed in these slots failed in one such place only."""
    if isinstance(place, Node):
        return len({slot.node for slot in where}) == 1
    return len(set(where)) == 1


def _is_bad(place: Place, record: _Record) -> bool:
    processes = 1 if isinstance(place, Process) else PROCESSES
    return len(record.against) >= FAILURES and len(set(record.against.values())) >= processes
