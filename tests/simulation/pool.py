"""The pool of a worker, whose agents are functions."""

from __future__ import annotations

from random import Random
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

from daskprs._agent.supervision.pool import AgentPool
from tests.simulation.agents import Agent
from tests.simulation.calls import CallsAgent
from tests.simulation.endpoints import Requests
from tests.simulation.world import now

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.lease import AgentAssignment
    from tests.simulation.agents import Script


class Pool(AgentPool):
    """The pool of production, whose agents are functions."""

    script: Script
    made = 0
    of_job: dict[str, list[Agent]]
    """The agents of each job, those that have ended, too."""

    def __init__(self, job: JobSpec, **given: Any) -> None:
        super().__init__(job, **given)
        self._agents: list[Agent] = []

    def prepare(self, threads: int) -> None:
        """Do nothing: there is nothing to fork agents from."""

    def _employ(self, node: int, assignment: AgentAssignment, *, is_of_stage: bool = False) -> Any:
        Pool.made += 1
        name = f"{node}-{assignment.process}-{Pool.made}"
        spool = self._spool(name)
        make = Agent if self.job.calls is None else CallsAgent
        agent = make(
            self.job,
            assignment,
            spool,
            now().process,
            self.script,
            Pool.made,
            self._requests,
            node,
            is_of_stage=is_of_stage,
        )
        self._agents.append(agent)
        self.of_job.setdefault(self.job.job_id, []).append(agent)
        if self.permits is not None:
            self.permits.admit(agent)  # type: ignore[arg-type]
        return agent

    def _requests(self, agent: Agent) -> Requests | None:
        server = self.script.server
        if server is None:
            return None
        pauses = Random(f"pauses of {Pool.made}")  # noqa: S311
        return Requests(agent, server, self.job.rate_limit, pauses)

    def terminate(self) -> None:
        """Let the agents end by SIGTERM, which somebody has sent to all processes of a job."""
        for agent in self._agents:
            agent.die(-SIGTERM)

    def close(self) -> None:
        """Kill the agents."""
        super().close()
        for agent in self._agents:
            if agent.alive():
                agent.end()
