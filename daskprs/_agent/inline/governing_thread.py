"""The governor of a job in the caller's process, beside the thread in which its script works."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING

from daskprs._core.governor import ENDLESS, Governor, Grant
from daskprs._core.rate_limit import NO_PERMITS

if TYPE_CHECKING:
    from daskprs._agent.supervision.permit_desk import PermitDesk
    from daskprs._core.governor import Report
    from daskprs._core.rate_limit import RateLimit

LOOK_EVERY_S = 0.02


class GoverningThread:
    """Gives the agent at a desk its permits, until it is closed."""

    def __init__(self, desk: PermitDesk, limit: RateLimit) -> None:
        self._desk = desk
        self._governor = Governor(limit)
        self._is_over = threading.Event()
        self._error = ""
        """The traceback of an error of ours; empty: there was none."""
        self._thread = threading.Thread(target=self._govern, name="daskprs-permits", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise `RuntimeError` after an error of ours."""
        if self._error:
            raise RuntimeError(NO_PERMITS.format("this process", self._error))

    def close(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._thread.join()

    def _govern(self) -> None:
        known: set[str] = set()
        while not self._is_over.wait(LOOK_EVERY_S):
            reports = self._desk.look()
            gone, known = known - reports.keys(), {*reports}
            self._desk.apply(self._grants(reports, gone))

    def _grants(self, reports: dict[str, Report], gone: set[str]) -> dict[str, Grant]:
        """Return what the agent gets: anything after an error of ours, which ends the job.

        A call that waits keeps the thread that drives the job, and would never give it back.
        """
        if not self._error:
            try:
                self._governor.lose(gone)
                return self._governor.handle(reports, time.monotonic())
            except Exception:  # noqa: BLE001 - the thread that drives the job raises it
                self._error = traceback.format_exc()
        return dict.fromkeys(reports, Grant(ENDLESS, ENDLESS, ENDLESS, 0.0))
