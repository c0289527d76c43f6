"""A run of a pipeline: its steps in order, independent steps in parallel."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from daskprs._agent.script.side_inputs import version_of
from daskprs._core.ending import EXIT_INTERRUPTED, JobStatus
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._job.frontend import Surface
from daskprs._job.job_end import status_by
from daskprs._job.result import ParallelRunResult
from daskprs._options.run_options import refuse_short_secret, variable_digests
from daskprs._options.site_defaults import site_defaults
from daskprs._output.journal.history import History
from daskprs._system.file_lock import held
from daskprs.azure._pipeline_folder import read_record, write_record
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._pipelines.parallel_step import written
from daskprs.azure._pipelines.run.result import (
    CANCELED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    NOT_STARTED,
    PipelineResult,
    StepResult,
    in_words,
)
from daskprs.azure._pipelines.run.step_process import StepProcess
from daskprs.azure._pipelines.run.step_reuse import StepReuse, clear, without_secrets
from daskprs.azure._step_logs import tell_parent
from daskprs.errors import (
    DaskprsError,
    JobFolderError,
    Option,
    OptionError,
    ParallelRunCanceled,
    ParallelRunInterrupted,
    PipelineFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.file import Pipeline
    from daskprs.azure._pipelines.step import Step

LOOK_EVERY_S = 0.05


class PipelineRun:
    """One run of a pipeline in a folder.

    `show` receives lines: the output of steps, and their outcomes. With `resume`, steps that are
    Completed are kept, and `again` has more options for the resumed jobs. `secrets` are masked in
    what commands write, as jobs mask them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        folder: PipelineFolder,
        show: Callable[[str], None],
        *,
        resume: bool = False,
        again: Mapping[str, Any] | None = None,
        secrets: Sequence[str] = (),
        surface: Surface | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._folder = folder
        self._show = show
        self._resume = resume
        self._again = again or {}
        self._secrets = secrets
        self._surface = surface or Surface()
        self._status = dict.fromkeys(pipeline.steps, NOT_STARTED)
        self._took: dict[str, float] = {}
        self._anew: set[str] = set()
        """Steps that were run, not kept: the steps that need them run as well."""
        self._reuse = StepReuse(folder, secrets)
        self._running: dict[str, StepProcess] = {}
        self._failures: list[str] = []
        self._began_s = time.monotonic()
        self._before: dict[str, Any] = {}
        self._read: dict[str, dict[str, str]] = {}
        """By step, the versions of its inputs that other steps have made, as it began."""

    def run(self) -> PipelineResult:
        """Run the pipeline to its end; raise PipelineFailed with the result when a step failed."""
        steps = self._pipeline.steps
        self._folder.create(steps, shared=bool(site_defaults().get("shared")))
        with held(self._folder.lock, f"the folder {self._folder}"):
            self._before = self._read_record()
            self._folder.cancel.unlink(missing_ok=True)
            self._keep_record()
            for notice in self._pipeline.notices:
                self._show(notice)
            try:
                self._work()
            except KeyboardInterrupt as interrupt:
                if status_by(interrupt) is JobStatus.INTERRUPTED:
                    raise self._interrupted("SIGTERM has asked it to end") from None
                self._end_all("the pipeline was interrupted")
                self._keep_record()
                msg = f"The pipeline is Canceled: it was interrupted. {self._how_to_go_on()}"
                raise ParallelRunCanceled(msg, self._result(CANCELED)) from None
            finally:
                self._end_all("the pipeline ended")
            self._keep_record()
        result = self._result()
        if self._failures:
            raise PipelineFailed("\n".join([*self._failures, self._how_to_go_on()]), result)
        return result

    def _interrupted(self, why: str) -> ParallelRunInterrupted:
        """End the running steps, and return the error of a pipeline whose time is over."""
        self._end_all(why, INTERRUPTED)
        self._keep_record()
        msg = f"The pipeline is Interrupted: {why}. {self._how_to_go_on()}"
        return ParallelRunInterrupted(msg, self._result(INTERRUPTED))

    # ---- steps ----

    def _work(self) -> None:
        steps = self._pipeline.steps
        sorter = TopologicalSorter({name: step.needs for name, step in steps.items()})
        sorter.prepare()
        while sorter.is_active():
            for name in sorter.get_ready():
                if self._may_start(steps[name]) and not self._is_done(steps[name]):
                    self._start(steps[name])
                if name not in self._running:
                    sorter.done(name)
            if self._failures and not self._pipeline.goes_on:
                self._end_all("another step failed")
                return
            for name in self._ended():
                if self._status[name] == INTERRUPTED:
                    why = f"the time of its step {name!r} was over"
                    raise self._interrupted(why)
                sorter.done(name)
            if self._running:
                time.sleep(LOOK_EVERY_S)

    def _may_start(self, step: Step) -> bool:
        """Say whether all that the step needs is done."""
        if any(self._status[name] != COMPLETED for name in step.needs):
            return False
        for name, bound in step.inputs.items():
            if bound.is_path and bound.makers and not bound.path.exists():
                steps = " or ".join(map(repr, bound.makers))
                problem = f"the step {steps} has not written {bound.path}"
                self._fail(step.name, f"its input {name!r} is not there: {problem}")
                return False
        return True

    def _is_done(self, step: Step) -> bool:
        """Say whether this run or an earlier run has completed the step."""
        if self._keep(step):
            return True
        there = self._reuse.taken(step)
        if there is None:
            return False
        self._anew.add(step.name)
        self._status[step.name] = COMPLETED
        self._show(f"{step.name}: reused, {there} has done the same")
        return True

    def _keep(self, step: Step) -> bool:
        """Keep the result of an earlier run."""
        before = self._before.get(step.name, {})
        known = _definitions(step, self._secrets)
        same = before.get("definition") in known and not step.needs & self._anew
        self._read[step.name] = now = _versions_made(step)
        if same and before.get("status") == COMPLETED:
            if before.get("read") == now:
                self._status[step.name] = COMPLETED
                self._show(f"{step.name}: kept, it is Completed")
                return True
            self._show(f"{step.name}: was Completed, but what it read has changed since")
            same = False
        if not same and before:
            has_run = before.get("status") != NOT_STARTED
            if has_run and before.get("definition") not in known:
                self._show(f"{step.name}: its definition has changed since, so it runs anew")
            shutil.rmtree(self._folder.step(step.name), ignore_errors=True)
        return False

    def _start(self, step: Step) -> None:
        self._anew.add(step.name)
        clear(step, self._folder)
        for bound in step.outputs.values():
            place = bound.path.parent if bound.is_file else bound.path
            place.mkdir(parents=True, exist_ok=True)
        self._show(f"{step.name}: started")
        try:
            process = StepProcess(self._as_resumed(step), self._folder, self._secrets)
        except OSError as error:
            self._fail(step.name, f"its process cannot be started: {_why_not_started(error)}")
            return
        self._running[step.name] = process
        self._status[step.name] = "Running"
        self._keep_record()

    def _has_begun(self, step: Step) -> bool:
        """Return whether a job has begun in the folder of a step; False for a command."""
        return has_begun(JobFolder(self._folder.step(step.name)))

    def _as_resumed(self, step: Step) -> Step:
        """Return a step that resumes its job if one has begun in its folder."""
        if isinstance(step.work, Command) or not self._has_begun(step):
            return step
        options = {**step.work.options, **self._again, "resume": True}
        return replace(step, work=replace(step.work, options=options))

    def _ended(self) -> list[str]:
        """Return the steps that have ended, and report their outcomes."""
        ended = []
        for name, process in list(self._running.items()):
            code = process.poll()
            for line in process.new_lines(is_over=code is not None):
                self._show(f"[{name}] {line}")
            if code is None:
                continue
            del self._running[name]
            ended.append(name)
            self._took[name] = time.monotonic() - process.began_s
            self._copy_logs(process.step)
            if code == 0:
                shutil.rmtree(self._folder.code(name), ignore_errors=True)
                self._reuse.done(process.step)
                self._status[name] = COMPLETED
                lost = in_words(self._failed_in(process.step))
                self._show(f"{name}: Completed in {self._took[name]:.1f} s{lost}")
            elif code == EXIT_INTERRUPTED and not isinstance(process.step.work, Command):
                self._status[name] = INTERRUPTED
                self._show(f"{name}: Interrupted")
            else:
                why = process.why or f"it ended with exit code {code}"
                log = self._folder.log(name)
                told = f"{why}. The end of {log}:\n{process.last_lines()}"
                if self._surface.has_shown:
                    told = f"{why}. Its output is above, behind [{name}], and in {log}."
                self._fail(name, told + _removed_told(process.step))
            self._keep_record()
        return ended

    def _copy_logs(self, step: Step) -> None:
        folder = JobFolder(self._folder.step(step.name))
        try:
            tell_parent(folder, step.name, self._folder, step.others)
        except OSError as error:  # the step's work is done all the same
            self._show(f"{step.name}: its logs cannot be copied: {error}")

    def _fail(self, name: str, problem: str) -> None:
        self._status[name] = FAILED
        self._failures.append(f"The step {name!r} failed: {problem}")
        self._show(f"{name}: Failed")

    def _end_all(self, why: str, status: str = CANCELED) -> None:
        """End the running steps."""
        if self._running and status == CANCELED:
            self._folder.cancel.touch()
        for process in self._running.values():
            process.end(why)
        while self._running:
            for name, process in list(self._running.items()):
                if process.poll() is not None:
                    del self._running[name]
                    self._status[name] = status
                    self._show(f"{name}: {status}, since {why}")
            time.sleep(LOOK_EVERY_S)

    # ---- records and reports ----

    def _read_record(self) -> dict[str, Any]:
        found = read_record(self._folder)
        if found is not None and not self._resume:
            problem = f"the folder {self._folder} holds a run of a pipeline already. Resume it by "
            way = (Option("resume", value=True), ", or use another ", Option("job_dir"), ".")
            raise JobFolderError(problem, *way)
        return found or {}

    def _keep_record(self) -> None:
        steps = {
            name: {
                "status": self._status[name],
                "definition": _definitions(step, self._secrets)[0],
                "read": self._read.get(name, {}),
            }
            for name, step in self._pipeline.steps.items()
        }
        waiting = {name for name, status in self._status.items() if status == NOT_STARTED}
        steps |= {name: self._before[name] for name in waiting & self._before.keys()}
        write_record(self._folder, self._pipeline.name, steps)

    def _how_to_go_on(self) -> str:
        folder, resume = self._folder.path, self._surface.resume
        lines = [f"What is Completed is kept. To go on: {resume(folder)}"]
        steps = self._pipeline.steps.values()
        if any(self._status[one.name] == FAILED and self._has_begun(one) for one in steps):
            lines.append(f"To go on with a mended script: {resume(folder, 'script')}")
        return "\n".join(lines)

    def _failed_in(self, step: Step) -> int:
        """Return the number of mini-batches that failed in a step; 0 for a command."""
        if not self._has_begun(step):
            return 0
        with suppress(DaskprsError):  # the status of the step says what is wrong with its folder
            ended = History(JobFolder(self._folder.step(step.name))).ended
            return 0 if ended is None else ParallelRunResult.of(ended).mini_batches.failed
        return 0

    def _result(self, status: str = COMPLETED) -> PipelineResult:
        steps = {
            name: StepResult(
                self._status[name],
                self._folder.step(name),
                self._folder.log(name),
                step.places,
                self._took.get(name, 0.0),
                step.component,
                self._failed_in(step),
            )
            for name, step in self._pipeline.steps.items()
        }
        outputs = {name: bound.path for name, bound in self._pipeline.outputs.items()}
        elapsed_s = time.monotonic() - self._began_s
        status = FAILED if self._failures else status
        return PipelineResult(status, steps, outputs, self._folder.path, elapsed_s)


def _removed_told(step: Step) -> str:
    """Return a line on outputs whose folders a command has removed before it failed."""
    if not isinstance(step.work, Command):
        return ""
    gone = [name for name, one in step.outputs.items() if not one.is_file and not one.path.exists()]
    return "".join(
        f"\nThe command has removed the folder of its output {name!r}, which is made before it "
        f"starts. If the command empties the folder, write: rm -rf ${{{{outputs.{name}}}}}/*"
        for name in gone
    )


def _versions_made(step: Step) -> dict[str, str]:
    """Return the versions of the inputs that other steps have made.

    Other inputs do not count: the folder of a run may lie in one of them. Neither do those of a
    step that writes into a folder of several steps: it may be the one that it reads.
    """
    made = () if step.shares else step.inputs.items()
    return {name: version_of(bound.path) for name, bound in made if bound.makers}


def _definitions(step: Step, secrets: Sequence[str]) -> tuple[str, ...]:
    """Return the definition of a step, and how earlier runs may have recorded the same one.

    A step whose definition changed runs again. The values of secrets do not count: a key may
    be rotated. An earlier run may have had no such secrets.
    """
    digests = variable_digests(_variables(step))
    without = without_secrets(digests, secrets)
    return tuple(_definition(step, one) for one in (without, digests))


def check_secrets(names: Sequence[str], steps: Iterable[Step]) -> None:
    """Refuse a secret that neither a step nor the caller has, and one that is too short."""
    of_steps = [_variables(step) for step in steps]
    for name in names:
        values = [known[name] for known in (*of_steps, os.environ) if name in known]
        if not values:
            msg = (
                f"{Option('secrets', (name,))}: no step has such a variable, and neither has the "
                "environment of this call. Set it there."
            )
            raise OptionError(msg)
        for value in values:
            refuse_short_secret(name, value)


def _variables(step: Step) -> Mapping[str, str]:
    work = step.work
    if isinstance(work, Command):
        return work.variables
    return work.options.get("environment_variables") or {}


def _definition(step: Step, variables: Mapping[str, Any]) -> str:
    work = step.work
    if isinstance(work, Command):
        record = {**work.record(), "variables": variables}
    else:
        record = json.loads(written(work, variables))
        del record["assets"]
        for name in ("overwrite", "secrets"):
            record["options"].pop(name, None)
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _why_not_started(error: OSError) -> str:
    if error.errno == errno.E2BIG:
        return (
            "its command, or its variables, are too long for the system (128 KiB for one argument)."
            " Pass a long value by a file, as an input of the type uri_file."
        )
    return str(error)
