"""The lines of a log that begin with a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs._report.log_stream import STAMP
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def stamped_lines(path: Path) -> Iterator[tuple[float, str]]:
    """Yield seconds since the epoch and the text behind them, for each line that has a time.

    Lines without one go on with an entry, such as a traceback, and are left out; so is the last
    line of a driver that was killed as it wrote it. A log that is not there has none.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        for line in file:
            found = STAMP.match(line)
            if found is None or not line.endswith(b"\n"):
                continue
            try:
                time_s = seconds_of(f"{found[1].decode()}.{found[2].decode()}")
            except ValueError:  # a script has written it
                continue
            yield time_s, line[found.end() :].decode(errors="replace").rstrip()


def seconds_of(stamp: str) -> float:
    """Return a time in UTC as seconds since the epoch."""
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
