"""What an agent is told: heard between two `run`s, and while one works.

A mini-batch that takes a second leaves its agent with nothing to load ahead unless it hears, in
that second, of the next one. So where loading ahead pays and nothing is known to load, the
loader's thread listens while `run` works, claims what comes, and loads it. A script that holds
the interpreter's lock only keeps that thread from it: what it did not hear, the main thread does.

Only one of the two listens at a time. The main thread leaves it to the other one by `look_ahead`,
and has it back when `listen_again` returns; in between it does not touch order and connection.
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
"""A connection that a script closes stays open as long as a thread waits on it: the supervisor
would not hear that its agent is lost."""
NO_ORDER = 0
"""Supervisors count from 1."""


class Intake:
    """Hears the supervisor, and says what there is to do.

    Parameters
    ----------
    connection, page
        What the agent shares with its supervisor.
    loader
        Loads ahead.
    outbox
        Is told which order its outcomes belong to, and flushed where more work is wanted.

    """

    def __init__(
        self, connection: Connection, page: SharedPage, loader: Loader, outbox: Outbox
    ) -> None:
        self.stopped = False
        """The supervisor has said `Stop`."""
        self._connection = connection
        self._page = page
        self._loader = loader
        self._outbox = outbox
        self._order = Order(NO_ORDER, prefetch=False)
        self._keeps = 0
        """How many recalls have been answered."""
        self._hush = os.eventfd(0)
        """Readable when the main thread wants to listen again."""
        self._listening = False

    @property
    def position(self) -> int:
        """The position that is next, or at hand."""
        return self._order.position

    def hear(self) -> None:
        """Wait for a message, and take it in."""
        self._take_in(self._connection.recv())

    def claim(self) -> Assigned | None:
        """Return what is to be done now, for good; None where nothing is."""
        order = self._order
        return order.at(order.position) if self._claimed(order.position) else None

    def look_ahead(self) -> None:
        """Load the next one where that pays; where none is known, tell what is done to get more."""
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
        """Take over from the loader's thread, which may have heard of the next one, or not."""
        if self._listening:
            os.eventfd_write(self._hush, 1)
            self._loader.listened()
            os.eventfd_read(self._hush)
            self._listening = False

    def next(self) -> None:
        """Turn to the next one, and hear what was said meanwhile if none is known."""
        order = self._order
        order.next()
        self._page.done(order.position)
        self._look_for(order.position)

    def close(self) -> None:
        """Let go of what is not shared with the supervisor."""
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
        """Hear what was said meanwhile, if there is nothing to do at a position."""
        while not self._order.has(position) and self._connection.poll():
            self.hear()

    def _claimed(self, position: int) -> bool:
        """Claim a position; where a recall is out, hear first whether it is still ours."""
        while self._order.has(position):
            if self._begins(position):
                return True
            self.hear()
        return False

    def _begins(self, position: int) -> bool:
        """Claim a position, and say whether that holds: not while a recall is out."""
        order = self._order
        if position > order.begun:
            if not self._page.claim(position, self._keeps):
                return False
            order.begun = position
        return True

    # ---- the loader's thread, while `run` works ----

    def _await(self, position: int) -> MiniBatch | None:
        """Wait for a mini-batch at a position and claim it; None when told to hush before that."""
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
        """Wait for a message and take it in; False when told to hush before that."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._hush, select.POLLIN)
        while not (ready := poll.poll(LOOK_EVERY_MS)):
            pass
        if any(fd == self._hush for fd, _ in ready):
            return False
        self.hear()
        return True
