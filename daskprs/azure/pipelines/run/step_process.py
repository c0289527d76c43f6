"""The process of a step: a command, or the driver of a parallel step's job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs.azure.pipelines.command_step import Command
from daskprs.azure.pipelines.parallel_step import written
from daskprs.azure.step_logs import link_driver_log
from daskprs.folders.job_folder import JobFolder
from daskprs.system import bound_process
from daskprs.system import supervised_process as command_process
from daskprs.system.atomic_file import whole_file
from daskprs.system.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.azure.pipelines.step import Step
    from daskprs.folders.pipeline_folder import PipelineFolder

DRIVER = "daskprs.cli.step_driver"
"""The module that runs a task from a file."""
COMMAND_GRACE_S, JOB_GRACE_S = 10.0, 120.0
"""Seconds that a process may take to end before it is killed."""
LAST_LINES = 20


class StepProcess:
    """A running process of a step.

    Parameters
    ----------
    step
        The step that the process runs.
    folder
        The folder of the pipeline's run.

    """

    def __init__(self, step: Step, folder: PipelineFolder) -> None:
        self.step = step
        self.began_s = time.monotonic()
        self.why = ""
        """The reason why the process was ended; empty if it was not."""
        self._log = folder.log(step.name)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(step.work, Command):
            link_driver_log(JobFolder(folder.step(step.name)), self._log)
        self._shown = self._log.stat().st_size if self._log.exists() else 0
        work = step.work
        self._is_command = isinstance(work, Command)
        self._timeout_s = work.timeout_s if isinstance(work, Command) else None
        self._kill_at_s: float | None = None
        program, place, environment = _program(step, folder)
        arguments = (command_process if self._is_command else bound_process).arguments
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - it is what the user asked for
                arguments(program),
                cwd=place,
                env=environment,
                # The pipe closes when this process ends, which the command's keeper notices.
                stdin=subprocess.PIPE if self._is_command else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that only this process passes Ctrl-C on
            )

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs; end it after its timeout."""
        now = time.monotonic()
        if self._timeout_s is not None and now > self.began_s + self._timeout_s and not self.why:
            self.end(f"it took longer than its limits.timeout of {self._timeout_s:g} s")
        if self._kill_at_s is not None and now > self._kill_at_s:
            self._kill()
        code = self._process.poll()
        if code is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def end(self, why: str) -> None:
        """Ask the process to end; kill it if it does not."""
        self.why = self.why or why
        grace_s = COMMAND_GRACE_S if self._is_command else JOB_GRACE_S
        self._kill_at_s = self._kill_at_s or time.monotonic() + grace_s
        with suppress(ProcessLookupError):
            if self._is_command:
                os.killpg(self._process.pid, signal.SIGTERM)
            else:  # the driver ends its agents itself
                os.kill(self._process.pid, signal.SIGTERM)

    def new_lines(self) -> Iterator[str]:
        """Yield the lines that the process wrote since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._shown)
            new = log.read()
        if self._process.returncode is None:
            new = new[: new.rfind(b"\n") + 1]
        self._shown += len(new)
        yield from new.decode(errors="replace").splitlines()

    def last_lines(self) -> str:
        """Return the end of the process's log."""
        lines = self._log.read_text(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def _kill(self) -> None:
        for pid in [*descendants(self._process.pid), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _program(
    step: Step, folder: PipelineFolder
) -> tuple[list[str], str | None, dict[str, str] | None]:
    """Return arguments, working directory and environment."""
    if isinstance(step.work, Command):
        program, place, environment = step.work.process(step.name, folder)
        return program, str(place), environment
    path = folder.task(step.name)
    with whole_file(path) as file:
        file.write(written(step.work).encode())
    return [sys.executable, "-m", DRIVER, str(path)], None, None
