"""Points in time as logs write them, made quickly: there are many within the same second."""

from __future__ import annotations

from datetime import UTC, datetime

MILLISECONDS = tuple(f".{number:03d}" for number in range(1000))


class Stamps:
    """Writes seconds since the epoch as UTC, with milliseconds.

    Parameters
    ----------
    form
        How `strftime` writes the seconds.
    zone
        What follows the milliseconds.

    """

    def __init__(self, form: str = "%Y-%m-%d %H:%M:%S", zone: str = "") -> None:
        self._form = form
        self._zone = zone
        self._second = -1
        self._text = ""

    def at(self, seconds: float) -> str:
        """Return the text of a point in time."""
        second = int(seconds)
        if second != self._second:
            self._text = f"{datetime.fromtimestamp(second, UTC):{self._form}}"
            self._second = second
        return self._text + MILLISECONDS[int((seconds - second) * 1000)] + self._zone
