"""The entry script of a batch file: it sends the request of each row to the server.

It knows nothing of daskprs but what any script does, so that it is an example, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from daskprs import MiniBatchContext

KEY = "OPENAI_API_KEY"
AGAIN = {408, 409, 425, 429}
"""Status codes, beside those from 500 on, after which the same request may succeed."""
CONNECT_S = 30.0
"""Seconds for a connection. An answer has the timeout of the call."""
BYTES_PER_TOKEN = 4
"""Of English text; the answer says how many tokens there were."""
SHOWN = 500
"""Characters of an answer that an error shows."""
COUNTED = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "total_tokens",
)
"""Those of an answer; the third and the fourth are the first two of ``/v1/responses``."""
MOST_OF_AN_ANSWER = ("max_completion_tokens", "max_tokens", "max_output_tokens")
ENCODED = re.compile(r"[A-Za-z0-9+/_-]{1000,}")
"""Pictures, sounds and documents in base64: their bytes say nothing about their tokens."""

idle: list[httpx.AsyncClient] = []
"""Clients that no call uses, each with its connection. In a client that many calls share, each
request looks at all connections, and again for each of them: with 64, that is five times the
work."""
open_client: Callable[[], httpx.AsyncClient]


class NoServerError(ConnectionError):
    """Nothing answers: the request was not sent, and the server may be up again soon.

    daskprs pauses for this status, and charges nothing. Else each request that is tried while a
    server is away would end without an answer.
    """

    status_code = 503


async def init() -> None:
    """Read what all clients have in common."""
    global open_client  # noqa: PLW0603 - the entry script has functions only
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    key = os.environ.get(KEY)
    open_client = partial(
        httpx.AsyncClient,
        base_url=parser.parse_known_args()[0].endpoint,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        verify=httpx.create_ssl_context(),  # it takes longer to make than all the rest
    )


async def run(rows: pd.DataFrame, context: MiniBatchContext) -> list[str]:
    """Send a request, and return a line for its answer."""
    request = rows.iloc[0]
    custom_id, url, body = (request[name] for name in ("custom_id", "url", "body"))
    await context.permit(tokens=expected_tokens(body))
    client = idle.pop() if idle else open_client()
    try:
        answer = await client.post(url, json=body)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # in whose traceback is only httpx
        told = f"nothing answers at {client.base_url} ({error or type(error).__name__})"
        raise NoServerError(told) from None
    finally:
        idle.append(client)
    if answer.status_code in AGAIN or answer.is_server_error:
        # It is sent again: at once, or when the server has said, if it is busy.
        told = f"the server answers {answer.status_code}: {answer.text[:SHOWN]}"
        raise httpx.HTTPStatusError(told, request=answer.request, response=answer)
    content = content_of(answer)
    usage = usage_in(content)
    if "total_tokens" in usage:
        context.used(tokens=usage["total_tokens"])
    for name, count in usage.items():
        context.count(name, count)
    response = {
        "status_code": answer.status_code,
        "request_id": answer.headers.get("x-request-id", ""),
        "body": content,
    }
    line = {
        "id": f"batch_req_{custom_id}",
        "custom_id": custom_id,
        "response": response,
        "error": None,
    }
    return [json.dumps(line)]  # in ASCII: an answer that ends within an emoji is no UTF-8


async def shutdown() -> None:
    """Close the connections."""
    for client in idle:
        await client.aclose()


def content_of(answer: httpx.Response) -> Any:
    """Return what the server answers; pages of proxies and of other servers are no answers."""
    try:
        return answer.json()
    except ValueError as error:
        told = f"the server answers {answer.status_code} without JSON: {answer.text[:SHOWN]}"
        raise ValueError(told) from error


def usage_in(content: Any) -> dict[str, int]:
    """Return how many tokens an answer tells of; some servers leave out a number, or write null."""
    usage = content.get("usage") if isinstance(content, dict) else None
    told = usage if isinstance(usage, dict) else {}
    counts = {name: told.get(name) for name in COUNTED}
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


def expected_tokens(body: dict[str, Any]) -> int:
    """Return about how many tokens a request costs: its own, and the most of an answer."""
    told = (body.get(name) for name in MOST_OF_AN_ANSWER)
    most = next((one for one in told if type(one) is int and one > 0), 0)
    sent = ENCODED.sub("", json.dumps(body, ensure_ascii=False))
    return len(sent.encode("utf-8", "replace")) // BYTES_PER_TOKEN + most
