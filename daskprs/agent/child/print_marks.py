"""The parts of the logs of its process that each attempt writes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from daskprs.core.outcomes import PRINTED_SOMEWHERE, UNKNOWN, Printed

if TYPE_CHECKING:
    from daskprs.agent.protocol.shared_page import SharedPage

STDOUT, STDERR = 1, 2


class PrintMarks:
    """Marks the ends of stdout and stderr, attempt by attempt, in a microsecond.

    The page has the last marks: they are the beginning of what a process that was killed has
    written in its last attempt.
    """

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._streams = sys.stdout, sys.stderr  # a script may put others in their place
        self._marks = (0, 0)

    def move(self) -> Printed | None:
        """Move the marks to the ends, and return what lies between; None if nothing does.

        The ends of a pipe, and of what a script has put in the place of its logs, are unknown.
        """
        before = self._marks
        try:
            for stream in self._streams:
                stream.flush()
            self._marks = self._ends()
        except (OSError, ValueError):
            self._page.mark_printed(UNKNOWN, UNKNOWN)
            return PRINTED_SOMEWHERE
        if self._marks == before:
            return None
        self._page.mark_printed(*self._marks)
        return Printed(*zip(before, self._marks, strict=True))

    def _ends(self) -> tuple[int, int]:
        return os.lseek(STDOUT, 0, os.SEEK_END), os.lseek(STDERR, 0, os.SEEK_END)
