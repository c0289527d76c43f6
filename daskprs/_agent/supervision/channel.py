"""The supervisor's end of the socket to an agent: it never waits for the other end.

The agent's end is a `multiprocessing.connection.Connection`, which blocks. If both ends blocked
and both had much to send, each would wait for ever until the other one reads. And an agent that
is stopped in the middle of a message must not block the thread that watches its deadlines.

The form is that of `Connection`: the length as four bytes, big-endian (or -1 and then the length
as eight), and the message. Messages to an agent are pickles. What comes from it is parsed, since
its script may have written it; a process that runs none sends pickles, too.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from daskprs._agent.protocol.answers import check_beginning, parsed

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_SHORT = struct.Struct("!i")
_LONG = struct.Struct("!Q")
_LONGEST_SHORT = (1 << 31) - 1
_AT_ONCE = 1 << 18
_CHECKED = 20
"""Bytes by which a message is known as one: a script may have written fewer, a message follows."""


class Messages(Protocol):
    """The connection from a supervisor to its agent, as the supervisor uses it."""

    closed: bool
    """Whether the agent has closed its end; messages sent before can still be received."""

    def send(self, message: Any) -> None:
        """Send a message, now or while `receive` waits."""

    def receive(self, within_s: float, *others: int) -> list[Any]:
        """Return received messages; wait for the first one, or until another one is readable."""

    def close(self) -> None:
        """Close the way; messages not received yet are lost."""


class Channel:
    """Messages to and from an agent.

    The supervisor's end of the socket pair is closed with the channel, or with the last reference:
    an agent that was idle when its job failed is never dismissed, only killed.
    """

    def __init__(self, end: Connection, *, runs_script: bool) -> None:
        self.closed = False
        """Whether the agent has closed its end; messages sent before can still be received."""
        self._end = end
        self._runs_script = runs_script
        self._parse: Callable[[bytes | bytearray], Any] = parsed if runs_script else pickle.loads
        self._fd = end.fileno()
        os.set_blocking(self._fd, False)
        self._unsent: deque[memoryview] = deque()
        self._buffer = bytearray(_AT_ONCE)
        self._begun = bytearray()
        """Received bytes of messages whose bodies have no buffer of their own."""
        self._ended = False
        self._body: bytearray | None = None
        self._there = 0
        """Received bytes of the body."""

    def close(self) -> None:
        """Close the channel; messages not received yet are lost."""
        self.closed = self._ended = True
        self._end.close()

    def send(self, message: Any) -> None:
        """Send a message, now or while `receive` waits."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        head = (
            _SHORT.pack(len(body))
            if len(body) <= _LONGEST_SHORT
            else _SHORT.pack(-1) + _LONG.pack(len(body))
        )
        self._unsent += (memoryview(head), memoryview(body))
        self._write()

    def receive(self, within_s: float, *others: int) -> list[Any]:
        """Return received messages; wait for the first bytes, or until another one is readable.

        Any exception may come of bytes that the script has written to the socket.
        """
        if self._ended:
            return []
        poll = select.poll()
        poll.register(self._fd, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        for other in others:
            poll.register(other, select.POLLIN)
        poll.poll(max(0.0, within_s) * 1000)
        self._write()
        return self._read()

    def _write(self) -> None:
        try:
            while self._unsent and not self.closed:
                sent = os.write(self._fd, self._unsent[0])
                rest = self._unsent[0][sent:]
                if rest:
                    self._unsent[0] = rest
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            pass  # continued when the agent has read
        except OSError:
            self.closed = True
            self._unsent.clear()

    def _read(self) -> list[Any]:
        messages: list[Any] = []
        try:
            while not self._ended:
                if self._body is None:
                    count = os.readv(self._fd, [self._buffer])
                    self._begun += memoryview(self._buffer)[:count]
                    messages += self._whole()
                else:
                    count = os.readv(self._fd, [memoryview(self._body)[self._there :]])
                    self._there += count
                    if self._there == len(self._body):
                        messages.append(self._parse(self._body))
                        self._body = None
                self._ended = count == 0
        except BlockingIOError:
            pass  # that is all for now
        except OSError:
            self._ended = True
        self.closed |= self._ended
        return messages

    def _whole(self) -> list[Any]:
        """Return the complete messages; the body of a long one gets a buffer of its own."""
        messages = []
        while (length := self._length()) is not None:
            head, size = length
            if len(self._begun) < head + min(size, _CHECKED):
                break
            if len(self._begun) < head + size:
                # Text that a script writes to the socket would announce a message of 500 MB or
                # more, whose rest never comes.
                if self._runs_script:
                    check_beginning(self._begun[head:])
                self._body = bytearray(size)
                self._there = len(self._begun) - head
                self._body[: self._there] = self._begun[head:]
                self._begun.clear()
                break
            messages.append(self._parse(self._begun[head : head + size]))
            del self._begun[: head + size]
        return messages

    def _length(self) -> tuple[int, int] | None:
        """Return the bytes of the head and of the body of the next message, once they are known."""
        if len(self._begun) < _SHORT.size:
            return None
        (size,) = _SHORT.unpack_from(self._begun)
        if size >= 0:
            return _SHORT.size, size
        if len(self._begun) < _SHORT.size + _LONG.size:
            return None
        return _SHORT.size + _LONG.size, _LONG.unpack_from(self._begun, _SHORT.size)[0]
