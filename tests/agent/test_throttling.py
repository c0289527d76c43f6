"""What clients of HTTP raise for an endpoint that wants fewer requests is recognized."""

from __future__ import annotations

import io
import math
import sys
import time
import urllib.error
from decimal import Decimal
from email.message import Message
from email.utils import formatdate
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
import requests
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from daskprs._agent.child.throttling import Throttle, throttle_of
from daskprs._agent.foreign.entry_script import MiniBatchContext, Throttled
from daskprs._agent.protocol.answers import _COLUMNS

HEADERS = {"Retry-After": "7"}
URL_ = "http://127.0.0.1/v1"


def of_httpx(status: int, headers: dict[str, str], text: str = "") -> Exception:
    request = httpx.Request("POST", URL_)
    response = httpx.Response(status, headers=headers, text=text, request=request)
    return httpx.HTTPStatusError("refused", request=request, response=response)


def of_requests(status: int, headers: dict[str, str], text: str = "") -> Exception:
    response = requests.Response()
    response.status_code, response._content = status, text.encode()
    response.headers.update(headers)
    return requests.HTTPError("refused", response=response)


def of_aiohttp(status: int, headers: dict[str, str], text: str = "") -> Exception:
    del text  # it is not read
    answer: Any = CIMultiDictProxy(CIMultiDict(headers))
    asked = aiohttp.RequestInfo(URL(URL_), "POST", answer, URL(URL_))
    return aiohttp.ClientResponseError(asked, (), status=status, headers=answer)


def of_urllib(status: int, headers: dict[str, str], text: str = "") -> Exception:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    return urllib.error.HTTPError(URL_, status, "refused", message, io.BytesIO(text.encode()))


class RateLimitError(Exception):
    """As the clients of OpenAI and Anthropic raise it: with status, answer and code."""

    def __init__(self, status: int, headers: dict[str, str], text: str = "") -> None:
        super().__init__("refused")
        self.status_code = status
        self.response = httpx.Response(status, headers=headers, text=text)
        self.code = "insufficient_quota" if "insufficient_quota" in text else None


CLIENTS = [of_httpx, of_requests, of_aiohttp, of_urllib, RateLimitError]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [429, 503])
def test_each_client_tells_status_and_seconds(client: Any, status: int) -> None:
    assert throttle_of(client(status, HEADERS)) == Throttle(7.0)
    assert throttle_of(client(status, {})) == Throttle(None)
    assert throttle_of(client(500, HEADERS)) is None
    assert throttle_of(client(404, {})) is None


@pytest.mark.parametrize("client", [of_httpx, of_requests, RateLimitError])
def test_a_spent_quota_is_told_by_its_code(client: Any) -> None:
    text = '{"error": {"code": "insufficient_quota"}}'
    assert throttle_of(client(429, {}, text)) == Throttle(None, is_exhausted=True)


def test_the_header_may_be_a_date_or_milliseconds() -> None:
    at = formatdate(time.time() + 100, usegmt=True)
    throttle = throttle_of(of_httpx(429, {"Retry-After": at}))
    assert throttle is not None
    assert throttle.after_s is not None
    assert 90 < throttle.after_s <= 100
    assert throttle_of(of_httpx(429, {"retry-after-ms": "250"})) == Throttle(0.25)
    assert throttle_of(of_httpx(429, {"Retry-After": "soon"})) == Throttle(None)
    assert throttle_of(of_httpx(429, {"Retry-After": "-3"})) == Throttle(0.0)
    assert throttle_of(of_httpx(429, {"Retry-After": "inf"})) == Throttle(None)


def test_a_date_says_nothing_where_the_script_has_a_module_email(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is still one that wants fewer requests."""
    monkeypatch.setitem(sys.modules, "email.utils", None)
    assert throttle_of(of_httpx(429, {"Retry-After": formatdate(usegmt=True)})) == Throttle(None)


def test_an_error_that_was_raised_from_one_counts() -> None:
    def raised(error: BaseException, cause: BaseException) -> BaseException:
        error.__cause__ = cause
        return error

    inner = of_httpx(429, HEADERS)
    assert throttle_of(raised(RuntimeError("no answer"), inner)) == Throttle(7.0)
    assert throttle_of(Throttled(3.0)) == Throttle(3.0)
    while_handled = RuntimeError("a mistake in the handler")
    while_handled.__context__ = inner
    assert throttle_of(while_handled) is None


def test_the_script_may_say_any_number_of_seconds() -> None:
    """One that has been computed may be in the past; the supervisor takes what is sent."""
    context = MiniBatchContext(0)
    known = ((-2.5, 0.0), (Decimal("1.5"), 1.5), (np.int64(3), 3.0), (" 2", 2.0), (None, None))
    for given, seconds in known:
        with pytest.raises(Throttled) as raised:
            context.throttled(given)  # type: ignore[arg-type] # as scripts do
        throttle = throttle_of(raised.value)
        assert throttle == Throttle(seconds)
        _COLUMNS["wait_s"]("wait_s", (throttle.after_s,))
    for odd in (math.inf, math.nan, "Wed, 21 Oct 2026 07:28:00 GMT", {}):
        with pytest.raises(ValueError, match="a number of seconds"):
            context.throttled(odd)  # type: ignore[arg-type] # as scripts do


def test_a_group_counts_if_all_its_errors_do() -> None:
    group = ExceptionGroup("requests", [of_httpx(429, HEADERS), of_requests(503, {})])
    assert throttle_of(group) == Throttle(7.0)
    assert throttle_of(ExceptionGroup("mixed", [of_httpx(429, {}), ValueError("bad")])) is None


def test_an_error_with_properties_that_fail_is_just_an_error() -> None:
    class OddError(Exception):
        @property
        def response(self) -> None:
            raise OSError

    assert throttle_of(OddError()) is None
    assert throttle_of(SystemExit(429)) is None
