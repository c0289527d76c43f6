"""What must hold of usage: nothing that was used is missing but for what was lost with a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from tests.simulation.endpoints import TOKENS, tokens_of
from tests.simulation.pool import Pool
from tests.simulation.promises import demand
from tests.simulation.world import now

if TYPE_CHECKING:
    from daskprs._core.ending import Ending
    from tests.simulation.agents import Agent
    from tests.simulation.play import Stage
    from tests.simulation.promises import CheckedLedger

TOLD_S = 2.0
"""Seconds in which a driver hears what a process has counted, beside those of messages."""
IN_TIME = {"kill worker", "kill host", "retire worker", "add worker", "busy worker"}
"""What may befall a job in which drivers hear of usage as soon as ever."""


def check_usage(stage: Stage, job_id: str, ledger: CheckedLedger, ending: Ending) -> None:
    """Check the usage of a job whose driver has come to its end."""
    scenario, spending = stage.scenario, ledger.spending
    is_done = ending.status is JobStatus.COMPLETED
    strikes = {what for _, what in scenario.strikes}
    is_told_in_time = strikes <= IN_TIME and not (scenario.on_disk or scenario.far)
    of_name: dict[tuple[int, str], list[Agent]] = {}
    for agent in Pool.of_job.get(job_id, ()):
        of_name.setdefault((agent.spec.node, agent.spec.name), []).append(agent)
    for (node, name), agents in of_name.items():
        counted = sum(dict(one.counted()).get(TOKENS, 0.0) for one in agents)
        told = spending._processes.get((node, name), {}).get(TOKENS, 0.0)
        demand(told <= counted, f"{name} has used {counted} tokens, and {told} are known")
        if is_done and stage.is_quiet():
            demand(told == counted, f"{name} has used {counted} tokens, and just {told} are known")
        elif is_told_in_time:
            late = sum(_late(one, TOLD_S + 4 * scenario.latency_s) for one in agents)
            missing = counted - told
            demand(missing <= late, f"{missing} tokens of {name} are missing, {late} were late")
    if is_done:
        done = {*range(scenario.count)} - ledger.given_up
        useful, right = spending.useful.get(TOKENS, 0.0), sum(map(tokens_of, done))
        demand(useful == right, f"{useful} tokens were useful, and not {right}")


def _late(agent: Agent, within_s: float) -> int:
    """Return the tokens that a process has counted in its last seconds."""
    assert agent.requests is not None
    end_s = now().now_s if agent.died_s is None else agent.died_s
    return sum(tokens for at_s, tokens in agent.requests.counted if at_s >= end_s - within_s)
