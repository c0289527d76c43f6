"""The gate before the service: no token, no answer; no body larger or slower than allowed.

It stands before the framework, so that nothing of a request is read into memory, let alone
parsed, before it is known who asks and that it is small.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs.serve.http_errors import Refusal
from daskprs.serve.responses import JSON

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from daskprs.serve.tokens import Tokens

OPEN = {"/openapi.json", "/docs"}
"""What says how the service is used is for all."""
BODY_S = 30.0
LINGER_S = 2.0
"""What a refused caller still sends is read and dropped so long: else the system would reset the
connection, and the caller lose the answer."""


class Gate:
    """Lets requests in.

    Parameters
    ----------
    app
        What is behind.
    tokens
        Who may come in.
    most_bytes
        Of a body.

    """

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
        """Return the body, which is small; None of a caller who has gone."""
        told = _header(scope, b"content-length") or "0"
        if not told.isdigit() or int(told[:20]) > self._most_bytes:
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
            told = f"The body did not come within {BODY_S:.0f} seconds."
            raise Refusal(408, "RequestTimeout", told) from None

    def _too_large(self) -> Refusal:
        told = f"A body may have {self._most_bytes} bytes: name the place of data, do not send it."
        return Refusal(413, "RequestTooLarge", told)


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, and drop the connection when the caller has heard it."""
    response = JSON(refusal.body, refusal.status, {**refusal.headers, "Connection": "close"})
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
    """Return what gives the body that was read, and then what comes."""
    left = [body]

    async def read() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


def _header(scope: Scope, name: bytes) -> str | None:
    found = [value for key, value in scope["headers"] if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None
