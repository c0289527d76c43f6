"""Rules for the client of a call, and the client that Dask has for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from daskprs.errors import OptionError

SCHEDULER_FILE = ".json"
"""The end of a client's name that is a scheduler file and no address."""
START = "Write await daskprs.start(data, script, client=client), or make"


def check_client(client: Any, *, blocks: bool = True) -> Any:
    """Reject values that are not a client, without importing Dask; make file names absolute.

    Reject clients that need the event loop of this thread, too, if the call `blocks` the thread.
    """
    if isinstance(client, str) and client.endswith(SCHEDULER_FILE):
        return str(Path(client).absolute())
    if getattr(client, "status", None) == "closed":
        msg = f"client: it is closed, {client!r}. Make a new distributed.Client."
        raise OptionError(msg)
    if client is None or isinstance(client, str) or type(client).__name__ == "Client":
        if blocks:
            refuse_own_loop(current_client() if client is None else client, START)
        return client
    msg = (
        "client: a distributed.Client, an address such as tcp://host:8786, or a scheduler file "
        f"such as cluster.json, not {client!r}."
    )
    raise OptionError(msg)


def current_client() -> Any:
    """Return Dask's current client; None without one, or if Dask was not imported."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.default_client()
    except ValueError:
        return None


def refuse_own_loop(client: Any, instead: str = "Make") -> None:
    """Reject a client that needs the event loop of this thread, which the call would block."""
    if getattr(client, "asynchronous", False):
        msg = (
            "client: this call blocks the event loop of its thread, and the client needs that "
            f"loop, got {client!r}. {instead} the call in another thread, by await "
            "asyncio.to_thread(...)."
        )
        raise OptionError(msg)
