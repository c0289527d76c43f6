"""The names under which a cluster knows a job, and its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

FORGET_AFTER_S = 5.0
"""Seconds in which messages under way at the end of a job arrive."""


def plugin_name(job_id: str) -> str:
    """Return the name of a job's plugins on the cluster."""
    return f"daskprs-{job_id}"


def logs_topic(job_id: str) -> str:
    """Return the topic on which leaving workers publish the rest of their agents' logs."""
    return f"{plugin_name(job_id)}-logs"


def forget(client: Client, topic: str) -> None:
    """Drop our handler of a topic without unsubscribing.

    Unsubscribing would recreate the topic on the scheduler, where it is removed with the job. And
    a client keeps the handlers of all topics that it ever had, with all objects that they hold.
    """
    handlers = client._event_handlers  # noqa: SLF001
    handlers[topic] = deaf
    client.loop.add_callback(client.loop.call_later, FORGET_AFTER_S, handlers.pop, topic, None)


def deaf(_: object) -> None:
    """Ignore a message."""
