"""The entry script of a batch file makes a line of whatever a server answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pandas as pd
import pytest

from daskprs import MiniBatchContext
from daskprs._agent.child.throttling import Throttle, throttle_of
from daskprs._agent.foreign.entry_script import CallTools
from daskprs._openai import ask
from daskprs._openai.batch_file import line_of_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.monkeypatch import MonkeyPatch

    Asked = Callable[..., tuple[Any, dict[str, float]]]


@pytest.fixture
def asked(monkeypatch: MonkeyPatch) -> Asked:
    """Return a function that asks a server with one answer; it returns the line, and counts."""

    def asked(text: str, status: int = 200, **body: Any) -> tuple[Any, dict[str, float]]:
        counts: dict[str, float] = {}

        async def main() -> list[str]:
            answer = httpx.Response(status, text=text)
            transport = httpx.MockTransport(lambda _: answer)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                monkeypatch.setattr(ask, "idle", [client])
                rows = pd.DataFrame({"custom_id": ["a"], "url": ["/v1/x"], "body": [body]})
                tools = CallTools(count=counts.__setitem__)
                return await ask.run(rows, MiniBatchContext(0, _tools=tools))

        (line,) = asyncio.run(main())
        line.encode()
        return json.loads(line)["response"]["body"], counts

    return asked


def test_what_a_server_does_not_count_loses_no_answer(asked: Asked) -> None:
    """Some leave out numbers, or write null."""
    full = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert asked(json.dumps({"usage": full})) == ({"usage": full}, full)
    responses = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    assert asked(json.dumps({"usage": responses}))[1] == responses
    odd = {"prompt_tokens": 3, "completion_tokens": None, "total_tokens": None}
    assert asked(json.dumps({"usage": odd}))[1] == {"prompt_tokens": 3}
    for usage in (None, {}, [5], {"total_tokens": 7.5}, {"total_tokens": -1}):
        assert asked(json.dumps({"usage": usage})) == ({"usage": usage}, {})
    assert asked("[1]") == ([1], {})


def test_an_answer_may_end_within_a_character(asked: Asked) -> None:
    """JSON may have half of a pair of surrogates, which is no text in UTF-8."""
    assert asked(r'{"text": "\ud83d"}')[0] == {"text": "\ud83d"}
    assert json.loads(line_of_error("\ud83d", "ValueError: odd"))["custom_id"] == "\ud83d"


def test_a_page_that_is_no_json_is_shown(asked: Asked) -> None:
    """It says more than where JSON was expected."""
    with pytest.raises(ValueError, match="answers 404 without JSON: <html>no such page"):
        asked("<html>no such page</html>", 404)


def test_the_most_tokens_of_an_answer_are_expected() -> None:
    """What is no number of tokens is left to the server, which says what is wrong."""
    assert ask.expected_tokens({"max_tokens": 100}) == 104
    assert ask.expected_tokens({"max_tokens": 100, "max_completion_tokens": 500}) > 500
    assert ask.expected_tokens({"max_output_tokens": 500}) > 500
    for odd in ("many", -1, None, 1.5):
        assert ask.expected_tokens({"max_tokens": odd}) < 10


def test_a_request_counts_by_its_text() -> None:
    """A picture of a megabyte is no million of characters; text counts as it is sent."""
    words = "seven words of a text are sent"
    picture = {"url": "data:image/png;base64," + "iVBORw0KGgo+/" * 100_000}
    tokens = ask.expected_tokens({"content": [{"text": words}, {"image_url": picture}]})
    assert 15 < tokens < 40
    assert ask.expected_tokens({"content": "日本" * 400}) == ask.expected_tokens(
        {"content": "word a" * 400}
    )
    assert ask.expected_tokens({"content": "\ud83d"}) > 3


def test_each_call_has_a_client_of_its_own_for_its_time(monkeypatch: MonkeyPatch) -> None:
    """One that many calls share looks at all its connections, for each request."""
    opened: list[httpx.AsyncClient] = []

    async def answered(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.01)
        return httpx.Response(200, json={})

    def opens() -> httpx.AsyncClient:
        transport = httpx.MockTransport(answered)
        opened.append(httpx.AsyncClient(transport=transport, base_url="http://server"))
        return opened[-1]

    monkeypatch.setattr(ask, "idle", [])
    monkeypatch.setattr(ask, "open_client", opens, raising=False)
    rows = pd.DataFrame({"custom_id": ["a"], "url": ["/v1/x"], "body": [{}]})

    async def main() -> None:
        for _ in range(2):
            calls = (ask.run(rows, MiniBatchContext(0)) for _ in range(3))
            await asyncio.gather(*calls)
        assert len(opened) == len(ask.idle) == 3
        await ask.shutdown()
        assert all(one.is_closed for one in opened)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ConnectTimeout])
def test_a_server_that_is_gone_costs_no_request_a_try(
    monkeypatch: MonkeyPatch, kind: type[httpx.TransportError]
) -> None:
    """Else all that is left of a file would be errors, though the server is up again soon."""

    def refused(request: httpx.Request) -> httpx.Response:
        raise kind("All connection attempts failed", request=request)

    client = httpx.AsyncClient(transport=httpx.MockTransport(refused), base_url="http://server")
    monkeypatch.setattr(ask, "idle", [client])
    rows = pd.DataFrame({"custom_id": ["a"], "url": ["/v1/x"], "body": [{}]})
    told = r"nothing answers at http://server \(All connection attempts failed\)"
    with pytest.raises(ConnectionError, match=told) as raised:
        asyncio.run(ask.run(rows, MiniBatchContext(0)))
    assert throttle_of(raised.value) == Throttle(None)
    assert raised.value.__suppress_context__, "its traceback would have nothing but httpx in it"
