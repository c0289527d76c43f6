"""Commands that run one mini-batch, in a debugger where there is a terminal."""

from __future__ import annotations

import pdb  # noqa: T100 - the debugger is what the command is for
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.exit_codes import echo_result, every_end, to_stderr
from daskprs._cli.options import (
    CONTEXT,
    WithArguments,
    command_line,
    data_of,
    given,
    options,
)
from daskprs._core.ending import EXIT_FAILED
from daskprs._job.flags import OF_ONE
from daskprs._options.site_defaults import options_of_call

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@click.command("debug", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_DEBUG)
@click.argument("script")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--mini-batch", type=int, metavar="N", help="Its number. Default: the first one.")
@click.option("--row", type=int, metavar="N", help="The mini-batch with row or file N of INPUT.")
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
        show_ran(run_one(one, command_line(ctx), post_mortem if has_terminal() else None))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder for the job of one mini-batch."""
    with TemporaryDirectory(prefix="daskprs-debug-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "job"


def show_ran(ran: Ran) -> None:
    """Show what came of a mini-batch, and exit with 42 if it failed."""
    if ran.mini_batch is not None:
        to_stderr(f"daskprs: {ran.mini_batch.described}")
    failure = ran.failure
    if failure is None and ran.ending is not None and not ran.ending.reason:
        echo_result(ran.rows)
        return
    if failure is not None:
        to_stderr(failure.traceback.rstrip() if failure.traceback else str(failure))
        if failure.traceback and failure.message not in failure.traceback:
            to_stderr(str(failure))  # it says more than the exception
    elif ran.ending is not None:
        to_stderr(f"daskprs: {ran.ending.reason}")
    sys.exit(EXIT_FAILED)


def has_terminal() -> bool:
    """Say whether a debugger can ask its user here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def post_mortem(error: BaseException) -> None:
    """Open the debugger where an exception was raised; it ends with `q`."""
    from daskprs._agent.child.debugging import has_quit
    from daskprs._agent.foreign.raised import printed
    from daskprs.errors import OURS, DaskprsError

    if has_quit(error) or isinstance(error, (KeyboardInterrupt, DaskprsError)):
        return
    to_stderr(printed(error, OURS).rstrip())
    to_stderr("daskprs: the debugger is where the error was raised: q leaves it, u goes up.")
    pdb.post_mortem(error.__traceback__)
