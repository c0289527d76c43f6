"""The mini-batches of an agent: received from the supervisor, claimed, and loaded one ahead.

While `run` works for a second, the agent can only load ahead if it receives the next mini-batch
in that second. So if loading ahead pays and no mini-batch is known, the loader's thread listens
while `run` works. It claims the next mini-batch and loads it. A script that holds the GIL only
delays this thread; the main thread then receives the message later.

Only one of the two threads listens at a time. `Inbox.look_ahead` hands the connection to the
loader's thread, and `Inbox.listen_again` takes it back. In between, the main thread does not touch
order and connection.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.child.handed_on import read
from daskprs._agent.protocol.messages import ExtendLease, RunLease, Stop, TruncateLease
from daskprs._agent.protocol.shared_page import NOTHING
from daskprs._core.mini_batch import Assigned
from daskprs._inputs.source.source import PathsReader
from daskprs._system.disk_space import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.connection import Connection

    from daskprs._agent.child.outbox import MemoryReserve, Outbox
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.source import Reader

LOOK_EVERY_MS = 1000
"""Milliseconds between polls. A connection that a script closes stays open while a thread waits
on it, and the supervisor would not notice that its agent is lost."""
NO_ORDER = 0
"""Order number before the first order; supervisors count from 1."""
WORTH_A_THREAD_S = 0.001
"""Seconds below which a load is not worth a thread; handing it over costs about a tenth."""

QUICK_BYTES = 1 << 18
"""Bytes of rows in memory that are a frame within a millisecond."""


class Inbox:
    """Receives the supervisor's messages, and returns the mini-batches to work on.

    The outbox receives the number of each new order, and is flushed where more work is wanted.
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

    def receive(self) -> None:
        """Wait for a message, and process it."""
        self.process(self.next_message())

    def next_message(self) -> Any:
        """Wait for a message."""
        return self._connection.recv()

    def process(self, message: Any) -> None:
        """Process a message."""
        match message:
            case RunLease(lease_id, work, prefetch, most_in_a_row):
                self._order = Order(lease_id, prefetch=prefetch, most_in_a_row=most_in_a_row)
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
            case ExtendLease():
                pass  # of an order that the agent has left
            case _:  # the script has replaced the modules of this process: its classes are others
                msg = f"an agent does not know the message {type(message).__qualname__}"
                raise TypeError(msg)

    def claim(self) -> Assigned | None:
        """Claim and return the mini-batch at the current position; None without one."""
        order = self._order
        return order.work[order.position] if self._claimed(order.position) else None

    @property
    def has_work(self) -> bool:
        """Whether a mini-batch is waiting to be claimed."""
        return self._order.position in self._order.work

    def claim_next(self) -> tuple[int, Assigned] | None:
        """Claim the next position of several calls at the same time; None where none can be."""
        order = self._order
        position = order.position
        if position not in order.work or not self._begins(position):
            return None
        assigned = order.work[position]
        order.next()
        return position, assigned

    def look_ahead(self) -> None:
        """Load the next mini-batch ahead if that pays; if none is known, flush outcomes."""
        order, loader = self._order, self._loader
        if not order.prefetch:
            return
        position = order.position + 1
        self._look_for(position)
        if position not in order.work:
            self._outbox.flush()
            if loader.pays:
                self._listening = True
                loader.listen(position, partial(self._await, position))
        elif loader.pays and self._claimed(position):
            assigned = order.work[position]
            if loader.has_room(assigned.mini_batch):
                loader.begin(position, assigned)

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

    @property
    def most_in_a_row(self) -> int:
        """Number of failures in a row after which the agent halts."""
        return self._order.most_in_a_row

    def halt(self) -> None:
        """Drop what is not done of the order; more work for it may still be on its way."""
        self._order.next()
        self._page.done(self._order.position)
        self.drop()

    def drop(self) -> None:
        """Drop what is not claimed of the order."""
        self._order = Order(NO_ORDER, prefetch=False, most_in_a_row=self._order.most_in_a_row)

    def close(self) -> None:
        """Close the descriptor that is not shared with the supervisor."""
        os.close(self._hush)

    def _look_for(self, position: int) -> None:
        """Process waiting messages until a position has work."""
        while position not in self._order.work and self._connection.poll():
            self.receive()

    def _claimed(self, position: int) -> bool:
        """Claim a position; during a recall, wait first for the supervisor's answer."""
        while position in self._order.work:
            if self._begins(position):
                return True
            self.receive()
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

    def _await(self, position: int) -> Assigned | None:
        """Wait for a mini-batch at a position and claim it; None if interrupted before that."""
        try:
            while not (position in self._order.work and self._begins(position)):
                if not self._received():
                    return None
            return self._order.work[position]
        except (EOFError, OSError):  # the main thread meets the same end, and reports it
            return None

    def _received(self) -> bool:
        """Wait for a message and process it; False if interrupted before that."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._hush, select.POLLIN)
        while not (ready := poll.poll(LOOK_EVERY_MS)):
            pass
        if any(fd == self._hush for fd, _ in ready):
            return False
        self.receive()
        return True


class Order:
    """The mini-batches given to an agent, and its progress; more may come at any time."""

    def __init__(self, lease_id: int, *, prefetch: bool, most_in_a_row: int = 1) -> None:
        self.lease_id = lease_id
        """The order's number between supervisor and agent."""
        self.prefetch = prefetch
        """Whether the next mini-batch may be loaded while one runs."""
        self.most_in_a_row = most_in_a_row
        self.position = 0
        """The position of the current or next mini-batch."""
        self.begun = NOTHING
        """The last position claimed for good, which no recall takes back."""
        self.work: dict[int, Assigned] = {}
        """The mini-batches that are not done, by position."""
        self._beyond = 0

    def add(self, work: Iterable[Assigned]) -> None:
        """Append work."""
        for assigned in work:
            self.work[self._beyond] = assigned
            self._beyond += 1

    def drop_beyond(self, last: int) -> None:
        """Drop the recalled work beyond a position; new work takes its place."""
        while self._beyond > last + 1:
            self._beyond -= 1
            del self.work[self._beyond]

    def next(self) -> None:
        """Turn to the next position."""
        del self.work[self.position]
        self.position += 1


class Loaded(NamedTuple):
    """The result of loading one mini-batch: the data, or an error."""

    data: Any
    error: BaseException | None


class Loader:
    """Loads one mini-batch at a time; at most one ahead of the one that runs."""

    reader: Reader
    """Set once the script is imported, since the reader may need the script's modules."""
    form: Callable[[Any], Any] | None = None
    """Converts the reader's data into the argument of `run`; None: `run` gets the data itself."""

    def __init__(self, page: SharedPage, reserve: MemoryReserve) -> None:
        self._page = page
        self._reserve = reserve
        self._ahead = NOTHING
        self._is_dropped = False
        """Whether the thread still loads what is not wanted any more."""
        self._orders: SimpleQueue[Callable[[], Assigned | None]] = SimpleQueue()
        self._received: SimpleQueue[int] = SimpleQueue()
        self._results: SimpleQueue[Loaded] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lately_s = 0.0
        """Recent seconds of a load; a quick load among slow ones, such as a file's tail, halves
        it."""

    def start(self) -> None:
        """Start the thread; where the system refuses threads, nothing is loaded ahead.

        A thread started without free memory never begins, and `Thread.start` waits for it for
        ever. So this is called before the script is imported.
        """
        thread = threading.Thread(target=self._serve, name="loader", daemon=True)
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def take(self, position: int, assigned: Assigned) -> Loaded:
        """Return this mini-batch's data: wait for a load begun ahead, or load it now.

        A load ahead may lack the memory or disk that the mini-batch before it held. It is repeated.
        """
        if self._is_dropped:  # a reader is used by one thread at a time
            self._results.get()
            self._is_dropped = False
        if self._ahead != position:
            return self.load(assigned)
        self._ahead = NOTHING
        loaded = self._results.get()
        if _lacked_room(loaded.error):
            del loaded  # and the frames of its error
            return self.load(assigned)
        return loaded

    def load_again(self, mini_batch: MiniBatch) -> Any:
        """Return the data of a mini-batch that has run; None if it cannot be loaded any more.

        A reader is used by one thread at a time: what is loaded ahead is waited for, and kept.
        """
        if isinstance(self.reader, PathsReader) or self._is_dropped:
            return None
        if self._ahead != NOTHING:
            self._results.put(self._results.get())
        return self.load(Assigned(mini_batch, 0)).data

    def drop(self) -> None:
        """Drop what is loaded ahead, without waiting for it: the agent may be asked to end."""
        self._is_dropped |= self._ahead != NOTHING
        self._ahead = NOTHING

    @property
    def pays(self) -> bool:
        """Whether loads take long enough to be worth doing ahead, and there is a thread for it."""
        return self._lately_s > WORTH_A_THREAD_S and self._thread is not None

    def is_quick(self, mini_batch: MiniBatch) -> bool:
        """Say whether a load of a mini-batch keeps no other call waiting."""
        is_mapped = getattr(self.reader, "is_mapped", False)
        return is_mapped and (mini_batch.size_bytes or 0) <= QUICK_BYTES

    def has_room(self, mini_batch: MiniBatch) -> bool:
        """Say whether a mini-batch can be loaded while another one uses its files."""
        return not isinstance(self.reader, PathsReader) or self.reader.has_room(mini_batch)

    def begin(self, position: int, assigned: Assigned) -> None:
        """Start to load this mini-batch on the loader's thread."""
        self._ahead = position
        self._page.loading(position)
        self._orders.put(lambda: assigned)

    def listen(self, position: int, wait: Callable[[], Assigned | None]) -> None:
        """Let the loader's thread wait for the mini-batch at a position, and load it."""

        def received() -> Assigned | None:
            assigned = wait()
            if assigned is not None and not self.has_room(assigned.mini_batch):
                assigned = None
            if assigned is not None:
                self._page.loading(position)
            self._received.put(NOTHING if assigned is None else position)
            return assigned

        self._orders.put(received)

    def listened(self) -> None:
        """Wait until the thread stops listening; it then loads the received mini-batch, if any."""
        self._ahead = self._received.get()

    def _serve(self) -> None:
        try:
            while True:
                assigned = self._orders.get()()
                if assigned is not None:
                    loaded = self.load(assigned)
                    self._page.loading(NOTHING)
                    self._results.put(loaded)
                    del loaded  # until the next one is there, this thread may wait for long
        except BaseException as error:  # noqa: BLE001 - without an end, the agent would wait
            self._reserve.end(error)

    def load(self, assigned: Assigned) -> Loaded:
        """Load a mini-batch now; one thread at a time."""
        begun, work = time.perf_counter(), assigned.work
        try:
            if work is not None and work.source is not None:
                loaded = Loaded(read(work.source, assigned.mini_batch.index), None)
            else:
                data = self.reader.load(assigned.mini_batch)
                loaded = Loaded(data if self.form is None else self.form(data), None)
        except BaseException as error:  # noqa: BLE001 - whatever a reader raises fails this one only
            loaded = Loaded(None, error)
        self._lately_s = max(time.perf_counter() - begun, self._lately_s / 2)
        return loaded


def _lacked_room(error: BaseException | None) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in FULL)
