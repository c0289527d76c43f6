"""Retention: the ended jobs that the service keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_S = 24 * 60 * 60


class Retention(NamedTuple):
    """Keeps the last `jobs` that ended, if they did so in the last `days`; None sets no limit."""

    days: int | None = None
    jobs: int | None = None

    def surplus(self, ended_s: Mapping[str, float], now_s: float) -> list[str]:
        """Return the names of the ended jobs to remove, the oldest first."""
        oldest_first = sorted(ended_s, key=lambda name: ended_s[name])
        too_many = 0 if self.jobs is None else max(0, len(ended_s) - self.jobs)
        too_old_s = float("-inf") if self.days is None else now_s - self.days * DAY_S
        return [
            name
            for place, name in enumerate(oldest_first)
            if place < too_many or ended_s[name] < too_old_s
        ]
