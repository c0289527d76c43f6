"""The profile of `run` in one process, by a module of Python: ``cProfile`` or ``profile``."""

from __future__ import annotations

import importlib
import marshal
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

WRITE_EVERY_S = 1.0
SHARE_OF_TIME = 0.05
"""Maximum share of time for writing: the profile of a large library takes a while."""


class RunProfile:
    """Profiles calls, and writes what `pstats` reads.

    The file is written about once a second, since an agent may be killed; or once, at the end.
    """

    def __init__(self, module: str, file: str, *, only_at_end: bool) -> None:
        self._profile = importlib.import_module(module).Profile()
        # `profile` cannot be called twice without it; `cProfile` can, and has no such method.
        self._complete: Callable[[], None] = getattr(
            self._profile, "simulate_cmd_complete", lambda: None
        )
        self._path = Path(file)
        self._due_s = float("inf") if only_at_end else 0.0
        self._pid = os.getpid()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, and return its result."""
        try:
            return self._profile.runcall(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - raised again
            raise error.with_traceback(_without_runcall(error.__traceback__))  # noqa: B904 - the same one
        finally:
            self._complete()
            if time.monotonic() >= self._due_s and os.getpid() == self._pid:
                self.write()

    def write(self) -> None:
        """Write the profile of all calls so far; results need a full disk more."""
        begun_s = time.monotonic()
        self._profile.create_stats()
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_name(f".{self._path.name}.part")
            with part.open("wb") as file:
                marshal.dump(self._profile.stats, file)
            part.replace(self._path)
        now_s = time.monotonic()
        self._due_s = now_s + max(WRITE_EVERY_S, (now_s - begun_s) / SHARE_OF_TIME)


def _without_runcall(tb: TracebackType | None) -> TracebackType | None:
    """Return a traceback without this module's frame, and without that of `profile`."""
    inner = tb and tb.tb_next
    return inner.tb_next if inner and inner.tb_frame.f_code.co_name == "runcall" else inner
