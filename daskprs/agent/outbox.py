"""Outcomes on their way to the supervisor, sent in groups."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from daskprs.agent.messages import Outcomes
from daskprs.core.lease import Results
from daskprs.core.packed import Packed
from daskprs.output.own_spool import UnwritableError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from daskprs.core.outcomes import Outcome
    from daskprs.output.own_spool import OwnSpool

FLUSH_AFTER_S = 0.5
"""An outcome waits this long at most for others to travel with."""
FLUSH_BYTES = 4 << 20
"""A group with so much payload goes at once."""


class Outbox:
    """Groups outcomes; a thread sends a group whose first one has waited long enough.

    The thread is there for the mini-batch after: while `run` works for a minute on one, what was
    finished before it must not wait.
    """

    def __init__(self, connection: Connection, spool: OwnSpool | None = None) -> None:
        self._connection = connection
        self._spool = spool
        self._lock = threading.Condition()
        self._lease_id = 0
        self._outcomes: list[Outcome] = []
        self._payload: list[bytes] = []
        self._payload_bytes = 0
        self._aside = False
        """Rows of a group are in the spool, or travel with it."""
        self._unwritten = ""
        """Why rows cannot be put into the spool: it is the end of the job."""
        self._groups = 0
        """How many groups were sent."""
        self._thread: threading.Thread | None = None

    def open(self, lease_id: int) -> None:
        """Take outcomes of this lease from now on."""
        with self._lock:
            self._lease_id = lease_id

    def add(self, outcome: Outcome, payload: bytes) -> None:
        """Put one more outcome with its bytes into the group."""
        with self._lock:
            if (payload and self._aside) or (self._payload and _is_aside(outcome)):
                self._send()
            first = not self._outcomes
            self._aside |= _is_aside(outcome)
            self._outcomes.append(outcome)
            if payload:
                self._payload.append(payload)
                self._payload_bytes += len(payload)
            at_once = self._payload_bytes >= FLUSH_BYTES or self._unwritten
            if at_once or (first and not self._wake_the_thread()):
                self._send()

    def refuse(self, error: OSError) -> None:
        """Take no more rows: those of the next outcome could not be written."""
        self.flush()
        self._unwritten = str(error)

    def flush(self) -> None:
        """Send what there is: no more work is known."""
        with self._lock:
            if self._outcomes:
                self._send()

    def _wake_the_thread(self) -> bool:
        """Let the thread send the group later; False where the system refuses a thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._flush_late, name="outbox", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self._lock.notify()
        return True

    def _flush_late(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._outcomes)
                group = self._groups
                if not self._lock.wait_for(partial(self._gone, group), FLUSH_AFTER_S):
                    self._send()

    def _gone(self, group: int) -> bool:
        return self._groups != group

    def _send(self) -> None:
        """Send what there is, once its rows are in the spool."""
        try:
            if self._spool is not None:
                self._spool.flush()
        except UnwritableError as error:
            self._unwritten = self._unwritten or str(error)
        rows = b"".join(self._payload)
        name = "" if self._spool is None or rows else self._spool.name
        results = Results(Packed(self._outcomes), rows, name, self._unwritten)
        self._outcomes.clear()
        self._payload.clear()
        self._payload_bytes = 0
        self._aside = False
        self._groups += 1
        self._connection.send(Outcomes(self._lease_id, results))


def _is_aside(outcome: Outcome) -> bool:
    text, typed = outcome.text, outcome.typed
    return (text is not None and text.offset is not None) or (
        typed is not None and typed.offset is not None
    )
