"""Log files that the driver appends to: buffered, and flushed about once a second."""

from __future__ import annotations

import csv
import io
import os
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from daskprs._core.events import JobEnded, ProgressReported
from daskprs._system.regular_files import append_regular, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from daskprs._core.events import Event

FLUSH_EVERY_S = 1.0
SHARE_OF_TIME = 0.05
"""Maximum share of time for flushes: with thousands of files a flush is slow, and less frequent."""
LONGEST_LINE_BYTES = 1 << 20


class LogFile:
    """A file that the driver appends to; the first write creates the file and its folder.

    A new file begins with the `header`. A file with another header, such as that of another
    version, is renamed.
    """

    def __init__(self, path: Path, header: str = "") -> None:
        self.path = path
        self._header = header
        self._pieces: list[str] = []
        self._opened = False
        self._given_up = False

    def write(self, text: str) -> None:
        """Append text, which is flushed within about a second."""
        if not self._given_up:
            self._pieces.append(text)

    def flush(self) -> None:
        """Write the buffered text to the file."""
        if not self._pieces:
            return
        pieces, self._pieces = self._pieces, []
        if not self._opened:
            pieces.insert(0, self._beginning())
            self._opened = True
        with append_regular(self.path) as file:
            file.writelines(pieces)

    def give_up(self) -> None:
        """Drop the buffered text and all later text."""
        self._given_up = True
        self._pieces.clear()

    def _beginning(self) -> str:
        """Return the header of a new file; in an old file, cut a line torn by a crash."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = self._header.encode()
        try:
            with os.fdopen(opened(self.path, os.O_RDWR), "rb+") as file:
                has_other = file.read(len(header)) != header
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LONGEST_LINE_BYTES))
                torn = file.read().rpartition(b"\n")[2]
                size = file.truncate(size - len(torn))
        except FileNotFoundError:
            return self._header
        if size and has_other:
            self._set_aside()
            size = 0
        return "" if size else self._header

    def _set_aside(self) -> None:
        names = (f"{self.path.stem}.{number}{self.path.suffix}" for number in count(1))
        places = map(self.path.with_name, names)
        self.path.rename(next(place for place in places if not place.exists()))


def table_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class LogWriter:
    """The base of listeners whose text `LogFiles` flushes, or that write only at an event."""

    def close(self) -> None:
        """Do nothing."""


class LogFiles:
    """All log files of a job: a listener that flushes them.

    When a flush fails (a full disk), the listener drops the buffered text, so that the driver's
    memory does not grow. It raises, and receives no further events.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: dict[Path, LogFile] = {}
        self._due_s = clock() + FLUSH_EVERY_S
        self._given_up = False

    def file(self, path: Path, header: str = "") -> LogFile:
        """Return the file of a path."""
        if path not in self._files:
            self._files[path] = LogFile(path, header)
            if self._given_up:
                self._files[path].give_up()
        return self._files[path]

    def tell(self, event: Event) -> None:
        """Flush the files when the flush is due."""
        match event:
            case ProgressReported() if self._clock() >= self._due_s:
                self.flush()
            case JobEnded():
                self.flush()

    def close(self) -> None:
        """Write the remaining text."""
        self.flush()

    def flush(self) -> None:
        """Write everything."""
        begun_s = self._clock()
        try:
            for file in self._files.values():
                file.flush()
        except OSError:
            self._give_up()
            raise
        now_s = self._clock()
        self._due_s = now_s + max(FLUSH_EVERY_S, (now_s - begun_s) / SHARE_OF_TIME)

    def _give_up(self) -> None:
        self._given_up = True
        for file in self._files.values():
            file.give_up()
