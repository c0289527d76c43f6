"""The pools of this process, by job: so that they can be ended without asking anybody."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.agent.pool import AgentPool

_living: weakref.WeakValueDictionary[tuple[str, int], AgentPool] = weakref.WeakValueDictionary()


def enter(job_id: str, pool: AgentPool) -> None:
    """Remember a pool of a job."""
    _living[job_id, id(pool)] = pool


def close(job_id: str) -> None:
    """End all agents of a job that are children of this process."""
    for (job, _), pool in list(_living.items()):
        if job == job_id:
            pool.close()
