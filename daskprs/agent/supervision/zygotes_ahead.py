"""Zygotes started ahead: importing pandas in them takes as long as importing Dask here."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from daskprs.agent.supervision.zygote import Zygote
from daskprs.errors import AgentError
from daskprs.system.interrupts import held_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Ahead: TypeAlias = tuple[dict[str, str], str, Zygote]
"""A zygote's environment and start method, and the zygote."""
_lock = threading.Lock()
_ahead: list[Ahead] = []
"""Unused zygotes of all calls of `ahead` in this process."""


@contextmanager
def ahead(environment: Mapping[str, str], start_method: str) -> Iterator[None]:
    """Start a zygote for a pool in this process; end it after the block if no pool took it.

    A failed start is ignored here: the pool tries again and reports the error in the job's result.
    """
    started: list[Ahead] = []
    try:
        with suppress(AgentError), held_back():  # else a Ctrl-C could part it from its end
            started.append((dict(environment), start_method, Zygote(environment, start_method)))
            with _lock:
                _ahead.extend(started)
        yield
    finally:
        for entry in started:
            with _lock:
                is_left = entry in _ahead
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
