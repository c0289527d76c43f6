"""The gate: what it waits for, and for how long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from daskprs.serve import auth_middleware as gate
from daskprs.serve.tokens import Token, Tokens, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

SECRET = "sixteen-characters"  # noqa: S105 - nobody's
MOST_BYTES = 10


async def reached(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body; it stands behind the gate."""
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body + scope["state"]["caller"].encode()})


def answered(*messages: dict[str, Any], headers: Iterable[tuple[bytes, bytes]] = ()) -> Any:
    """Return the status, the body and the number of messages that a request is answered with."""
    sent: list[MutableMapping[str, Any]] = []
    waiting = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # a caller who says no more
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    tokens = Tokens([Token("ann", digest_of(SECRET))], "here")
    known = [(b"authorization", f"Bearer {SECRET}".encode()), *headers]
    scope = {"type": "http", "path": "/jobs", "headers": known}
    asyncio.run(gate.Gate(reached, tokens, MOST_BYTES)(scope, receive, send))
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent)
    assert sent[-1].get("more_body", False) is False
    return sent[0]["status"], body


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    """Return a piece of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the gate wait for hundredths of a second only."""
    monkeypatch.setattr(gate, "BODY_S", 0.02)
    monkeypatch.setattr(gate, "LINGER_S", 0.02)


def test_a_body_in_pieces_comes_whole() -> None:
    """And who sends it is known behind the gate."""
    assert answered(part(b"12345", more=True), part(b"67890", more=False)) == (
        200,
        b"1234567890ann",
    )


def test_a_body_that_grows_too_large_is_refused_where_it_does() -> None:
    """Whatever its head has said."""
    status, body = answered(
        part(b"1234567890", more=True),
        part(b"1", more=True),
        part(b"2", more=False),
        headers=[(b"content-length", b"3")],
    )
    assert status == 413
    assert b"RequestTooLarge" in body


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """A caller may say nothing for ever."""
    status, body = answered(part(b"1", more=True))
    assert status == 408
    assert b"RequestTimeout" in body


def test_a_caller_who_goes_is_not_answered() -> None:
    """There is nobody."""
    assert answered(part(b"1", more=True), {"type": "http.disconnect"}) is None
