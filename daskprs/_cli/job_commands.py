"""Commands that take the FOLDER of a job: to go on with it, to look at it, to prove it."""

from __future__ import annotations

import inspect
import json
import sys
import time
from contextlib import closing, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskprs import _plugins
from daskprs._cli.as_json import JSON, json_value, show_json
from daskprs._cli.exit_codes import echo, echo_result, every_end, show
from daskprs._cli.options import (
    CONTEXT,
    EXTEND,
    OF_A_RUN,
    QUIET,
    Grouped,
    client,
    command_line,
    given,
    options,
    program_of,
    stacked,
)
from daskprs._cli.verification_text import verification_lines
from daskprs._core.ending import EXIT_CODES, EXIT_FAILED, EXIT_USAGE, JobStatus
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.joint_folder import joint_folder_at
from daskprs._job.flags import flag_of
from daskprs._job.result import items_text
from daskprs._job.way_on import way_on, way_on_mended
from daskprs._options.run_options import TABLE
from daskprs._report.progress_text import at_work_text, counts_text, now_text, slot_text
from daskprs._system.regular_files import open_regular
from daskprs._system.standard_streams import to_stderr
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from daskprs._folders.joint_folder import JointFolder, JointState
    from daskprs._job.request import CheckedCall
    from daskprs._job.status import JobState
    from daskprs._report.job_view import View

OF_A_LATER_RUN = [name for name in OF_A_RUN if not TABLE[name].changes_results]
"""Options that may differ when a job is resumed: they change no result."""
OF_THE_JOB = {f"--{flag_of(name)}" for name in OF_A_RUN if TABLE[name].changes_results}
"""Flags of `run` whose values a later run takes from the job: others would give other rows."""
AFTER_RESUME = """\b
Examples:
  daskprs resume daskprs-jobs/score-20270115-080000-1a2b3c4d
  daskprs resume scored-job --run-invocation-timeout 600 --scheduler tcp://10.0.0.1:8786
  daskprs resume scored-job --extend

\b
Exit codes:
  those of daskprs run
"""
AFTER_RETRY = """\b
Examples:
  daskprs retry-failed scored-job --script mended/score.py

\b
Exit codes:
  those of daskprs run
"""
AFTER_STATUS = """\b
Examples:
  daskprs status scored-job
  daskprs status scored-job --watch
  daskprs status scored-job --web
  daskprs status scored-job --json | jq .progress.left_s

\b
Exit codes:
  0    it is shown
  2    no job has begun in the folder
"""
AFTER_VERIFY = """\b
Examples:
  daskprs verify scored-job
  daskprs verify scored-job --input
  daskprs verify scored-job --json | jq .findings

\b
Exit codes:
  0    all that was committed lies there as it was committed
  42   something does not: the findings are shown
  2    there is no job in the folder, a driver is at work in it, or another version wrote it
"""
AFTER_RESULT = """\b
Exit codes:
       those of the job, and
  2    the job has no result: it is running, or its driver died
"""


class OfALaterRun(Grouped):
    """A command that goes on with a job: plugins add files that set environment variables."""

    heading_of_others = "Script"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the command, and those of plugins."""
        files = _plugins.own_names("variable_files")
        added = [
            click.Option(
                [f"--{name}"], metavar="FILE", help=inspect.getdoc(_plugins.loaded(dotted))
            )
            for name, dotted in files.items()
        ]
        return [*super().get_params(ctx), *added]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say of an option of `run` that only a new job takes another value."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in OF_THE_JOB:
                raise
            msg = (
                f"{error.option_name}: the job goes on with the value that it began with, since "
                "another one may give other rows. Start a new job: daskprs run."
            )
            raise click.UsageError(msg, ctx) from None


_of_a_later_run = stacked(
    click.argument("folder"),
    click.option(
        "--script", metavar="SCRIPT", help="The corrected script. Default: that of the job."
    ),
    client(". Default: the one that the job was called with."),
    click.option("--here", is_flag=True, help="On the cores of this machine, not on a cluster."),
    QUIET,
    options(["environment_variables", *OF_A_LATER_RUN]),
    click.pass_context,
)
"""The options with which a job may be resumed."""


@click.command("resume", cls=OfALaterRun, context_settings=CONTEXT, epilog=AFTER_RESUME)
@EXTEND
@_of_a_later_run
def resume(ctx: click.Context, /, folder: str, extend: bool, **values: Any) -> None:  # noqa: FBT001 - a flag
    """Resume the job in FOLDER: what it has done is not done again.

    Script, input and options are those of the original call.
    """
    _go_on(ctx, folder, "extend" if extend else True, values)


@click.command("retry-failed", cls=OfALaterRun, context_settings=CONTEXT, epilog=AFTER_RETRY)
@_of_a_later_run
def retry_failed(ctx: click.Context, /, folder: str, **values: Any) -> None:
    """Run only the mini-batches, and rows, of the job in FOLDER that failed in the end.

    The output is written anew, with the new rows in their places. The script may be corrected.
    """
    _go_on(ctx, folder, "failed", values)


@click.command("status", context_settings=CONTEXT, epilog=AFTER_STATUS)
@click.argument("folder")
@click.option("--watch", is_flag=True, help="Show the progress until the job ends.")
@click.option("--web", is_flag=True, help="Serve the report as a page that keeps up with the job.")
@JSON
@click.pass_context
def status(ctx: click.Context, /, folder: str, *, watch: bool, web: bool, as_json: bool) -> None:
    """Show the state of the job in FOLDER: running, ended, or waiting for a resume.

    For the folder of a pipeline, show its steps. Ctrl-C ends only this command.
    """
    with every_end():
        from daskprs._job.status import state_of

        if web:
            _serve_page(job_at(folder))
            return
        joint = joint_folder_at(folder)
        if joint is not None:
            _show_joint(joint, folder, watch=watch, as_json=as_json)
            return
        job = JobFolder(folder)
        if watch:
            _watch(job, as_json=as_json)
        state = state_of(job)
        if as_json and watch:
            echo(json.dumps(json_value(state.record(job))))
        elif as_json:
            show_json(state.record(job))
        else:
            echo("\n".join(_lines(state, job, ctx)))


def _serve_page(folder: JobFolder) -> None:
    """Serve the report of a job until an interrupt, by an address that only this terminal knows."""
    from daskprs._cli.live_page import LivePage

    with closing(LivePage(folder)) as page:
        echo(f"{page.address}\nOpen this address on this machine. Ctrl-C ends the page.")
        with suppress(KeyboardInterrupt):
            page.serve()


def _watch(folder: JobFolder, *, as_json: bool) -> None:
    """Show what a job does, as its own terminal would, until no driver is at work on it."""
    from daskprs._job.status import state_of
    from daskprs._report.progress_bar import display_on
    from daskprs._report.progress_file import JobOfOthers

    watched, display = JobOfOthers(folder), display_on(sys.stderr)
    try:
        for is_over in looks(folder, PAUSE):
            if is_over:
                break
            has_changed = watched.look()
            if not as_json:
                display.show(watched)
            elif has_changed:
                echo(json.dumps(json_value(state_of(folder).record(folder))))
    finally:
        display.end(None)


def looks(folder: JobFolder, pause: float) -> Iterator[bool]:
    """Yield now and then whether a job is over: no driver is at work on it, or is to come.

    `pause` is the smallest ratio of the time between two looks to that of a look.
    """
    from daskprs._job.detached import LOOK_EVERY_S, Lookout

    lookout, is_over = Lookout.of(folder), False
    while not is_over:
        begun_s = time.monotonic()
        try:
            is_over = lookout.look() is not None
        except JobFolderError:  # the driver has died
            is_over = True
        yield is_over
        if not is_over:
            time.sleep(max(LOOK_EVERY_S, pause * (time.monotonic() - begun_s)))


def _show_joint(joint: JointFolder, given: str, *, watch: bool, as_json: bool) -> None:
    """Show the steps of a pipeline, and before that, with `watch`, what changes until its end."""
    from daskprs._job.detached import LOOK_EVERY_S

    shown: Mapping[str, str] = {}
    while (state := joint.state()) is not None and watch and state.holder is not None:
        new = {name: one for name, one in state.steps.items() if shown.get(name) != one}
        if new and as_json:
            echo(json.dumps(joint.state_values(state)))
        elif new:
            to_stderr("\n".join(f"{name}: {one}" for name, one in new.items()))
        shown = state.steps
        time.sleep(LOOK_EVERY_S)
    if state is None:
        return
    if not as_json:
        echo(_steps_text(joint, state, given))
    elif watch:
        echo(json.dumps(joint.state_values(state)))
    else:
        show_json(joint.state_values(state))


@click.command("result", context_settings=CONTEXT, epilog=AFTER_RESULT)
@click.argument("folder")
@JSON
@click.pass_context
def result(ctx: click.Context, /, folder: str, *, as_json: bool) -> None:
    """Show the result of the job in FOLDER, and end with its exit code."""
    with every_end():
        from daskprs._job.status import state_of

        state = state_of(job_at(folder))
        if state.result is None:
            why = f"it is {state.status}, by {state.holder}."
            if state.holder is None:
                way = way_on(JobFolder(folder), command_line(ctx), state.again)
                why = f"its driver died before it recorded one. To go on: {way}"
            msg = f"the job in {JobFolder(folder)} has no result: {why}"
            raise JobFolderError(msg)
        if as_json:
            show_json(json_value(state.result) | {"failed_file": state.result.failed_file})
        else:
            echo(repr(state.result))
        sys.exit(EXIT_CODES.get(state.status, EXIT_USAGE))


@click.command("verify", context_settings=CONTEXT, epilog=AFTER_VERIFY)
@click.argument("folder")
@click.option(
    "--input",
    "rereads",
    is_flag=True,
    help="Also read the input again, and count the items of each mini-batch.",
)
@JSON
@click.pass_context
def verify(ctx: click.Context, /, folder: str, *, rereads: bool, as_json: bool) -> None:
    """Prove that what the job in FOLDER committed lies there, byte for byte.

    Compared are the journals, the rows that are kept and the output, by their checksums, and the
    input, by the size and the time of its files. Nothing is written, and the script does not run.
    """
    with every_end():
        from daskprs._job.status import state_of
        from daskprs._job.verification import verify

        job = job_at(folder)
        found = verify(job, rereads=rereads)
        if as_json:
            show_json(found.record())
        else:
            echo("\n".join(verification_lines(found)))
            if any("resume" in finding.next_step for finding in found.findings):
                way = way_on(job, command_line(ctx), state_of(job).again)
                to_stderr(f"daskprs: to resume the job: {way}")
        sys.exit(0 if found.is_proved else EXIT_FAILED)


def _go_on(ctx: click.Context, folder: str, how: bool | str, values: dict[str, Any]) -> None:  # noqa: FBT001 - an option
    found = given(values)
    is_quiet = found.pop("quiet")
    if is_quiet:
        found["progress"] = False
    if found.pop("here"):
        found["client"] = ""
    with every_end():
        names = [*_plugins.own_names("variable_files")]
        files = {name: str(Path(found[name]).absolute()) for name in names if name in found}
        found = with_variable_files(found)
        from daskprs._job.job import Job
        from daskprs._job.prestart import prestart
        from daskprs._job.request import check_kept_call

        call = check_kept_call(job_at(folder), how, variable_files=files, **found)
        if not is_quiet:
            to_stderr(_script_text(call, files.values()))
        with prestart(call.options, call.client):
            show(Job(call, command_line(ctx)).run())


def with_variable_files(found: dict[str, Any]) -> dict[str, Any]:
    """Return options with the variables of the files of plugins; those given beside them count."""
    found = dict(found)
    for name, dotted in _plugins.own_names("variable_files").items():
        if name in found:
            of_file = _plugins.loaded(dotted)(found.pop(name))
            given_here = found.get("environment_variables", {})
            found["environment_variables"] = {**of_file, **given_here}
    return found


def _script_text(call: CheckedCall, files: Collection[str]) -> str:
    """Return which script a command is going to run."""
    script = call.script
    place = script.file if script.root is None else f"{script.root}/{script.file}"
    if script.module is not None:
        place = f"the module {script.module}" + (f" of {script.root}" if script.root else "")
    of = f", with the variables of {' and '.join(files)}" if files else ""
    return f"daskprs: the job in {call.folder} runs {place}{of}"


def job_at(folder: str) -> JobFolder:
    """Return the folder of a job; reject that of a pipeline."""
    joint = joint_folder_at(folder)
    if joint is not None and (state := joint.state()) is not None:
        raise JobFolderError(_steps_text(joint, state, folder))
    return JobFolder(folder)


def _steps_text(joint: JointFolder, state: JointState, given: str) -> str:
    """Return the state of a pipeline and its steps as text."""
    shown = "".join(f"\n  {one:<11} {joint.step(name)}" for name, one in state.steps.items())
    way = "" if state.status == JobStatus.COMPLETED else f"\n{joint.way_on(given)}"
    return (
        f"{joint.path} is the folder of a pipeline, which is {state.status}. Its steps have "
        f"folders of their own:{shown}{way}"
    )


def _lines(state: JobState, folder: JobFolder, ctx: click.Context) -> list[str]:
    """Return the lines that describe the state of a job."""
    done, is_done = state.mini_batches, state.status == JobStatus.COMPLETED
    lines = [
        f"<daskprs job {state.status}>",
        *([f"  why           {state.reason.rstrip('.')}"] if state.reason else []),
        f"  mini-batches  {done.succeeded:,} done, {done.failed:,} failed",
        f"  items         {items_text(state.items, state.not_returned, of_all=is_done)}",
        f"  runs          {state.runs}",
    ]
    if state.now is not None:
        lines += _lines_now(state.now)
    if state.holder is not None:
        lines.append(f"  at work       {state.holder}")
    if state.output is not None:
        lines.append(f"  output        {state.output}")
    if folder.failed.exists():
        lines.append(f"  failed        {folder.failed}")
    if folder.failed_rows.exists():
        lines.append(f"  failed {state.unit + 's':<7}{folder.failed_rows}")
    lines.append(f"  logs          {folder.logs}")
    if is_done and (folder.failed.exists() or folder.failed_rows.exists()):
        way = way_on_mended(folder, program_of(ctx), None, is_complete=True)
        lines.append(f"  if mended     {way}")
    if state.may_go_on:
        lines.append(f"  to go on      {way_on(folder, command_line(ctx), state.again)}")
    return lines


MOST_SLOTS = 8
"""Maximum number of slots that are listed, those longest in their phase first."""
PAUSE = 20
"""Ratio for `looks`: a long journal is not read all the time."""


def _lines_now(view: View) -> list[str]:
    """Return the lines about what a running job does now."""
    at_work = [slot for slot in view.now if slot.mini_batch is not None]
    reason = ", ".join(view.obstacles) if at_work else now_text(view)
    now = [at_work_text(view), reason, *map(slot_text, at_work[:MOST_SLOTS])]
    if len(at_work) > MOST_SLOTS:
        now.append(f"and {len(at_work) - MOST_SLOTS:,} more")
    titles = chain(["now"], repeat(""))
    lines = [f"  {title:<14}{text}" for title, text in zip(titles, filter(None, now), strict=False)]
    return [f"  progress      {counts_text(view)}", *lines]


PIECE_BYTES = 64 << 20
"""Bytes of the driver's output that are shown at a time."""


@click.command("attach", context_settings=CONTEXT)
@click.argument("folder")
def attach(folder: str) -> None:
    """Show the output of the detached job in FOLDER until its end, and end with its exit code.

    Ctrl-C ends only this command.
    """
    with every_end():
        from daskprs._job import detached

        shown = Tail(JobFolder(folder))
        show(detached.attach(folder, meanwhile=shown.go_on))


@click.command("cancel", context_settings=CONTEXT)
@click.argument("folder")
def cancel(folder: str) -> None:
    """Ask the detached job in FOLDER to end; its committed work is kept for a resume."""
    with every_end():
        from daskprs._job import detached

        detached.cancel(folder)
        echo_result(f"The job in {JobFolder(folder)} was asked to end.")


FOLDER_COMMANDS = (resume, retry_failed, status, result, verify, attach, cancel)


class Tail:
    """Shows the output of a job's driver while the driver writes it."""

    def __init__(self, folder: JobFolder) -> None:
        self._path = folder.driver_output
        self._at = 0

    def go_on(self) -> None:
        """Show the new output."""
        try:
            with open_regular(self._path) as file:
                file.seek(self._at)
                while new := file.read(PIECE_BYTES):
                    self._at += len(new)
                    click.echo(new.decode(errors="replace"), nl=False, err=True)
        except FileNotFoundError:
            return
