"""The gate before the service: who may do what, how often, and what is logged of it.

It rejects requests without a token or a role, too many requests, and large or slow bodies.

The gate runs before the framework: it reads and parses no part of a request before it knows the
caller and the size.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs._serve.bodies import JSON
from daskprs._serve.http_errors import Refusal, not_found
from daskprs._serve.rate_limits import CallerRate
from daskprs._serve.tokens import CANCEL, READ, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from daskprs._serve.audit_log import AuditLog
    from daskprs._serve.tokens import Token, Tokens

OPEN = {"/openapi.json", "/docs", "/health", "/ready"}
"""Paths that need no token: they describe the service, and tell whether it works."""
READING = {"GET", "HEAD", "OPTIONS"}
STRANGERS_PER_S = 50.0
"""Requests without a valid token that are looked at in a second, from all callers together."""
_CONTROL = frozenset(map(chr, [*range(32), 127]))
BODY_S = 30.0
LINGER_S = 2.0
"""Seconds to read and drop the rest of a refused request.

Without this the system would reset the connection, and the caller would lose the answer."""


class Gate:
    """Admits requests with a token, and with a body of `most_bytes` at most, to an application.

    A token without a limit of its own has that of `requests_per_s`, if that is given.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        most_bytes: int,
        audit: AuditLog | None = None,
        requests_per_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._most_bytes = most_bytes
        self._audit = audit
        self._requests_per_s = requests_per_s
        self._limits: dict[Token, CallerRate] = {}
        """The limits of known tokens; no request of a stranger adds one."""
        self._clock = clock
        self._strangers = CallerRate(STRANGERS_PER_S, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["path"] in OPEN
        send = send if is_open else self._audited(scope, send)
        try:
            if not is_open:
                self._admit(scope)
            body = await self._body(scope, receive, 0 if is_open else self._most_bytes)
        except Refusal as refusal:
            await _refuse(refusal, receive, send)
            return
        if body is not None:
            await self._app(scope, _again(body, receive), send)

    def _admit(self, scope: Scope) -> None:
        """Find out who asks, and refuse what the token does not allow."""
        state = scope.setdefault("state", {})
        try:
            token = self._tokens.holder(_header(scope, b"authorization"), datetime.now(UTC))
        except Refusal:
            state["is_repeated"] = self._strangers.is_refusing
            self._strangers.admit("Callers without a valid token")
            raise
        state["caller"] = token.name
        if scope["method"] not in READING and not _CONTROL.isdisjoint(scope["path"]):
            # a route would also match with a line break at the end, of which _role knows nothing
            raise not_found("path", scope["path"], "path")
        per_s = token.requests_per_s or self._requests_per_s
        if per_s is not None:
            limit = self._limits.setdefault(token, CallerRate(per_s, self._clock))
            state["is_repeated"] = limit.is_refusing
            limit.admit(f"The token {token.name!r}")
        role = _role(scope)
        if role not in token.roles:
            may = ", ".join(token.roles)
            message = f"This needs the role {role}; the token {token.name!r} has: {may}."
            raise Refusal(403, "RoleMissing", message)

    def _audited(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that also records the answer."""

        async def audited(message: Message) -> None:
            if self._audit is not None and message["type"] == "http.response.start":
                self._audit.answered(scope, message)
            await send(message)

        return audited

    async def _body(self, scope: Scope, receive: Receive, most_bytes: int) -> bytes | None:
        """Return the body, within the size limit; None when the caller disconnected."""
        length = _header(scope, b"content-length") or "0"
        if not length.isdigit() or int(length[:20]) > most_bytes:
            raise _too_large(most_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > most_bytes:
                        raise _too_large(most_bytes)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            late = f"The body did not come within {BODY_S:.0f} seconds."
            raise Refusal(408, "RequestTimeout", late) from None


def _too_large(most_bytes: int) -> Refusal:
    message = f"A body may have {most_bytes} bytes: name the place of data, do not send it."
    return Refusal(413, "RequestTooLarge", message)


async def _refuse(refusal: Refusal, receive: Receive, send: Send) -> None:
    """Send the refusal, and drop the connection after the caller received it."""
    response = JSON(
        {"error": refusal.error}, refusal.status, {**refusal.headers, "Connection": "close"}
    )
    headers, body = response.raw_headers, response.body
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _role(scope: Scope) -> str:
    """Return the role that a request needs."""
    if scope["method"] in READING:
        return READ
    if scope["path"].endswith("/cancel") or scope["method"] == "DELETE":
        return CANCEL
    return RUN


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body already read, then the later messages."""
    left = [body]

    async def read() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


def _header(scope: Scope, name: bytes) -> str | None:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None
