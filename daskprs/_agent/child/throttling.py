"""Answers of an endpoint that want fewer requests, as the exceptions of its clients show them.

The classes of `httpx`, `requests`, `aiohttp`, `urllib`, `openai`, `anthropic` and others have these
attributes. None of these packages is imported.
"""

from __future__ import annotations

import time
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.foreign.entry_script import Throttled

if TYPE_CHECKING:
    from collections.abc import Iterator

TOO_MANY, UNAVAILABLE, OVERLOADED = 429, 503, 529
"""The statuses that ask for a pause. The last one is that of Anthropic's API."""
NO_QUOTA = "insufficient_quota"
"""The code of an account that has nothing left: no pause helps."""
MOST_LINKS = 20
BODY_CHARS = 10_000
"""Characters of an answer in which the code is looked for."""


class Throttle(NamedTuple):
    """What an endpoint wants."""

    after_s: float | None
    """Seconds after which it wants the next request; None: it does not say."""
    is_exhausted: bool = False
    """Whether the quota of the account is spent."""


def throttle_of(error: BaseException) -> Throttle | None:
    """Return what the endpoint wants that an exception tells of; None for any other exception.

    The errors that it was raised from count, too. A group counts if all its errors do.
    """
    for link in _links(error):
        if isinstance(link, BaseExceptionGroup):
            found = [throttle_of(one) for one in link.exceptions]
            known = [one for one in found if one is not None]
            if len(known) < len(found):
                return None
            pauses = [one.after_s for one in known if one.after_s is not None]
            is_exhausted = any(one.is_exhausted for one in known)
            return Throttle(max(pauses, default=None), is_exhausted)
        if isinstance(link, Throttled):
            return Throttle(link.after_s)
        with suppress(Exception):  # an attribute may be a property of the script
            if (throttle := _of_answer(link)) is not None:
                return throttle
    return None


def _links(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it was raised from."""
    link: BaseException | None = error
    for _ in range(MOST_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__


def _of_answer(error: BaseException) -> Throttle | None:
    if not isinstance(error, Exception):  # SystemExit has a code, too
        return None
    response = getattr(error, "response", None)
    status = next(
        (
            value
            for holder in (error, response)
            for name in ("status_code", "status", "code")
            if type(value := getattr(holder, name, None)) is int
        ),
        None,
    )
    if status not in (TOO_MANY, UNAVAILABLE, OVERLOADED):
        return None
    if status == TOO_MANY and _is_exhausted(error, response):
        return Throttle(None, is_exhausted=True)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    return Throttle(None if headers is None else retry_after_s(headers))


def _is_exhausted(error: BaseException, response: Any) -> bool:
    own = vars(error)  # as a property, aiohttp's code warns whoever reads it
    if NO_QUOTA in (own.get("code"), own.get("type")):
        return True
    with suppress(Exception):  # a stream that was not read has no text
        text = response.text
        return isinstance(text, str) and NO_QUOTA in text[:BODY_CHARS]
    return False


def retry_after_s(headers: Any) -> float | None:
    """Return the seconds in the header ``Retry-After``, or until its date; None without one."""
    for name, unit in (("retry-after-ms", 1e-3), ("Retry-After", 1.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        with suppress(ValueError):
            seconds = float(text) * unit
            return max(0.0, seconds) if isfinite(seconds) else None
        with suppress(Exception):  # no date; or the script's own module `email` is found
            from email.utils import parsedate_to_datetime  # the package is rarely needed

            return max(0.0, parsedate_to_datetime(str(text)).timestamp() - time.time())
    return None
