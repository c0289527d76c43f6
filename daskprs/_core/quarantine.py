"""Quarantine of locations where everything fails: they get no work until a probe works there.

A location is a device or a node. A mini-batch that fails there and works elsewhere counts against
the location; one that also fails elsewhere does not. Only the first call of a process counts, and
whatever cannot be loaded: later calls may fail since the process is broken, and `core.renewals`
replaces it then. Any success there clears the location.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from daskprs._core.actions import SlotId
    from daskprs._core.ledger_state import LedgerState

FAILURES = 3
"""Number of mini-batches that must fail in a location, and work elsewhere, to quarantine it."""
PROBE_AFTER_S = 60.0
"""Seconds until a location gets one mini-batch as a probe; each further wait is twice as long."""
LONGEST_S = 3600.0


class Device(NamedTuple):
    """A GPU."""

    node: int
    device: str

    def __str__(self) -> str:
        return f"GPU {self.device} on node {self.node}"


class Node(NamedTuple):
    """A node."""

    node: int

    def __str__(self) -> str:
        return f"node {self.node}"


Location = Device | Node


@dataclass(slots=True)
class _Record:
    """The failures in a location since the last success there."""

    works: int
    """Number of successes anywhere when the record began."""
    failed: set[int] = field(default_factory=set)
    """The mini-batches that failed here and are not settled."""
    against: set[int] = field(default_factory=set)
    """The mini-batches that failed here and then worked elsewhere, or were given up while others
    worked."""


@dataclass(slots=True)
class _Probe:
    """The time of the next probe of a location in quarantine."""

    at_s: float
    pause_s: float = PROBE_AFTER_S


class Quarantine:
    """Records failures and successes by location, and quarantines bad locations."""

    def __init__(self, state: LedgerState) -> None:
        self.ever: dict[Location, None] = {}
        """All locations that were in quarantine at any time."""
        self._state = state
        self._records: dict[Location, _Record] = {}
        self._probes: dict[Location, _Probe] = {}
        """The locations in quarantine."""
        self._works = 0

    # ---- what happens ----

    def work(self, locations: Iterable[Location]) -> None:
        """Record a success in these locations, which clears them."""
        self._works += 1
        if not self._records and not self._probes:
            return
        for location in locations:
            self._records.pop(location, None)
            if self._probes.pop(location, None) is not None:
                self._state.remark("warning", f"{location} works again: it is used as before.")

    def fail(self, index: int, locations: Iterable[Location]) -> None:
        """Record a failure that these locations, the devices and the node, may have caused."""
        for location in locations:
            self._records.setdefault(location, _Record(self._works)).failed.add(index)

    def worked(self, index: int, locations: Iterable[Location]) -> list[Location]:
        """Record the success of a mini-batch after failures; return the locations now bad."""
        here = set(locations)
        return self._settle(index, lambda location, _: location not in here)

    def given_up(self, index: int, where: Collection[SlotId]) -> list[Location]:
        """Record that a mini-batch is given up; return the locations now bad.

        A mini-batch that failed in several locations is itself to blame. If all its attempts were
        in one location, they count against it if others have worked elsewhere meanwhile.
        """
        return self._settle(
            index,
            lambda location, record: _only(location, where) and record.works < self._works,
        )

    def _settle(
        self, index: int, is_against: Callable[[Location, _Record], bool]
    ) -> list[Location]:
        bad = []
        for location, record in list(self._records.items()):
            if index in record.failed:
                record.failed.discard(index)
                if not is_against(location, record):
                    continue
                record.against.add(index)
                if len(record.against) >= FAILURES:
                    del self._records[location]
                    self._leave_out(location, record)
                    bad.append(location)
        return bad

    def _leave_out(self, location: Location, record: _Record) -> None:
        self.ever[location] = None
        self._probes[location] = _Probe(self._state.now_s + PROBE_AFTER_S)
        self._state.remark(
            "warning",
            f"{location} is left out: {len(record.against)} mini-batches failed on it, one after "
            "the other, that worked elsewhere or while others did, such as number "
            f"{min(record.against)}. It is tried again in {PROBE_AFTER_S:.0f} s.",
        )

    # ---- what follows ----

    @property
    def any(self) -> bool:
        """Whether any location is in quarantine now."""
        return bool(self._probes)

    def holds(self, locations: Iterable[Location]) -> bool:
        """Return whether one of these locations is in quarantine."""
        return bool(self._probes) and any(location in self._probes for location in locations)

    def devices(self, node: int) -> set[str]:
        """Return the devices of a node that are in quarantine."""
        return {
            location.device
            for location in self._probes
            if isinstance(location, Device) and location.node == node
        }

    def due(self) -> list[Location]:
        """Return the locations whose next probe is due."""
        now_s = self._state.now_s
        return [location for location, probe in self._probes.items() if probe.at_s <= now_s]

    def begin_probe(self, location: Location) -> None:
        """Record a probe of a location; the wait for the next probe is twice as long."""
        probe = self._probes[location]
        probe.pause_s = min(2 * probe.pause_s, LONGEST_S)
        probe.at_s = self._state.now_s + probe.pause_s


def _only(location: Location, where: Collection[SlotId]) -> bool:
    """Return whether a mini-batch that failed in these slots failed in one such location only."""
    if isinstance(location, Node):
        return len({slot.node for slot in where}) == 1
    return len(set(where)) == 1
