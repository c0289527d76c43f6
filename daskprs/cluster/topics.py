"""Topics of Dask, by which a job hears of its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

FORGET_AFTER_S = 5.0
"""Messages that are under way when a job ends are here by then."""


def forget(client: Client, topic: str) -> None:
    """Hear no more of a topic.

    To unsubscribe would bring it to life again on the scheduler, where it is taken away with the
    job. And a client keeps the handlers of all topics that it ever had, with all that they hold.
    """
    handlers = client._event_handlers  # noqa: SLF001
    handlers[topic] = _deaf
    client.loop.add_callback(client.loop.call_later, FORGET_AFTER_S, handlers.pop, topic, None)


def _deaf(_: object) -> None:
    """Hear nothing."""
