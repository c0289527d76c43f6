"""What the service refuses: a status, and the body that Azure's documentation gives errors."""

from __future__ import annotations

from typing import Any

NO_DEPLOYMENT = "No valid deployments to route to"
"""What those who know batch endpoints look for in a message."""


class Refusal(Exception):  # noqa: N818 - it says what happens
    """A request that is answered by an error.

    Parameters
    ----------
    status
        Of HTTP.
    code
        For programs.
    message
        For people.
    target
        Which part of the request it is about.
    details
        More of the same kind, one for each mistake.
    headers
        That belong to the status.

    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        target: str | None = None,
        details: list[Refusal] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.details = details or []
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        """What is sent."""
        return {"error": self.told()}

    def told(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "code": self.code,
            "message": self.message,
            "target": self.target,
            "details": [one.told() for one in self.details],
        }


def unauthorized(code: str, message: str) -> Refusal:
    """Return the answer to a request without a token that counts here (RFC 6750, section 3)."""
    kind = "" if code == "MissingToken" else ', error="invalid_token"'
    return Refusal(
        401, code, message, headers={"WWW-Authenticate": f'Bearer realm="daskprs"{kind}'}
    )


def not_found(kind: str, name: str, target: str) -> Refusal:
    """Return the answer to a request for what is not there."""
    return Refusal(404, "NotFound", f"There is no {kind} {name!r}.", target=target)
