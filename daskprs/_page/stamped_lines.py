"""The lines of a log that begin with a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs._report.log_stream import TimedLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def stamped_lines(path: Path) -> Iterator[tuple[float, str]]:
    """Yield seconds since the epoch and the text behind them, for each line that has a time.

    Lines without one go on with an entry, such as a traceback, and are left out; so is the last
    line of a driver that was killed as it wrote it. A log that is not there has none.
    """
    for entry in TimedLog(path, "", "").new(is_last=False):
        try:
            time_s = seconds_of(entry.time)
        except ValueError:  # the line has no time, or a script has written it
            continue
        yield time_s, entry.text.partition("\n")[0].rstrip()


def seconds_of(stamp: str) -> float:
    """Return a time in UTC as seconds since the epoch."""
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
