"""Where the agents of a worker get their permits: between their pages and the governor.

The governor is in another process, or in this one. What an agent says of its permits is only a sum
in its page, so that nothing has to be sent for a call.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from daskprs._agent.protocol.shared_page import PermitSums
from daskprs._core.governor import ENDLESS, Grant, Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._agent.supervision.supervisor import Supervisor

LOOK_EVERY_S = 0.05
"""Seconds between looks at the pages while agents are at work."""
NOBODY = "nobody"
"""Reports a pause that agents have left behind, where no other agent is there to do so."""


class PermitDesk:
    """Reads what agents say of their permits, and writes what they get."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._agents: dict[str, Supervisor] = {}
        """The agents that are there, by a name that no other has had."""
        self._granted: dict[str, tuple[int, int, int]] = {}
        """What they have in all: permits, tokens, and how many may be in flight."""
        self._left_ns = 0
        """Until when agents that have ended wanted all to pause."""

    def admit(self, agent: Supervisor) -> None:
        """Begin to serve an agent."""
        with self._lock:
            self._number += 1
            name = f"{agent.spec.node}-{agent.spec.name}-{self._number}"
            self._agents[name] = agent
        agent.at_close = partial(self._part, name, agent)

    def look(self) -> dict[str, Report]:
        """Return the reports of the agents that are there."""
        reports = {}
        with self._lock:
            agents = [*self._agents.items()]
        for name, agent in agents:
            report = None if agent.gone else _report(agent, self._granted.get(name, (0, 0, 0)))
            if report is None:
                self._part(name, agent)
            else:
                reports[name] = report
        # An agent may end between its refusal and the next look, and the endpoint means all.
        if (left_s := _until_s(self._left_ns)) > 0:
            reports = reports or {NOBODY: Report()}
            for name, report in reports.items():
                reports[name] = report._replace(pause_s=max(left_s, report.pause_s))
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

    def _part(self, name: str, agent: Supervisor) -> None:
        """Serve an agent no more that has ended, and keep the pause that it has asked for."""
        sums = _sums(agent)
        with self._lock:
            self._agents.pop(name, None)
            self._granted.pop(name, None)
            if sums is not None:
                self._left_ns = max(self._left_ns, sums.paused_ns)


def _report(agent: Supervisor, granted: tuple[int, int, int]) -> Report | None:
    """Return what an agent says; None if it has ended."""
    sums = _sums(agent)
    return None if sums is None else Report._make((*granted, *sums[:-1], _until_s(sums.paused_ns)))


def _sums(agent: Supervisor) -> PermitSums | None:
    """Return the sums of an agent; None if its page is closed. The script can write any there."""
    try:
        sums = agent.page.permits()
    except ValueError:
        return None
    return PermitSums._make(min(ENDLESS, max(0, one)) for one in sums)


def _until_s(paused_ns: int) -> float:
    return max(0.0, (paused_ns - time.monotonic_ns()) / 1e9) if paused_ns else 0.0
