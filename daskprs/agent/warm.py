"""Zygotes started ahead: importing pandas in them takes as long as importing Dask here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from daskprs.agent.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Mapping

_lock = threading.Lock()
_ahead: list[tuple[dict[str, str], str, Zygote]] = []


def start(environment: Mapping[str, str], start_method: str) -> None:
    """Start a zygote that a pool in this process will take."""
    zygote = Zygote(environment, start_method)
    with _lock:
        _ahead.append((dict(environment), start_method, zygote))


def take(environment: Mapping[str, str], start_method: str) -> Zygote:
    """Return a zygote that was started ahead with this environment, or a new one."""
    wanted = (dict(environment), start_method)
    with _lock:
        for entry in _ahead:
            if entry[:2] == wanted:
                _ahead.remove(entry)
                return entry[2]
    return Zygote(environment, start_method)


def close() -> None:
    """End those that nobody took."""
    with _lock:
        left = [zygote for _, _, zygote in _ahead]
        _ahead.clear()
    for zygote in left:
        zygote.discard()
