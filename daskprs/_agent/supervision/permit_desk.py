"""Where the agents of a worker get their permits: between their pages and the governor.

The governor is in another process, or in this one. What an agent says of its permits is only a sum
in its page, so that nothing has to be sent for a call.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from daskprs._core.governor import ENDLESS, Grant, Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._agent.supervision.supervisor import Supervisor

LOOK_EVERY_S = 0.05
"""Seconds between looks at the pages while agents are at work."""


class PermitDesk:
    """Reads what agents say of their permits, and writes what they get."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._agents: dict[str, Supervisor] = {}
        """The agents that are there, by a name that no other has had."""
        self._granted: dict[str, tuple[int, int, int]] = {}
        """What they have in all: permits, tokens, and how many may be in flight."""

    def admit(self, agent: Supervisor) -> None:
        """Begin to serve an agent."""
        with self._lock:
            self._number += 1
            self._agents[f"{agent.spec.node}-{agent.spec.name}-{self._number}"] = agent

    def look(self) -> dict[str, Report]:
        """Return the reports of the agents that are there."""
        reports = {}
        with self._lock:
            agents = [*self._agents.items()]
        for name, agent in agents:
            report = None if agent.gone else _report(agent, self._granted.get(name, (0, 0, 0)))
            if report is None:
                with self._lock:
                    self._agents.pop(name, None)
                    self._granted.pop(name, None)
            else:
                reports[name] = report
        return reports

    def apply(self, grants: Mapping[str, Grant]) -> None:
        """Write what agents get."""
        now_ns = time.monotonic_ns()
        for name, grant in grants.items():
            agent = self._agents.get(name)
            if agent is None:
                continue
            paused_ns = now_ns + int(grant.pause_s * 1e9) if grant.pause_s > 0 else 0
            try:
                granted, tokens, most = grant[:3]
                has = agent.page.grant(granted, tokens, most, paused_ns)
            except ValueError:  # it has just ended
                continue
            self._granted[name] = (min(ENDLESS, has[0]), min(ENDLESS, has[1]), most)


def _report(agent: Supervisor, granted: tuple[int, int, int]) -> Report | None:
    """Return what an agent says; None if it has ended. The script can write any numbers there."""
    try:
        sums = agent.page.permits()
    except ValueError:  # the page is closed
        return None
    *counts, paused_ns = (min(ENDLESS, max(0, one)) for one in sums)
    pause_s = max(0.0, (paused_ns - time.monotonic_ns()) / 1e9) if paused_ns else 0.0
    return Report._make((*granted, *counts, pause_s))
