"""Errors of the service: an HTTP status, and an error body as Azure documents it."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):  # noqa: N818 - it says what happens
    """A request that the service answers with an HTTP status and an error.

    `target` is the part of the request that is wrong. `details` has an error for each mistake of a
    request.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        target: str | None = None,
        details: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.error = {"code": code, "message": message, "target": target, "details": details or []}


def unauthorized(code: str, message: str) -> Refusal:
    """Return the answer to a request without a valid token (RFC 6750, section 3)."""
    kind = "" if code == "MissingToken" else ', error="invalid_token"'
    return Refusal(
        401, code, message, headers={"WWW-Authenticate": f'Bearer realm="daskprs"{kind}'}
    )


def not_found(kind: str, name: str, target: str) -> Refusal:
    """Return the answer to a request for something that does not exist."""
    return Refusal(404, "NotFound", f"There is no {kind} {name!r}.", target=target)
