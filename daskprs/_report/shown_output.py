"""The output of `run` on the screen while a job runs, line by line."""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.events import (
    AgentChanged,
    AttemptFailed,
    MiniBatchesDone,
    ProgressReported,
)
from daskprs._core.lease import AgentExited, AgentReady
from daskprs._core.outcomes import PRINTED_SOMEWHERE, UNKNOWN
from daskprs._report.evidence import NO_PROCESS
from daskprs._system.log_cap import read_part
from daskprs._system.standard_streams import without_escapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs._core.events import Event, Place, SlotState
    from daskprs._core.outcomes import Printed
    from daskprs._folders.job_folder import JobFolder

LOOK_EVERY_S = 1.0
FIRST_LINES = 2_000
"""Lines of a job that are shown however fast they come: what a short job prints is complete."""
LINES_A_LOOK = 40
LINES_IN_ALL = 5_000
LINE_CHARS = 500
READ_BYTES = 256 << 10
"""Bytes of one part of a log that are looked at for lines."""
PATIENCE_LOOKS = 4
"""Looks for which output waits until its mini-batch is known."""
REMIND_S = 10.0


class _Piece(NamedTuple):
    """A part of a log that one run has written."""

    mini_batch: int | None
    """Its number; None: import, `init`, or unknown."""
    first: int
    beyond: int


class _LogTail:
    """One log of a process: how far it was shown, and whose the rest is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running: tuple[int, int] | None = None
        """The mini-batch that runs now, and where its output begins."""
        self.is_unknown = False
        """Whether its process tells no parts: it runs several at a time, which mark their lines."""
        self._at = 0
        self._size = 0
        """The size of the log at the last look: its process has told since then what it runs."""
        self._waited = 0
        self._ended: deque[_Piece] = deque()
        self._known = 0
        """The end of the output of the last run that has ended, in bytes."""
        self.is_up = self.has_died = False
        """Whether the import and `init` of its process are over, and whether it was killed. Then
        the stacks of its threads stand behind its last run."""

    def end(self, index: int, first: int, beyond: int) -> None:
        """Record the part of a run that has ended; `postprocess` may hold up an earlier one."""
        insort(self._ended, _Piece(index, first, beyond), key=lambda piece: piece.first)
        self._known = max(self._known, beyond)

    def pieces(self, *, is_last: bool) -> Iterator[_Piece]:
        """Yield the new parts whose mini-batches are known, in order."""
        known, self._size = self._size, self._size_now()
        if is_last:
            known = self._size
        while self._ended and (is_last or self._ended[0].beyond <= self._size):
            piece = self._ended.popleft()
            if self._at < piece.first:
                yield self._until(None, piece.first)
            if self._at < piece.beyond:
                yield self._until(piece.mini_batch, piece.beyond)
        if self._at >= known or self._ended or (self.has_died and self.is_up):
            self._waited = 0
            return
        if self.running is not None and self._known <= self.running[1] <= self._at:
            yield from self._whole_lines(self.running[0], known, is_last=is_last)
            return
        self._waited += 1
        if is_last or self.is_unknown or self._waited > PATIENCE_LOOKS:
            yield from self._whole_lines(None, known, is_last=is_last)

    def _until(self, index: int | None, beyond: int) -> _Piece:
        piece = _Piece(index, self._at, beyond)
        self._at = beyond
        return piece

    def _whole_lines(self, index: int | None, known: int, *, is_last: bool) -> Iterator[_Piece]:
        """Yield the output of a run so far, without a line that it has not finished."""
        end = known if is_last else self._last_line_end(known)
        if end > self._at:
            yield self._until(index, end)

    def _last_line_end(self, known: int) -> int:
        first = max(self._at, known - READ_BYTES)
        body = self.read(first, known)
        newline = body.rfind(b"\n")
        if newline >= 0:
            return first + newline + 1
        return self._at if first == self._at else known  # a line of this length is cut anyway

    def read(self, first: int, beyond: int) -> bytes:
        """Return some bytes; none of a log that is gone."""
        try:
            return read_part(self.path, first, beyond)
        except OSError:
            return b""

    def _size_now(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


class ShownOutput:
    """Shows what the processes of a job print, each line with its mini-batch.

    The logs are read where the driver sees them: those of a node without the job folder are copied
    into it every second. After the first `FIRST_LINES`, at most `LINES_A_LOOK` lines a second are
    shown, and `LINES_IN_ALL` of a job; how much is left out is said.
    """

    def __init__(
        self,
        show: Callable[[list[str]], None],
        folder: JobFolder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._folder = folder
        self._clock = clock
        self._tails: dict[tuple[int, str], tuple[_LogTail, _LogTail]] = {}
        self._slots: tuple[SlotState, ...] = ()
        self._look_s = clock() + LOOK_EVERY_S
        self._remind_s = clock() + REMIND_S
        self._shown = 0
        self._first = -1
        """The process whose output comes first, another one in each look."""
        self._left_out = self._told = 0
        """Bytes that were left out, and those of them that were mentioned."""

    def tell(self, event: Event) -> None:
        """Take note of what ran and runs, and show the new lines about once a second."""
        match event:
            case MiniBatchesDone(place, _, outcomes):
                for index, printed in outcomes.columns("index", "printed"):
                    self._end(place, index, printed)
            case AttemptFailed(place, _, outcome):
                self._end(place, outcome.index, outcome.printed)
            case AgentChanged(place, change):
                has_died = isinstance(change, AgentExited) and not change.expected
                for tail in self._tails_of(place):
                    tail.is_up |= isinstance(change, AgentReady)
                    tail.has_died |= has_died
            case ProgressReported(slots=slots) if self._clock() >= self._look_s:
                self._look_s = self._clock() + LOOK_EVERY_S
                self._slots = slots
                self._look()

    def close(self) -> None:
        """Show the rest, and say how much was left out."""
        self._look(is_last=True)

    def _tails_of(self, place: Place) -> tuple[_LogTail, _LogTail]:
        node, process = place.node, place.process or NO_PROCESS
        if (node, process) not in self._tails:
            logs = self._folder.stdout(node, process), self._folder.stderr(node, process)
            self._tails[node, process] = (_LogTail(logs[0]), _LogTail(logs[1]))
        return self._tails[node, process]

    def _end(self, place: Place, index: int, printed: Printed | None) -> None:
        if printed is not None and printed != PRINTED_SOMEWHERE:
            for tail, (first, beyond) in zip(self._tails_of(place), printed, strict=True):
                tail.end(index, first, beyond)

    def _look(self, *, is_last: bool = False) -> None:
        for tails in self._tails.values():
            for tail in tails:  # a slot may tell of another one of its processes by now
                tail.running = None
        for slot in self._slots:
            for tail, first in zip(self._tails_of(slot.place), slot.printed, strict=True):
                tail.is_unknown = first == UNKNOWN
                if slot.index is not None and not tail.is_unknown:
                    tail.running = slot.index, first
        lines: list[str] = []
        self._first += 1
        logs = deque(self._tails.items())
        logs.rotate(-self._first)  # so that no process takes all the room for itself
        for (node, process), tails in logs:
            name = f"{process} on node {node}" if node else process
            for tail in tails:
                for piece in tail.pieces(is_last=is_last):
                    prefix = name if piece.mini_batch is None else f"mini-batch {piece.mini_batch}"
                    self._take(lines, prefix, tail, piece)
        self._remind(lines, is_last=is_last)
        if lines:
            self._show(lines)

    def _take(self, lines: list[str], prefix: str, tail: _LogTail, piece: _Piece) -> None:
        """Add the lines of a piece, as far as there is room for them."""
        room = max(LINES_A_LOOK - len(lines), FIRST_LINES - self._shown)
        room = min(room, LINES_IN_ALL - self._shown)
        size = piece.beyond - piece.first
        if room <= 0:
            self._left_out += size
            return
        body = tail.read(piece.first, piece.first + min(size, READ_BYTES))
        raw = body.removesuffix(b"\n").split(b"\n")[:room]
        self._left_out += max(0, size - sum(len(line) + 1 for line in raw))
        self._shown += len(raw)
        lines += [f"[{prefix}] {text}" for text in map(_cleaned, raw) if text]

    def _remind(self, lines: list[str], *, is_last: bool) -> None:
        """Say how much was left out, now and then."""
        new = self._left_out - self._told
        if new and (is_last or self._clock() >= self._remind_s):
            self._remind_s = self._clock() + REMIND_S
            self._told = self._left_out
            most = f", after {LINES_IN_ALL:,} lines" if self._shown >= LINES_IN_ALL else ""
            lines.append(
                f"… {new:,} bytes of output are left out here{most}: {self._folder.user_logs}"
            )


def _cleaned(line: bytes) -> str:
    """Return a line as it stands in the end: a progress bar writes over itself."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    text = without_escapes(text).rstrip()
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"
