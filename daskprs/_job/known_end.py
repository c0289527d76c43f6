"""The end of a job as far as it is known: its deadline, that of its batch job, or SIGTERM."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import TYPE_CHECKING

from daskprs._core.actions import EndSet
from daskprs._options.time_rules import NEVER
from daskprs._system.batch_system import SLURM, batch_end

if TYPE_CHECKING:
    from daskprs._options.run_options import RunOptions

GRACE_S = 5.0
"""Seconds between SIGTERM and the end: what fits into them is still done. The job has to be over
before the kill that follows SIGTERM: 10 s later in a container, with PBS and with LSF, 30 s later
with Slurm and Kubernetes. So half of the shortest time is left for the end itself."""
TERMINATED = "SIGTERM has asked it to end"


class KnownEnd:
    """Returns the end of a job when it is called; SIGTERM brings it near.

    The clock is that of the driver's loop.
    """

    def __init__(self, options: RunOptions) -> None:
        self._end = _planned(None if options.deadline is None else str(options.deadline))
        self._is_terminated = False

    def __call__(self) -> EndSet:
        """Return the end."""
        return self._end

    def hear_sigterm(self) -> bool:
        """Bring the end near; return False the second time: then the job ends at once."""
        if self._is_terminated:
            return False
        self._is_terminated = True
        at_s = time.monotonic() + GRACE_S
        if self._end.at_s is None or at_s < self._end.at_s:
            self._end = EndSet(at_s, TERMINATED)
        self._end = self._end._replace(by_signal=True)
        return True


def _planned(deadline: str | None) -> EndSet:
    """Return the deadline that the call names, or else the end of the batch job."""
    if deadline == NEVER:
        return EndSet(None)
    if deadline is not None:
        moment = datetime.fromisoformat(deadline)
        why = f"nothing more fits before its deadline, {moment:%Y-%m-%d %H:%M:%S}"
        # The same moment would be over for a resume.
        return _at(moment.timestamp(), why)._replace(again=(("deadline", None),))
    end = batch_end(os.environ, time.time())
    if end is None:
        return EndSet(None)
    return _at(end, f"nothing more fits before the end of its batch job, as {SLURM} has it")


def _at(moment: float, why: str) -> EndSet:
    return EndSet(time.monotonic() + moment - time.time(), why=why)
