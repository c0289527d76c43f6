"""The supervisor's messages to an agent, received between two `run`s and while one works.

While `run` works for a second, the agent can only load ahead if it receives the next mini-batch
in that second. So if loading ahead pays and no mini-batch is known, the loader's thread listens
while `run` works. It claims the next mini-batch and loads it. A script that holds the GIL only
delays this thread; the main thread then receives the message later.

Only one of the two threads listens at a time. `look_ahead` hands the connection to the loader's
thread, and `listen_again` takes it back. In between, the main thread does not touch order and
connection.
"""

from __future__ import annotations

import os
import select
from functools import partial
from typing import TYPE_CHECKING, Any

from daskprs.agent.child.work_queue import Order
from daskprs.agent.protocol.messages import ExtendLease, RunLease, Stop, TruncateLease

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from daskprs.agent.child.loader import Loader
    from daskprs.agent.child.outbox import Outbox
    from daskprs.agent.protocol.shared_page import SharedPage
    from daskprs.core.mini_batch import Assigned, MiniBatch

LOOK_EVERY_MS = 1000
"""Milliseconds between polls. A connection that a script closes stays open while a thread waits
on it, and the supervisor would not notice that its agent is lost."""
NO_ORDER = 0
"""Order number before the first order; supervisors count from 1."""


class Intake:
    """Receives the supervisor's messages, and returns the mini-batches to work on.

    Parameters
    ----------
    connection, page
        The socket and the page shared with the supervisor.
    loader
        Loads ahead.
    outbox
        Receives the number of each new order, and is flushed where more work is wanted.

    """

    def __init__(
        self, connection: Connection, page: SharedPage, loader: Loader, outbox: Outbox
    ) -> None:
        self.stopped = False
        """Whether the supervisor has sent `Stop`."""
        self._connection = connection
        self._page = page
        self._loader = loader
        self._outbox = outbox
        self._order = Order(NO_ORDER, prefetch=False)
        self._keeps = 0
        """Number of answered recalls."""
        self._hush = os.eventfd(0)
        """Readable when the main thread wants to listen again."""
        self._listening = False

    @property
    def position(self) -> int:
        """The position of the current or next mini-batch."""
        return self._order.position

    def hear(self) -> None:
        """Wait for a message, and process it."""
        self._take_in(self._connection.recv())

    def claim(self) -> Assigned | None:
        """Claim and return the mini-batch at the current position; None without one."""
        order = self._order
        return order.at(order.position) if self._claimed(order.position) else None

    def look_ahead(self) -> None:
        """Load the next mini-batch ahead if that pays; if none is known, flush outcomes."""
        order, loader = self._order, self._loader
        if not order.prefetch:
            return
        position = order.position + 1
        self._look_for(position)
        if not order.has(position):
            self._outbox.flush()
            if loader.pays:
                self._listening = True
                loader.listen(position, partial(self._await, position))
        elif loader.pays and self._claimed(position):
            loader.begin(position, order.at(position).mini_batch)

    def listen_again(self) -> None:
        """Take the connection back from the loader's thread."""
        if self._listening:
            os.eventfd_write(self._hush, 1)
            self._loader.listened()
            os.eventfd_read(self._hush)
            self._listening = False

    def next(self) -> None:
        """Turn to the next position; if it has no work, process waiting messages."""
        order = self._order
        order.next()
        self._page.done(order.position)
        self._look_for(order.position)

    def close(self) -> None:
        """Close the descriptor that is not shared with the supervisor."""
        os.close(self._hush)

    # ---- what is heard ----

    def _take_in(self, message: Any) -> None:
        match message:
            case RunLease(lease_id, work, prefetch):
                self._order = Order(lease_id, prefetch=prefetch)
                self._order.add(work)
                self._page.begin_lease(lease_id)
                self._outbox.open(lease_id)
            case ExtendLease(lease_id, work) if lease_id == self._order.lease_id:
                self._order.add(work)
            case TruncateLease(lease_id, last):
                self._keeps += 1
                if lease_id == self._order.lease_id:
                    self._order.drop_beyond(last)
            case Stop():
                self.stopped = True

    def _look_for(self, position: int) -> None:
        """Process waiting messages until a position has work."""
        while not self._order.has(position) and self._connection.poll():
            self.hear()

    def _claimed(self, position: int) -> bool:
        """Claim a position; during a recall, wait first for the supervisor's answer."""
        while self._order.has(position):
            if self._begins(position):
                return True
            self.hear()
        return False

    def _begins(self, position: int) -> bool:
        """Claim a position; return False during an unanswered recall."""
        order = self._order
        if position > order.begun:
            if not self._page.claim(position, self._keeps):
                return False
            order.begun = position
        return True

    # ---- the loader's thread, while `run` works ----

    def _await(self, position: int) -> MiniBatch | None:
        """Wait for a mini-batch at a position and claim it; None if interrupted before that."""
        try:
            while not (self._order.has(position) and self._begins(position)):
                if not self._hears():
                    return None
            return self._order.at(position).mini_batch
        except MemoryError:  # a message may be lost: the agent ends
            raise
        except Exception:  # noqa: BLE001 - the main thread meets the same end, and tells of it
            return None

    def _hears(self) -> bool:
        """Wait for a message and process it; False if interrupted before that."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._hush, select.POLLIN)
        while not (ready := poll.poll(LOOK_EVERY_MS)):
            pass
        if any(fd == self._hush for fd, _ in ready):
            return False
        self.hear()
        return True
