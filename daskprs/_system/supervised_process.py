"""Runs a command, and kills its descendants when it ends or the requesting process ends.

What a command leaves in the background has `GRACE_S` seconds to end by itself.

Run as ``python -m daskprs._system.supervised_process PROGRAM ARGUMENT...``. Its stdin is a pipe
that carries no bytes: its end-of-file means that the requesting process has ended.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs._system.linux import adopt_orphans, descendants

if TYPE_CHECKING:
    from collections.abc import Sequence

GRACE_S = 2.0
LOOK_EVERY_S = 0.02
FROM_SIGNAL = 128
"""Offset of a shell's exit code: for a process ended by a signal, the code is this + signal."""


def arguments(program: Sequence[str]) -> list[str]:
    """Return the command that starts a program under supervision."""
    return [sys.executable, "-m", "daskprs._system.supervised_process", *program]


def main() -> None:
    """Run the program to its end, and end with its exit code."""
    # The command is asked to end by a signal to all of its group. A handler is not inherited.
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    adopt_orphans()
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)  # noqa: S603 - the user's
    ended = os.pidfd_open(command.pid)
    ready, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
    if ended not in ready:
        end_all()
    code = command.wait()
    until_s = time.monotonic() + GRACE_S
    while _are_left() and not asked and time.monotonic() < until_s:
        if select.select([sys.stdin.fileno()], [], [], LOOK_EVERY_S)[0]:
            break
    else:
        if not asked and (left := descendants(os.getpid())):
            what = "process" if len(left) == 1 else "processes"
            told = f"daskprs: killed {len(left)} {what} that the command had left in the background"
            with suppress(OSError):  # its log is full, or gone
                os.write(2, f"{told}, {GRACE_S:g} s after its end.\n".encode())
    end_all()
    sys.exit(code if code >= 0 else FROM_SIGNAL - code)


def _are_left() -> bool:
    """Say whether descendants run, without those that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return bool(descendants(os.getpid()))


def end_all() -> None:
    """Kill all descendants: those whose parents ended are children of this process by now."""
    # In rounds, since a process may have forked between the look and the kill.
    while left := descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
