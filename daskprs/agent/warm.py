"""Zygotes started ahead: importing pandas in them takes as long as importing Dask here."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs.agent.zygote import Zygote
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_lock = threading.Lock()
_ahead: list[tuple[dict[str, str], str, Zygote]] = []


@contextmanager
def ahead(environment: Mapping[str, str], start_method: str) -> Iterator[None]:
    """Have a zygote within the block that a pool in this process will take; end it if none did."""
    try:
        entry = (dict(environment), start_method, Zygote(environment, start_method))
    except AgentError:  # the pool will say so, and the job has a result
        yield
        return
    try:
        with _lock:
            _ahead.append(entry)
        yield
    finally:
        with _lock:
            is_left = entry in _ahead  # jobs in other threads have theirs
            if is_left:
                _ahead.remove(entry)
        if is_left:
            entry[-1].discard()


def take(environment: Mapping[str, str], start_method: str) -> Zygote:
    """Return a zygote that was started ahead with this environment, or a new one."""
    wanted = (dict(environment), start_method)
    with _lock:
        for entry in _ahead:
            if entry[:2] == wanted:
                _ahead.remove(entry)
                return entry[2]
    return Zygote(environment, start_method)
