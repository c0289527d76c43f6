"""The process of a step: a command, or the driver of a parallel step's job."""

from __future__ import annotations

import json
import math
import os
import time
from typing import IO, TYPE_CHECKING

from daskprs._agent.supervision.masked_log import MaskedLog
from daskprs._folders.job_folder import JobFolder
from daskprs._system.atomic_file import whole_file
from daskprs._system.child_process import ChildProcess, bound
from daskprs._system.interrupts import cancelled_by
from daskprs._system.masks import mask_of
from daskprs.azure._pipeline_folder import ScriptFolder
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._pipelines.parallel_step import written
from daskprs.azure._run_place import RunPlace
from daskprs.azure._step_logs import link_driver_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.step import Step

DRIVER = "daskprs._cli.driver_process"
COMMAND_GRACE_S, JOB_GRACE_S = 10.0, 120.0
"""Seconds that a process may take to end before it is killed."""
LAST_LINES = 20


class StepProcess:
    """A running process of a step, in the folder of the pipeline's run.

    `secrets` are masked in the log of a command; a job masks them itself.
    """

    def __init__(self, step: Step, folder: PipelineFolder, secrets: Sequence[str] = ()) -> None:
        self.step = step
        self.began_s = time.monotonic()
        self.why = ""
        """The reason why the process was ended; empty if it was not."""
        self._log = folder.log(step.name)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._begins_at = self._log.stat().st_size if self._log.exists() else 0
        self._shown = self._begins_at
        self._timeout_s, self._grace_s = math.inf, JOB_GRACE_S
        self._masked: MaskedLog | None = None
        if isinstance(step.work, Command):
            link_driver_log(JobFolder(folder.step(step.name)), self._log)
            self._timeout_s, self._grace_s = step.work.timeout_s or math.inf, COMMAND_GRACE_S
            known = {**os.environ, **step.work.variables}
            if mask := mask_of(*(known[name] for name in secrets if name in known)):
                self._masked = MaskedLog(str(self._log), mask)
        file = self._log if self._masked is None else self._masked.writer
        with open(file, "ab") as log:  # noqa: PTH123 - it may be a pipe
            self._process = _started(step, folder, log)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs; end it after its timeout."""
        if time.monotonic() > self.began_s + self._timeout_s and not self.why:
            self.end(f"it took longer than its limits.timeout of {self._timeout_s:g} s")
        code = self._process.poll()
        if code is not None and self._masked is not None:
            self._masked.wait()
        return code

    def end(self, why: str) -> None:
        """Ask the process to end; kill it if it does not."""
        self.why = self.why or why
        self._process.cancel(self._grace_s)

    def new_lines(self, *, is_over: bool) -> Iterator[str]:
        """Yield the lines written since the last call, and half a line at the end."""
        with self._log.open("rb") as log:
            log.seek(self._shown)
            new = log.read()
        if not is_over:
            new = new[: new.rfind(b"\n") + 1]
        self._shown += len(new)
        yield from new.decode(errors="replace").splitlines()

    def last_lines(self) -> str:
        """Return the end of what this process has written to its log."""
        with self._log.open("rb") as log:
            log.seek(self._begins_at)
            lines = log.read().decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-LAST_LINES:])


def _started(step: Step, folder: PipelineFolder, log: IO[bytes]) -> ChildProcess:
    kept = ScriptFolder(folder.step(step.name)).assets
    if paths := step.work.assets.paths:
        with whole_file(kept, durable=False) as file:
            file.write(json.dumps(dict(paths)).encode())
    else:
        kept.unlink(missing_ok=True)
    if isinstance(step.work, Command):
        program, place, environment = step.work.process(step.name, folder)
        return ChildProcess(program, log, is_supervised=True, cwd=place, env=environment)
    path = folder.task(step.name)
    stores = step.work.assets.datastores
    run = RunPlace(folder.step(step.name), None, stores, may_be_unseen=True)
    variables = {**run.variables(), **(step.work.options.get("environment_variables") or {})}
    with whole_file(path) as file:
        file.write(written(step.work, {}).encode())
    told = json.dumps({"variables": variables}).encode()
    variables = {**os.environ, **cancelled_by(folder.cancel)}
    return ChildProcess(bound(DRIVER, "step", str(path)), log, told=told, env=variables)
