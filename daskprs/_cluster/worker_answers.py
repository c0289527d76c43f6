"""What a function returns on all workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client


def answers_of(
    client: Client, function: Callable[..., Any], *given: Any
) -> tuple[dict[str, Any], list[OSError]]:
    """Return what a function returns, by worker, and the errors of workers that die meanwhile."""
    answers, lost = {}, []
    for worker, one in client.run(function, *given, on_error="return").items():
        if isinstance(one, OSError):
            lost.append(one)
        elif isinstance(one, Exception):
            raise one
        else:
            answers[worker] = one
    return answers, lost
