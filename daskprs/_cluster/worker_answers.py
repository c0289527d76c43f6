"""What a function returns on all workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client


def answers_of(client: Client, function: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """Return what a function returns, by worker; a worker that dies meanwhile is left out."""
    answers = client.run(function, *given, on_error="return")
    for error in answers.values():
        if isinstance(error, Exception) and not isinstance(error, OSError):
            raise error
    return {worker: one for worker, one in answers.items() if not isinstance(one, Exception)}
