"""Outcomes on their way to the supervisor, sent in groups, and the memory that is kept for that."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from daskprs._agent.foreign.raised import EXIT_BROKEN, broken_text
from daskprs._agent.protocol.answers import MOST_CHARS, dumped
from daskprs._agent.protocol.messages import Noted, Outcomes
from daskprs._core.calls import OF_CALLS_S
from daskprs._core.columnar import ColumnBatch
from daskprs._core.outcomes import Failure, Results, Status
from daskprs._output.spool import UnwritableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.outcomes import Outcome
    from daskprs._output.spool import AgentSpool

FLUSH_AFTER_S = 0.5
"""Seconds that an outcome waits at most for others in its group, where a process makes one call of
`run` at a time."""
NO_MEMORY = (
    "there was no memory left to send what run() returned. Let the script keep less, use smaller "
    "mini-batches, or raise the limit of the process, such as ulimit -v."
)
FLUSH_BYTES = 4 << 20
"""Bytes of payload at which a group is sent at once."""
ROOM_BYTES = 16 << 20
"""Bytes of payload above which a process that makes several calls at a time begins no more."""
RESERVE_BYTES = 16 << 20
"""Suffices to send a group of outcomes. It is address space only: no page of it is touched."""
NOTE = b"MemoryError: this agent process has no memory left. daskprs ends it.\n"
EXIT_NO_MEMORY = 1


class MemoryReserve:
    """Releases memory to report a MemoryError, and ends an agent in which our own code fails.

    Without an end, a thread that dies leaves an agent that waits for ever. Our code fails if there
    is no memory left, or if the script has closed its descriptors or replaced functions of Python.
    The supervisor finds the reason in the page.
    """

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._held: bytes | None = None
        self.renew()

    def renew(self) -> None:
        """Take the memory again if it was released and there is enough of it."""
        if self._held is None:
            with suppress(MemoryError):
                self._held = bytes(RESERVE_BYTES)

    def release(self) -> None:
        """Give the memory to whatever comes next."""
        self._held = None

    def note(self, error: BaseException) -> int:
        """Say in the page why this agent ends, and return its exit code."""
        self._held = None
        if isinstance(error, MemoryError):
            self._page.lack_memory()
            return EXIT_NO_MEMORY
        self._page.break_down()
        return EXIT_BROKEN

    def end(self, error: BaseException) -> NoReturn:
        """End this process at once, with the reason in the page and in the log."""
        code = EXIT_BROKEN
        try:
            code = self.note(error)
            if code == EXIT_NO_MEMORY:
                os.write(2, NOTE)
            else:
                os.write(2, broken_text(error))
        finally:
            os._exit(code)


class Outbox:
    """Groups outcomes; a thread sends a group whose first one has waited long enough.

    Without the thread, finished outcomes would wait while `run` works on the next mini-batch for
    a minute. Where several calls are made at a time, it sends all groups: the others would wait for
    the one that sends, while the supervisor is between two leases.
    """

    def __init__(
        self,
        connection: Connection,
        reserve: MemoryReserve,
        spool: AgentSpool | None = None,
        *,
        of_calls: bool = False,
    ) -> None:
        self._of_calls = of_calls
        self._flush_after_s = OF_CALLS_S if of_calls else FLUSH_AFTER_S
        self._connection = connection
        self._reserve = reserve
        self._spool = spool
        self._lock = threading.Condition()
        """Held while the group is looked at …"""
        self._sending = threading.Lock()
        """… and while one is sent: groups are sent in their order."""
        self._lease_id = 0
        self._outcomes: list[tuple[Outcome, bytes]] = []
        """Each with its payload."""
        self._payload_bytes = 0
        self._aside = False
        """Whether the group's rows are in the spool rather than in its payload."""
        self._unwritten = ""
        """The error of writing to the spool, which ends the job; empty without one."""
        self._halted: str | None = None
        """The `halted` of the message with the group's last outcome; None: the agent goes on."""
        self._is_due = False
        """Whether the thread is to send the group now."""
        self._groups = 0
        self._thread: threading.Thread | None = None

    def open(self, lease_id: int) -> None:
        """Take outcomes of this lease from now on."""
        with self._lock:
            self._lease_id = lease_id

    def add(self, outcome: Outcome, payload: bytes, halted: str | None = None) -> None:
        """Put one more outcome with its bytes into the group; send it at once with a halt."""
        if (payload and self._aside) or (self._payload_bytes and _is_aside(outcome)):
            self.flush()
        with self._lock:
            first = not self._outcomes
            self._aside |= _is_aside(outcome)
            self._outcomes.append((outcome, payload))
            self._payload_bytes += len(payload)
            at_once = self._payload_bytes >= FLUSH_BYTES or self._unwritten or halted is not None
            self._halted = halted
            waits = not first or self._wake_the_thread()
        if at_once or not waits:
            self.flush()

    def refuse(self, error: OSError) -> None:
        """Take no more rows: those of the next outcome could not be written."""
        self.flush()
        self._unwritten = str(error)

    def note(self, text: str) -> None:
        """Send something for people."""
        with self._sending:
            self._connection.send_bytes(dumped(Noted(text[:MOST_CHARS])))

    def flush(self) -> None:
        """Send the group now, or let the thread do so."""
        if self._of_calls and self._thread is not None:
            with self._lock:
                self._is_due = bool(self._outcomes)
                self._lock.notify_all()
        else:
            self._send()

    @property
    def has_room(self) -> bool:
        """Whether the group is not too large for more."""
        return self._payload_bytes <= ROOM_BYTES

    def wait_for_room(self) -> None:
        """Wait until a group that is too large is on its way."""
        with self._lock:
            self._lock.wait_for(lambda: self.has_room)

    def start(self) -> None:
        """Start the thread; where the system refuses threads, each outcome is sent at once.

        This comes before the script, as with the thread of the loader.
        """
        thread = threading.Thread(target=self._flush_late, name="outbox", daemon=True)
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _wake_the_thread(self) -> bool:
        """Let the thread send the group later; False where there is none."""
        self._lock.notify_all()
        return self._thread is not None

    def _flush_late(self) -> None:
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(lambda: self._outcomes)
                    gone = partial(self._gone, self._groups)
                    is_gone = self._lock.wait_for(gone, self._flush_after_s) and not self._is_due
                if not is_gone:
                    self._send()
        except BaseException as error:  # noqa: BLE001 - without an end, the agent would wait
            self._reserve.end(error)

    def _gone(self, group: int) -> bool:
        return self._groups != group or self._is_due

    def _send(self) -> None:
        """Send the group, once its rows are in the spool."""
        with self._sending:
            with self._lock:
                group, self._outcomes = self._outcomes, []
                halted, self._payload_bytes = self._halted, 0
                self._aside = self._is_due = False
                self._groups += 1
                self._lock.notify_all()
            if not group:
                return
            try:
                if self._spool is not None:
                    self._spool.flush()
            except UnwritableError as error:
                self._unwritten = self._unwritten or str(error)
            try:
                self._send_group(group, halted)
            except MemoryError:
                self._reserve.release()
                self._send_one_by_one(group, halted)

    def _send_group(self, group: Sequence[tuple[Outcome, bytes]], halted: str | None) -> None:
        rows = b"".join(payload for _, payload in group)
        name = "" if self._spool is None or rows else self._spool.name
        results = Results(ColumnBatch(outcome for outcome, _ in group), rows, name, self._unwritten)
        self._connection.send_bytes(dumped(Outcomes(self._lease_id, results, halted)))

    def _send_one_by_one(self, group: Sequence[tuple[Outcome, bytes]], halted: str | None) -> None:
        """Send each outcome by itself; report it as failed if memory does not suffice."""
        for position, (outcome, payload) in enumerate(group, start=1):
            last = halted if position == len(group) else None
            try:
                self._send_group([(outcome, payload)], last)
            except MemoryError:
                self._send_group([(_without_memory(outcome), b"")], last)


def _without_memory(outcome: Outcome) -> Outcome:
    """Return an outcome whose rows cannot be sent, as a failed attempt."""
    return outcome._replace(
        status=Status.RUN_EXCEPTION,
        succeeded=0,
        text=None,
        typed=None,
        header=None,
        failure=Failure("MemoryError", NO_MEMORY),
    )


def _is_aside(outcome: Outcome) -> bool:
    text, typed = outcome.text, outcome.typed
    return (text is not None and text.offset is not None) or (
        typed is not None and typed.offset is not None
    )
