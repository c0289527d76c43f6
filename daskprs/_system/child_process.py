"""A program that this process starts, cancels by a signal, and whose end it reads."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from daskprs._system import supervised_process
from daskprs._system.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Sequence


class ChildProcess:
    """A running program in a session of its own, so that it receives no Ctrl-C of a terminal.

    The program outlives this process, unless it is supervised or `bound` makes its command. All
    descendants of a supervised program end with it and with this process, and its signal goes to
    the whole process group. `output` receives stdout and stderr; `options` go to `Popen`. Any other
    program reads from stdin what it is `told`, which stands in no file and no list of processes.
    """

    def __init__(
        self,
        program: Sequence[str],
        output: IO[Any],
        *,
        is_supervised: bool = False,
        told: bytes = b"",
        **options: Any,
    ) -> None:
        self._signal = os.killpg if is_supervised else os.kill
        self._kill_at_s: float | None = None
        with os.fdopen(os.memfd_create("told"), "wb+") as memory:
            memory.write(told)
            memory.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - our own modules, or what the user asked for
                supervised_process.arguments(program) if is_supervised else program,
                # This process's end closes the pipe, which the supervisor notices.
                stdin=subprocess.PIPE if is_supervised else memory,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs; kill the program in due time."""
        if self._kill_at_s is not None and time.monotonic() > self._kill_at_s:
            self.kill()
        code = self._process.poll()
        if code is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def cancel(self, grace_s: float = math.inf) -> None:
        """Ask the program to end; `poll` kills it `grace_s` seconds after the first request."""
        if self._process.poll() is None:
            self._kill_at_s = self._kill_at_s or time.monotonic() + grace_s
            with suppress(ProcessLookupError):
                self._signal(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program and its descendants, unless it has ended."""
        if self._process.poll() is None:
            for pid in [*descendants(self.pid), self.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def leave(self) -> None:
        """Let the program outlive this object, which does not read its end any more."""
        self._process.returncode = self._process.poll() or 0  # otherwise Popen warns of it


def bound(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module bound to this process.

    The module calls `die_with_parent` with its last argument. The thread that starts it has to
    stay: the kernel kills the process when that thread ends.
    """
    return [sys.executable, "-m", module, *arguments, str(os.getpid())]
