"""The gate before the service: it rejects requests without a token, and large or slow bodies.

The gate runs before the framework: it reads and parses no part of a request before it knows the
caller and the size.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs.serve.bodies import JSON
from daskprs.serve.http_errors import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from daskprs.serve.tokens import Tokens

OPEN = {"/openapi.json", "/docs"}
"""Paths that need no token: they describe the service."""
BODY_S = 30.0
LINGER_S = 2.0
"""Seconds to read and drop the rest of a refused request.

Without this the system would reset the connection, and the caller would lose the answer."""


class Gate:
    """Admits requests with a token, and with a body of `most_bytes` at most, to an application."""

    def __init__(self, app: ASGIApp, tokens: Tokens, most_bytes: int) -> None:
        self._app = app
        self._tokens = tokens
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if scope["path"] not in OPEN:
                authorization = _header(scope, b"authorization")
                caller = self._tokens.caller(authorization, datetime.now(UTC))
                scope.setdefault("state", {})["caller"] = caller
            body = await self._body(scope, receive)
        except Refusal as refusal:
            await _refuse(refusal, scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _again(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, within the size limit; None when the caller disconnected."""
        length = _header(scope, b"content-length") or "0"
        if not length.isdigit() or int(length[:20]) > self._most_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._most_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            late = f"The body did not come within {BODY_S:.0f} seconds."
            raise Refusal(408, "RequestTimeout", late) from None

    def _too_large(self) -> Refusal:
        message = (
            f"A body may have {self._most_bytes} bytes: name the place of data, do not send it."
        )
        return Refusal(413, "RequestTooLarge", message)


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the refusal, and drop the connection after the caller received it."""
    response = JSON(
        {"error": refusal.error}, refusal.status, {**refusal.headers, "Connection": "close"}
    )
    held: list[Message] = []

    async def send_all_but_the_end(message: Message) -> None:
        if message["type"] == "http.response.body":
            held.append({"type": "http.response.body", "body": b"", "more_body": False})
            message = {**message, "more_body": True}
        await send(message)

    await response(scope, receive, send_all_but_the_end)
    try:
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    for message in held:
        await send(message)


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
