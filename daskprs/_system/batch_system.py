"""The end of the batch job in which this process runs, by its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SLURM = "SLURM_JOB_END_TIME"
"""The time at which Slurm ends a job, in seconds since 1970. The documents of LSF and PBS name no
variable with the end of a job, and a limit alone does not say when the job began."""
BEFORE_S = 60.0
"""Seconds before this time at which the work is over: Slurm then sends SIGTERM, and half a minute
later it kills. Agents have to end until then, and the job has to say how to go on."""


def batch_end(environment: Mapping[str, str], now: float) -> float | None:
    """Return the time at which the work in a batch job has to be over; None where it is not known.

    Times are those of the wall clock, in seconds since 1970. A time in the past does not count: the
    limit of a running job may have been raised, which its environment does not show.
    """
    text = environment.get(SLURM, "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    at = int(text)
    return at - BEFORE_S if at > now else None
