"""One connection of a caller, which ends when the caller is too slow."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from daskprs._serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daskprs._serve.listening_socket import CallerLimits

MOST_HEAD_BYTES = 16 << 10
MOST_HEAD_LINES = 100
HEAD_END = re.compile(rb"\n\r?\n")


class Connection(H11Protocol):
    """A connection of uvicorn, with the limits that uvicorn leaves to a proxy.

    The server calls `check` once a second. A connection that waits for its caller, and sees no
    progress at as many checks as its limit has seconds, is closed. Checks are counted, and not
    seconds: a server that is late itself makes fewer of them, so that no caller has less time.
    """

    def __init__(self, limits: CallerLimits, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._limits = limits
        self._pieces_read = 0
        self._awaited: tuple[float, Hashable] | None = None
        self._checks = 0

    def check(self) -> None:
        """End this connection if its caller is late."""
        awaited = self._waits_for()
        if awaited != self._awaited:
            self._awaited, self._checks = awaited, 0
        self._checks += 1
        if awaited is not None and self._checks > awaited[0] + 1:
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
                late = f"The head of the request did not come within {awaited[0]:.0f} seconds."
                self._refuse(Refusal(408, "RequestTimeout", late))
            self.transport.abort()

    def _waits_for(self) -> tuple[float, Hashable] | None:
        """Return the limit and the piece of data that the caller owes; None if there is none."""
        if self.transport.is_closing():
            return self._limits.head_s, "close"
        if self.flow.write_paused:
            return self._limits.read_s, self._pieces_read
        if self.conn.their_state is h11.SEND_BODY:
            return self._limits.read_s, self.cycle
        if self.conn.their_state is h11.IDLE:
            return self._limits.head_s, self.cycle
        return None

    def resume_writing(self) -> None:
        """Note that the caller has read a piece of an answer."""
        self._pieces_read += 1
        super().resume_writing()

    def handle_events(self) -> None:
        """Refuse a large head before it is parsed, which takes long."""
        if self.conn.their_state is h11.IDLE and self._has_large_head():
            self.send_400_response("")
        else:
            super().handle_events()

    def _has_large_head(self) -> bool:
        come = self.conn.trailing_data[0]
        end = HEAD_END.search(come, 0, MOST_HEAD_BYTES)
        if end is None:
            return len(come) > MOST_HEAD_BYTES
        return come.count(b"\n", 0, end.end()) > MOST_HEAD_LINES

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request with an error in the form of the service's other errors."""
        if self._has_large_head():
            message = (
                f"The head of a request may have {MOST_HEAD_LINES} lines and "
                f"{MOST_HEAD_BYTES >> 10} KB."
            )
            self._refuse(Refusal(431, "RequestHeadersTooLarge", message))
        else:
            self._refuse(Refusal(400, "BadRequest", msg))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer outside of a request, and close the connection."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": refusal.error}).encode()
            head = (
                f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
                "Content-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
