"""How a fork of the zygote becomes an agent: its session, its descriptors, its environment."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING

from daskprs.system import linux

if TYPE_CHECKING:
    from daskprs.agent.protocol.messages import ProcessSpec

DUMP_SIGNAL = signal.SIGRTMIN + 7
"""Makes an agent write the stacks of all its threads to its stderr log."""


def settle(spec: ProcessSpec, zygote: int, keep: tuple[int, ...]) -> None:
    """Set up the process: its session, signals, environment and descriptors survive an exec.

    The agent leads a session of its own (Ctrl-C in the terminal does not reach it), dies with the
    zygote and adopts its orphans. It keeps only the descriptors of its logs and of `keep`.
    """
    os.setsid()
    linux.die_with_parent(zygote)
    linux.adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    Path(spec.working_dir).mkdir(parents=True, exist_ok=True)
    os.chdir(spec.working_dir)
    os.environ.update(spec.environment)
    _redirect(os.devnull, 0, os.O_RDONLY)
    _redirect(spec.stdout, 1, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _redirect(spec.stderr, 2, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _close_all_but(keep)


def run(connection_fd: int, page_fd: int) -> int:
    """Set up the interpreter, run the agent, and return its exit code."""
    from daskprs.agent.child.main import main

    sys.stdout, sys.stderr = _text(1), _text(2)
    faulthandler.enable(2)
    faulthandler.register(DUMP_SIGNAL, 2, all_threads=True, chain=False)
    if "numpy" in sys.modules:  # Python's own generator reseeds itself after a fork
        sys.modules["numpy"].random.seed()
    return main(Connection(connection_fd), page_fd)


def _text(fd: int) -> IO[str]:
    """Return a text file over a log that never refuses a character."""
    return io.TextIOWrapper(
        os.fdopen(fd, "wb", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _redirect(path: str, fd: int, flags: int) -> None:
    opened = os.open(path, flags, 0o644)
    if opened != fd:
        os.dup2(opened, fd)
        os.close(opened)
    else:
        os.set_inheritable(fd, True)


def _close_all_but(keep: tuple[int, ...]) -> None:
    kept = {0, 1, 2, *keep}
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - numbers
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)
