"""The end of the batch job in which this process runs, by its environment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SLURM = "SLURM_JOB_END_TIME"
"""The time at which Slurm ends a job, in seconds since 1970. The documents of LSF and PBS name no
variable with the end of a job, and a limit alone does not say when the job began."""
BEFORE_S = 60.0
"""Seconds before this time at which the work is over: Slurm then sends SIGTERM, and half a minute
later it kills. Agents have to end until then, and the job has to say how to go on."""


class BatchEnd(NamedTuple):
    """The time at which the work in a batch job has to be over."""

    variable: str
    """The environment variable that has the end of the batch job."""
    at: float
    """Wall clock, seconds since 1970."""


def batch_end(environment: Mapping[str, str], now: float | None = None) -> BatchEnd | None:
    """Return the end of the batch job; None outside of one, or where it is not known.

    A time in the past does not count: the limit of a running job may have been raised, which its
    environment does not show.
    """
    text = environment.get(SLURM, "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    at = int(text)
    return BatchEnd(SLURM, at - BEFORE_S) if at > (time.time() if now is None else now) else None
