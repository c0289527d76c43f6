"""The governor of a job in the caller's process, beside the thread in which its script works."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from daskprs._core.governor import Governor

if TYPE_CHECKING:
    from daskprs._agent.supervision.permit_desk import PermitDesk
    from daskprs._core.rate_limit import RateLimit

LOOK_EVERY_S = 0.02


class GoverningThread:
    """Gives the agent at a desk its permits, until it is closed."""

    def __init__(self, desk: PermitDesk, limit: RateLimit) -> None:
        self._desk = desk
        self._governor = Governor(limit)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._govern, name="daskprs-permits", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._thread.join()

    def _govern(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            reports, gone = self._desk.look()
            self._governor.lose(gone)
            self._desk.apply(self._governor.handle(reports, time.monotonic()), gone)
