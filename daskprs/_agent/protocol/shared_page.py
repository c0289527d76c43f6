"""The shared page: what an agent is doing, readable without asking it.

One page of memory that the agent writes and its supervisor reads, so that a mini-batch costs no
message. The supervisor looks at it when a deadline nears and when the agent has died; it works
while the script holds the GIL.

*Consistency.* Phase, position, time and total belong together. There are two records of them: the
agent writes the one that does not count, and then makes it the one that does by raising a number
that is odd for the one and even for the other. A reader that finds the number changed looks again.
Wherever the agent is stopped, or dies, the record that counts is whole: were it torn, a phase with
the time of another one would look as if it had lasted for hours.

*Calls.* An agent that calls `run` for several mini-batches at the same time has such a pair of
records for each call; its main thread only listens then. A reader gets the one that is most urgent,
with the positions of the others.

*Recall.* The supervisor takes back the mini-batches that the agent has not begun. The agent
claims a position by writing it to `NEXT` and only then looks at `RECALLS`; the supervisor raises
`RECALLS` and only then looks at `NEXT`. With a fence between the two steps on both sides at least
one of them sees the other: either the supervisor finds the position claimed, or the agent finds
more recalls than answers, and waits for a `TruncateLease` with its last position. Recalls are
counted, so that an order from which work was taken back may be given more.

*Permits.* Sums, each of which only one side writes: what the agent was granted, and what it has
taken, ended and wants. The supervisor takes back what is not taken in the same way: it lowers the
sum and then looks at what is taken; the agent takes and then looks at the sum.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from enum import IntEnum
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._core.spending import Amounts

from daskprs._core.calls import MOST_AT_ONCE

PAGE_BYTES = 32 * mmap.PAGESIZE
"""What is not used of it takes no memory."""
_CELL_BYTES = 8
NOTHING, SOMEBODY = -1, -2
"""The values for no position, and for an unknown one."""

_SEQUENCE, _LEASE, _NEXT, _LOADING, _DONE, _RECALLS, _LACKS_MEMORY, _CHILDREN = range(8)
_RECORDS = (8, 16)
"""The word at which each of the two records begins."""
_PHASE, _POSITION, _SINCE_NS, _TOTAL = range(4)
_PRINTED = (20, 21)
"""The ends of stdout and stderr at the end of the last attempt."""
_MASKING = (22, 23)
"""Whether something of stdout and of stderr was read from a pipe, and is not in the log yet."""
_HELD = (25, 26)
"""The bytes that a masked log holds back, since they may be the beginning of a secret."""
_ENDED_BEFORE = 24
"""The highest memory of a sub-process that had ended before the last measurement began."""
_IS_BROKEN = 30
_RANGE = 27
"""The piece of the mini-batch that `run` has."""
_BLOCKING, _BEAT_NS = 28, 29
"""The position of the coroutine that keeps the loop from the others, and when the agent last showed
that its threads can run; 0: it has not begun to."""
_CALLS = 32
"""The word at which the records of the calls begin."""
_CALL_WORDS = 12
"""Those of a call: a number as in `_SEQUENCE`, the piece, and two records."""
_CALL_RECORDS = (2, 7)
_EXCUSED_NS = 6
"""When another call last ceased to keep the loop from this one."""
_WAITS = 11
"""Whether the script has done its part of it, and another call has the turn."""
_COUNTED = 13_000
"""Number of the amounts that the script counts, and the word behind which they stand: each has its
sum, the bytes of its name, and that name."""
NAME_BYTES, MOST_COUNTED = 64, 32
"""The longest name of an amount, and the most amounts of a process."""
_AMOUNT_WORDS = 2 + NAME_BYTES // _CELL_BYTES
_DOUBLE, _INTEGER = struct.Struct("d"), struct.Struct("q")
_PERMITS = _CALLS + _CALL_WORDS * MOST_AT_ONCE
"""The word at which those about permits begin: first what the supervisor writes."""
_GRANTED, _TOKENS_GRANTED, _MOST_IN_FLIGHT, _PAUSED_NS = range(_PERMITS, _PERMITS + 4)
_OF_AGENT = _PERMITS + 4
"""… and then what the agent writes, in the order of `PermitSums`."""
MUTE_AFTER_S = 5.0
"""Seconds without a beat after which no thread of an agent can run."""
_LOOKS = 1000
"""Most tries to read one whole record. An agent that overwrites each of them is not late."""


class Phase(IntEnum):
    """The activity of the agent's main thread."""

    STARTING = 0
    INIT = 1
    IDLE = 2
    LOADING = 3
    RUNNING = 4
    SHUTDOWN = 5
    RETURNING = 6
    """`run` is over; what it made is formatted, and waits to be sent: the supervisor may be between
    two leases."""
    CANCELING = 7
    """`run` has exceeded its timeout, and its coroutine was told so."""
    WAITING = 8
    """`run` waits for a permit, or for the end of a pause; no timeout counts this."""


_PHASES = {int(phase): phase for phase in Phase}
_URGENCY = dict.fromkeys(Phase, 0) | {Phase.WAITING: -1, Phase.RUNNING: 1, Phase.CANCELING: 2}
"""Which of several calls is looked at: a higher one first, and the oldest of them."""


class Activity(NamedTuple):
    """A consistent look at the page."""

    phase: Phase
    position: int
    """Position of the mini-batch being loaded or run; -1 for none."""
    since_ns: int
    """`time.monotonic_ns` at the start of the phase."""
    lease_id: int
    loading: int
    """Position of the mini-batch being loaded ahead; -1 for none."""
    done: int
    """Number of finished mini-batches of the lease."""
    total: int
    """Items of the running mini-batch."""
    piece: int = 0
    """Position of the piece of the mini-batch that `run` has."""
    beside: tuple[int, ...] = ()
    """Positions of the other calls under way."""
    is_mute: bool = False
    """Whether none of the agent's threads can run, since a call keeps the GIL; or its loop cannot,
    and it is unknown which call keeps that."""

    def age_s(self) -> float:
        """Return the seconds since the start of the phase."""
        return (time.monotonic_ns() - self.since_ns) / 1e9


class PermitSums(NamedTuple):
    """What an agent says of its permits; sums, but for what waits and the pause."""

    taken: int = 0
    tokens_taken: int = 0
    ended: int = 0
    throttled: int = 0
    waiting: int = 0
    tokens_wanted: int = 0
    tokens_wanted_first: int = 0
    paused_ns: int = 0
    """Until when the agent wants all to pause, as of `time.monotonic_ns`."""


class SharedPage:
    """One mapping of the page, in the agent or in its supervisor."""

    calls = 0
    """Number of calls that the agent may make at a time; 0: it makes them in its main thread."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, PAGE_BYTES)
        self._cells = memoryview(self._map).cast("q")
        self._barrier = threading.Lock()

    def close(self) -> None:
        """Unmap the page."""
        self._cells.release()
        self._map.close()

    # ---- the agent's side ----

    def enter(
        self, phase: Phase, position: int = NOTHING, total: int = 0, since_ns: int | None = None
    ) -> None:
        """Note the activity that the main thread turns to now, or has turned to before."""
        since_ns = time.monotonic_ns() if since_ns is None else since_ns
        self._write(_SEQUENCE, _RECORDS, (phase, position, since_ns, total))

    def turn_to(self, piece: int) -> None:
        """Note the piece of the mini-batch that `run` gets next; 0 for a whole one."""
        self._cells[_RANGE] = piece

    def begin_lease(self, lease_id: int) -> None:
        """Start on a lease: nothing of it is claimed or done."""
        cells = self._cells
        cells[_NEXT] = NOTHING
        cells[_DONE] = 0
        cells[_LOADING] = NOTHING
        self._fence()
        cells[_LEASE] = lease_id

    def claim(self, position: int, keeps: int) -> bool:
        """Claim a position; return False during a recall that the supervisor has not answered.

        `keeps` is how many recalls have been answered by a `TruncateLease`.
        """
        cells = self._cells
        cells[_NEXT] = position
        self._fence()
        return cells[_RECALLS] == keeps

    def loading(self, position: int) -> None:
        """Say which position is being loaded ahead (`NOTHING`: none any more)."""
        self._cells[_LOADING] = position

    def done(self, count: int) -> None:
        """Say how many of the lease have finished."""
        self._cells[_DONE] = count

    def lack_memory(self) -> None:
        """Say that the agent ends for want of memory."""
        self._cells[_LACKS_MEMORY] = 1

    def break_down(self) -> None:
        """Say that the agent ends since our own code in it has failed."""
        self._cells[_IS_BROKEN] = 1

    def is_masking(self, stream: int) -> bool:
        """Say whether a masked log, the first or the second, lacks what was read for it."""
        self._fence()
        return bool(self._cells[_MASKING[stream]])

    def held_bytes(self, stream: int) -> int:
        """Return how many bytes a masked log is to get of what was read for it."""
        return self._cells[_HELD[stream]]

    def mark_printed(self, stdout: int, stderr: int) -> None:
        """Say where the output of the next attempt begins."""
        for cell, end in zip(_PRINTED, (stdout, stderr), strict=True):
            self._cells[cell] = end

    def mark_ended_before(self, peak_bytes: int) -> None:
        """Say which memory sub-processes had that ended before this mini-batch."""
        self._cells[_ENDED_BEFORE] = peak_bytes

    def taken_children_bytes(self) -> int:
        """Return the highest `show_children` since the last call."""
        highest, self._cells[_CHILDREN] = self._cells[_CHILDREN], 0
        return highest

    def call(self, number: int) -> CallRecord:
        """Return the record of one of several calls at the same time."""
        return CallRecord(self, number)

    def show_counted(self, sums: Mapping[str, float]) -> None:
        """Show the sums of what the script counts; a name keeps its place, and is never gone."""
        cells = self._cells
        for number, (name, amount) in enumerate(sums.items()):
            first = _COUNTED + 1 + number * _AMOUNT_WORDS
            if number >= cells[_COUNTED]:
                body = name.encode(errors="replace")
                padded = body.ljust(NAME_BYTES, b"\0")
                cells[first + 1] = len(body)
                for word, (value,) in enumerate(_INTEGER.iter_unpack(padded)):
                    cells[first + 2 + word] = value
            (cells[first],) = _INTEGER.unpack(_DOUBLE.pack(amount))
            if number >= cells[_COUNTED]:
                self._fence()
                cells[_COUNTED] = number + 1

    def beat(self, blocking: int = NOTHING) -> None:
        """Show that the threads of the agent can run, and which coroutine keeps its loop."""
        self._cells[_BLOCKING] = blocking
        self._cells[_BEAT_NS] = time.monotonic_ns()

    def rest(self) -> None:
        """Say that no call is under way."""
        self._cells[_BLOCKING] = NOTHING
        self._cells[_BEAT_NS] = 0

    def tell_permits(self, sums: PermitSums) -> None:
        """Say what the agent has done with its permits, before it looks at `granted`."""
        for place, value in enumerate(sums, _OF_AGENT):
            self._cells[place] = value
        self._fence()

    def granted(self) -> tuple[int, int, int, int]:
        """Return permits and tokens that were granted, how many may be in flight, and a pause."""
        granted, tokens, most, paused_ns = self._cells[_GRANTED : _PAUSED_NS + 1]
        return granted, tokens, most, paused_ns

    # ---- the supervisor's side ----

    def counted(self) -> Amounts:
        """Return the sums of what the script counts; the script can write here, too."""
        cells, found = self._cells, []
        for number in range(min(MOST_COUNTED, max(0, cells[_COUNTED]))):
            first = _COUNTED + 1 + number * _AMOUNT_WORDS
            words = cells[first + 2 : first + _AMOUNT_WORDS].tobytes()
            name = words[: max(0, cells[first + 1])].decode(errors="replace")
            (amount,) = _DOUBLE.unpack(_INTEGER.pack(cells[first]))
            if name and isfinite(amount) and amount >= 0:
                found.append((name, amount))
        return tuple(found)

    def grant(
        self, granted: int, tokens: int, most_in_flight: int, paused_ns: int
    ) -> tuple[int, int]:
        """Grant permits; return how many there are: what was taken cannot be taken back."""
        cells, given = self._cells, [granted, tokens]
        cells[_MOST_IN_FLIGHT], cells[_PAUSED_NS] = most_in_flight, paused_ns
        cells[_GRANTED], cells[_TOKENS_GRANTED] = granted, tokens
        self._fence()
        for number, place in enumerate((_GRANTED, _TOKENS_GRANTED)):
            given[number] = cells[place] = max(given[number], cells[_OF_AGENT + number])
        return given[0], given[1]

    def permits(self) -> PermitSums:
        """Return what the agent has done with its permits."""
        self._fence()
        return PermitSums(*self._cells[_OF_AGENT : _OF_AGENT + len(PermitSums._fields)])

    def ended_before_bytes(self) -> int:
        """Return the highest memory of sub-processes that ended before the last mini-batch."""
        return self._cells[_ENDED_BEFORE]

    def show_children(self, peak_bytes: int) -> None:
        """Show the agent the memory of its sub-processes: some end before it could look."""
        self._cells[_CHILDREN] = max(self._cells[_CHILDREN], peak_bytes)

    def masks(self, stream: int, *, busy: bool, held_bytes: int) -> None:
        """Say that something is read for a masked log, or that what was read is in it.

        `held_bytes` of it come later.
        """
        self._cells[_HELD[stream]] = held_bytes
        self._cells[_MASKING[stream]] = busy
        self._fence()

    def printed(self) -> tuple[int, int]:
        """Return where the output of the last attempt begins in stdout and in stderr."""
        stdout, stderr = _PRINTED
        return self._cells[stdout], self._cells[stderr]

    def lacked_memory(self) -> bool:
        """Return whether the agent has ended for want of memory."""
        return bool(self._cells[_LACKS_MEMORY])

    def broke_down(self) -> bool:
        """Return whether the agent has ended since our own code in it has failed."""
        return bool(self._cells[_IS_BROKEN])

    def recall(self, lease_id: int) -> int:
        """Take back the mini-batches not begun of a lease; return the last position begun.

        The agent claims nothing more until it has received a `TruncateLease` for each recall.
        """
        self._cells[_RECALLS] += 1
        self._fence()
        return self.claimed(lease_id)

    def claimed(self, lease_id: int) -> int:
        """Return the last position of a lease that is begun."""
        if self._cells[_LEASE] != lease_id:
            # The lease has not been picked up yet: nothing of it is begun, and the agent will see
            # a recall at its first claim.
            return NOTHING
        return self._cells[_NEXT]

    def look(self) -> Activity:
        """Return the activity of the agent: that of the most urgent of several calls."""
        activity = self._look(_SEQUENCE, _RECORDS, _RANGE)
        if not self.calls or activity.phase is not Phase.IDLE:
            return activity
        calls = self._under_way()
        if not calls:
            return activity
        blocking, beat_ns = self._cells[_BLOCKING], self._cells[_BEAT_NS]
        # The others wait for the one that blocks the loop, however old they are.
        first = min(
            calls, key=lambda one: (one.position != blocking, -_URGENCY[one.phase], one.since_ns)
        )
        beside = tuple(call.position for call in calls if call is not first)
        age_s = (time.monotonic_ns() - beat_ns) / 1e9 if beat_ns else 0.0
        is_mute = blocking == SOMEBODY or age_s > MUTE_AFTER_S
        return first._replace(beside=beside, is_mute=is_mute)

    def beside(self, first: Activity) -> list[Activity]:
        """Return what the other calls do; nothing where they wait for one that blocks the loop."""
        if first.is_mute or self._cells[_BLOCKING] == first.position:
            return []
        return [call for call in self._under_way() if call.position in first.beside]

    def _under_way(self) -> list[Activity]:
        calls = map(self._call, range(self.calls))
        return [call for call in calls if call.position >= 0]

    def _call(self, number: int) -> Activity:
        first = _CALLS + number * _CALL_WORDS
        records = (first + _CALL_RECORDS[0], first + _CALL_RECORDS[1])
        activity = self._look(first, records, first + 1)
        if self._cells[first + _WAITS]:
            return activity._replace(phase=Phase.RETURNING, since_ns=time.monotonic_ns())
        excused_ns = self._cells[first + _EXCUSED_NS]
        return activity._replace(since_ns=max(activity.since_ns, excused_ns))

    def _look(self, number: int, records: tuple[int, int], piece: int) -> Activity:
        """Return a whole record: the one of two that counts by a number."""
        for _ in range(_LOOKS):
            sequence = self._cells[number]
            self._fence()
            activity = self._read(records[sequence % 2], piece)
            self._fence()
            if sequence == self._cells[number]:
                return activity
        return activity._replace(since_ns=time.monotonic_ns())

    def _read(self, record: int, piece: int) -> Activity:
        cells = self._cells
        return Activity(
            _PHASES.get(cells[record + _PHASE], Phase.IDLE),  # the script can write here, too
            cells[record + _POSITION],
            cells[record + _SINCE_NS],
            cells[_LEASE],
            cells[_LOADING],
            cells[_DONE],
            cells[record + _TOTAL],
            cells[piece],
        )

    def _write(self, number: int, records: tuple[int, int], values: tuple[int, ...]) -> None:
        """Write the one of two records that does not count, and make it the one that does."""
        cells = self._cells
        sequence = cells[number] + 1
        record = records[sequence % 2]
        for place, value in enumerate(values):
            cells[record + place] = value
        self._fence()
        cells[number] = sequence
        self._fence()

    def _fence(self) -> None:
        # Taking a lock is an atomic read-modify-write, so a full memory barrier; Python has no
        # other name for one.
        with self._barrier:
            pass


class CallRecord:
    """The record of one of several calls at the same time, as the agent writes it."""

    def __init__(self, page: SharedPage, number: int) -> None:
        self._page = page
        self._first = first = _CALLS + number * _CALL_WORDS
        self._records = (first + _CALL_RECORDS[0], first + _CALL_RECORDS[1])
        self.rest()

    def enter(
        self, phase: Phase, position: int = NOTHING, total: int = 0, since_ns: int | None = None
    ) -> None:
        """Note the activity that the call turns to now, or has turned to before."""
        values = (phase, position, time.monotonic_ns() if since_ns is None else since_ns, total)
        self._page._write(self._first, self._records, values)  # noqa: SLF001 - a part of the page

    def turn_to(self, piece: int) -> None:
        """Note the piece of the mini-batch that `run` gets next; 0 for a whole one."""
        self._page._cells[self._first + 1] = piece  # noqa: SLF001 - likewise

    def excuse(self) -> None:
        """Begin its time anew: another call has kept it waiting."""
        self._page._cells[self._first + _EXCUSED_NS] = time.monotonic_ns()  # noqa: SLF001 - likewise

    def wait(self, *, waits: bool) -> None:
        """Note whether it waits for others of its process. Meanwhile it is not late."""
        self._page._cells[self._first + _WAITS] = waits  # noqa: SLF001 - likewise

    def rest(self) -> None:
        """Note that there is no call."""
        self.enter(Phase.IDLE)


def new_page() -> int:
    """Return the descriptor of a fresh page: an agent that starts, no lease, no recall."""
    fd = os.memfd_create("daskprs-agent")
    os.ftruncate(fd, PAGE_BYTES)
    # With time 0, a reader would see a phase that began at boot, and take the agent for dead.
    now = time.monotonic_ns().to_bytes(_CELL_BYTES, sys.byteorder)
    os.pwrite(fd, now, (_RECORDS[0] + _SINCE_NS) * _CELL_BYTES)
    return fd
