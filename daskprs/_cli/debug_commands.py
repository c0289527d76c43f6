"""Commands that run one mini-batch, in a debugger where there is a terminal."""

from __future__ import annotations

import pdb  # noqa: T100 - the debugger is what the command is for
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.exit_codes import echo_result, every_end
from daskprs._cli.job_commands import (
    OF_A_LATER_RUN,
    OfALaterRun,
    job_at,
    with_variable_files,
)
from daskprs._cli.options import (
    CONTEXT,
    WithArguments,
    command_line,
    data_of,
    given,
    options,
    program_of,
)
from daskprs._core.ending import EXIT_FAILED
from daskprs._job.flags import OF_ONE
from daskprs._job.way_on import way_on_mended
from daskprs._options.run_options import TABLE, TIMES
from daskprs._options.site_defaults import options_of_call
from daskprs._system.standard_streams import is_terminal, to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._core.outcomes import Failure
    from daskprs._job.one_mini_batch import Ran

AFTER_DEBUG = """\b
Examples:
  daskprs debug score.py pictures/ --mini-batch-size 25
  daskprs debug clean.py visits.csv --mini-batch 3 --partition-keys customer -- --model m.pickle
  daskprs debug clean.py visits.csv --row 1041

\b
Exit codes:
  0    run() has returned rows: they are shown
  42   it failed, or its process did not start
  2    nothing was started: an option, the script or the input cannot be used
"""
AFTER_REPLAY = """\b
Examples:
  daskprs replay scored-job
  daskprs replay scored-job --mini-batch 17 --rows 40:50
  daskprs replay scored-job --script mended/score.py
  daskprs replay scored-job --debug

\b
Exit codes:
  0    run() has returned rows: they are shown
  42   it failed: whether it is the same error as in the job is said in the last line
  2    it cannot be run again: the folder, the input or an option lacks what it needs
"""
OF_LIMITS = tuple(name for name in OF_A_LATER_RUN if TABLE[name].group == TIMES)
"""Options of a job that a replay may give another value."""


@click.command("debug", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_DEBUG)
@click.argument("script")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--mini-batch", type=int, metavar="N", help="Its number. Default: the first one.")
@click.option(
    "--row",
    type=click.IntRange(min=0),
    metavar="N",
    help="The mini-batch with row or file N of INPUT.",
)
@options(OF_ONE)
@click.pass_context
def debug(
    ctx: click.Context,
    /,
    script: str,
    inputs: tuple[str, ...],
    mini_batch: int | None,
    row: int | None,
    **values: Any,
) -> None:
    """Run SCRIPT for one mini-batch of INPUT... in this process; nothing is written.

    Breakpoints stop here, and an exception opens the debugger, if this is a terminal. Options are
    those of the job: they say what the mini-batch is. The words after -- go to the script.
    """
    if mini_batch is not None and row is not None:
        msg = "--mini-batch and --row both say which mini-batch: give one of them."
        raise click.UsageError(msg, ctx)
    with every_end(), scratch_folder() as scratch:
        from daskprs._job.one_mini_batch import call_of_one, for_one, numbered, run_one, with_item
        from daskprs._job.request import check_call

        found = {**given(values), "arguments": ctx.meta["arguments"], "start_method": "inline"}
        of_call = for_one(options_of_call(found), scratch)
        call = check_call(data_of(inputs), script, of_call, job_dir=scratch, text=True)
        choose = numbered(mini_batch or 0) if row is None else with_item(row)
        one = call_of_one(call, choose)
        raised = PostMortem() if has_terminal() else None
        ran = run_one(one, command_line(ctx), raised)
        sys.exit(EXIT_FAILED if show_ran(ran, raised=raised) else 0)


@click.command("replay", cls=OfALaterRun, context_settings=CONTEXT, epilog=AFTER_REPLAY)
@click.argument("folder")
@click.option(
    "--mini-batch", type=int, metavar="N", help="Its number. Default: the first one that failed."
)
@click.option(
    "--rows", metavar="A:B", help="Only rows, or files, A to B of it, counted from 0, without B."
)
@click.option("--script", metavar="SCRIPT", help="The corrected script. Default: that of the job.")
@click.option(
    "--debug", "debugs", is_flag=True, help="In this process, with a debugger, without limits."
)
@options(["environment_variables", "secrets", "trust", *OF_LIMITS])
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    folder: str,
    mini_batch: int | None,
    rows: str | None,
    script: str | None,
    *,
    debugs: bool,
    **values: Any,
) -> None:
    """Run a mini-batch of the job in FOLDER again, and say whether it is the same error.

    Input, script, arguments and limits are those of the job. Nothing in FOLDER changes.
    """
    with every_end(), scratch_folder() as scratch:
        from daskprs._job.prestart import prestart
        from daskprs._job.replay import failure_of, replay

        items = None if rows is None else _range(rows)
        found = with_variable_files(given(values))
        again = replay(
            job_at(folder),
            scratch,
            mini_batch=mini_batch,
            items=items,
            script=script,
            debugs=debugs,
            **found,
        )
        surface = command_line(ctx)
        raised = PostMortem() if debugs and has_terminal() else None
        with prestart(again.call.options, None):
            ran = again.run(surface, raised)
        failed = show_ran(ran, again.part, raised) or failure_of(ran) is not None
        for note in again.notes:
            to_stderr(f"daskprs: {note}.")
        to_stderr(f"daskprs: {again.verdict(ran)}")
        if not failed and again.target.is_left and rows is None:
            program, complete = program_of(ctx), again.is_complete
            way = way_on_mended(again.folder, program, script, is_complete=complete)
            to_stderr(f"daskprs: to go on: {way}")
        sys.exit(EXIT_FAILED if failed else 0)


def _range(text: str) -> tuple[int, int]:
    """Return the first row and the one after the last."""
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        msg = f"--rows {text}: write FIRST:END, such as 40:50 for the ten rows from 40 on."
        raise click.UsageError(msg)
    return int(found[1]), int(found[2])


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder for the job of one mini-batch."""
    with TemporaryDirectory(prefix="daskprs-debug-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "job"


def show_ran(ran: Ran, part: str = "", raised: PostMortem | None = None) -> bool:
    """Show what came of a mini-batch, or of a part of it, and return whether it failed.

    A traceback that the debugger has begun with is not shown again.
    """
    if ran.mini_batch is not None:
        to_stderr(f"daskprs: {ran.mini_batch.described}{part}")
    failure = ran.failure
    if failure is None and ran.ending is not None and not ran.ending.reason:
        echo_result(ran.rows)
        return False
    if failure is not None:
        traceback = "" if raised is not None and raised.is_over else failure.traceback
        if failure.message not in traceback or not traceback:
            traceback = _with_all_said(traceback, failure)
        to_stderr(traceback.rstrip())
    elif ran.ending is not None:
        to_stderr(f"daskprs: {ran.ending.reason}")
    return True


def _with_all_said(traceback: str, failure: Failure) -> str:
    """Return a traceback that ends with the failure, which may say more than the exception."""
    above, _, last = traceback.rstrip().rpartition("\n")
    _, kind, message = last.partition(failure.kind)  # Python names its module, too
    if kind and str(failure).startswith(f"{kind}{message}"):
        return f"{above}\n{failure}"
    return f"{traceback.rstrip()}\n{failure}" if traceback else str(failure)


def has_terminal() -> bool:
    """Say whether a debugger can ask its user here."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout)


class PostMortem:
    """Opens the debugger where the first exception was raised; the same may follow in a retry."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the debugger was opened."""

    def __call__(self, error: BaseException) -> None:
        """Show an exception of the script, and let its user look around."""
        from daskprs._agent.child.debugging import has_quit
        from daskprs._agent.foreign.raised import printed
        from daskprs._system.masks import masked
        from daskprs.errors import OURS, DaskprsError

        is_none = has_quit(error) or isinstance(error, (KeyboardInterrupt, DaskprsError))
        if is_none or self.is_over:
            return
        self.is_over = True
        to_stderr(masked(printed(error, OURS)).rstrip())
        to_stderr("daskprs: the debugger is where the error was raised: q leaves it, u goes up.")
        pdb.post_mortem(error.__traceback__)
