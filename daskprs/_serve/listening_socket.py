"""The service's listening socket, which limits the connections that are open."""

from __future__ import annotations

import errno
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger(__name__)
BACKLOG = 2048
TELL_EVERY_S = 60.0
MOST_UNSENT_BYTES = 512 << 10
FILES_OF_A_CONNECTION = 2
"""Descriptors of a connection: its socket, and the file that it reads."""
OTHER_FILES = 256
PREFIX_BITS = {4: 32, 6: 64}
"""One customer of a network has all addresses of an IPv6 network of this size."""


class CallerLimits(NamedTuple):
    """Upper bounds for the connections of callers."""

    connections: int
    connections_per_address: int
    head_s: float = 20.0
    """Seconds for a TLS handshake, and for the head of a request."""
    read_s: float = 60.0
    """Seconds in which a caller reads a piece of an answer, or sends a piece of a body."""


class ListeningSocket(socket.socket):
    """A listening socket that closes connections above the limits as soon as it accepts them.

    The socket counts the connections, and not the server: the server sees a TLS connection only
    after the handshake, which a caller may never finish.
    """

    def __init__(self, host: str, port: int, limits: CallerLimits) -> None:
        _make_room_for_files(limits)
        super().__init__(fileno=_listening(host, port).detach())
        # Accepted sockets inherit both. No part of an answer waits for the caller to acknowledge.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel holds no more for a caller who does not read, besides what is on its way.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT_BYTES)
        self._limits = limits
        self._all = 0
        self._by_caller: Counter[str] = Counter()
        self._tell_again_s = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; one above the limits is closed, and a `ConnectionAbortedError`."""
        accepted, address = super().accept()
        caller = _network(address[0])
        most, most_each = self._limits[:2]
        if self._all >= most or self._by_caller[caller] >= most_each:
            accepted.close()
            self._tell(caller)
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        self._all += 1
        self._by_caller[caller] += 1
        return _CountedSocket(accepted, partial(self._left, caller)), address

    def _left(self, caller: str) -> None:
        self._all -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]

    def _tell(self, caller: str) -> None:
        """Warn of a refused connection, once in a while."""
        now_s = time.monotonic()
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + TELL_EVERY_S
            LOG.warning(
                "a connection of %s is refused: it has %d open ones, and all callers have %d; "
                "see --max-connections and --max-per-address",
                *(caller, self._by_caller[caller], self._all),
            )


class _CountedSocket(socket.socket):
    """An accepted socket, which reports that it is closed."""

    def __init__(self, accepted: socket.socket, left: Callable[[], None]) -> None:
        super().__init__(fileno=accepted.detach())
        self._left = left

    def close(self) -> None:
        """Close the socket."""
        is_open = self.fileno() >= 0
        super().close()
        if is_open:
            self._left()


def _network(address: str) -> str:
    """Return the addresses that count as those of one caller."""
    own = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(own, ipaddress.IPv6Address) and own.ipv4_mapped:
        own = own.ipv4_mapped
    return str(ipaddress.ip_network((own, PREFIX_BITS[own.version]), strict=False))


def _make_room_for_files(limits: CallerLimits) -> None:
    """Allow this process the open files that its connections need."""
    needed = FILES_OF_A_CONNECTION * limits.connections + OTHER_FILES
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        msg = (
            f"--max-connections {limits.connections}: they need {needed} open files, and the "
            f"system allows this process {most}. Give a lower number, or raise RLIMIT_NOFILE "
            "(ulimit -n, LimitNOFILE= of systemd)."
        )
        raise OptionError(msg)
    if usual != resource.RLIM_INFINITY and usual < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        near = " Give another --port." if error.errno == errno.EADDRINUSE else ""
        msg = f"--host {host} --port {port}: this address cannot be served: {error.strerror}.{near}"
        raise OptionError(msg) from error
