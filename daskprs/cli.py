"""The command line: ``daskprs run`` and ``daskprs plan``, also as ``dask prs …``.

Exit codes: 0 completed, 42 the job failed, 130 canceled, 2 bad usage.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from daskprs import __version__
from daskprs.cli_help import AFTER_PLAN, AFTER_RUN, Grouped
from daskprs.cli_options import CONTEXT, OF_A_RUN, OF_READING, flagged, given, options, pairs
from daskprs.errors import (
    DaskprsError,
    JobFolderError,
    ParallelRunCanceled,
    ParallelRunFailed,
    UsageError,
)
from daskprs.option_help import HELP
from daskprs.options import RunOptions

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.errors import Option
    from daskprs.result import ParallelRunResult

EXTEND = "The same where the input has grown: only what is new by content is run."
EXIT_USAGE, EXIT_FAILED, EXIT_CANCELED = 2, 42, 130
ENDED_BY = (signal.SIGTERM, signal.SIGHUP)
"""What ends a job as Ctrl-C does: a batch system's end, and that of the terminal."""


class WithArguments(Grouped):
    """A command whose words behind ``--`` are not its own, but the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind ``--`` apart."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["words"], ctx.meta["arguments"] = args[:end], args[end + 1 :]
        return super().parse_args(ctx, args[:end])


@click.group("prs", context_settings=CONTEXT)  # its name below `dask`; by itself it is `daskprs`
@click.version_option(__version__, prog_name="daskprs")
def main() -> None:
    """Run a Python script over a table or a list of files, in parallel."""


@main.command("run", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_RUN)
@click.argument("script")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "--job-dir",
    metavar="FOLDER",
    help="The job folder. Default: ./daskprs-jobs/<script>-<utc>-<id>/.",
)
@click.option(
    "--output-dir",
    metavar="FOLDER",
    help="The folder of the output file. Default: <job folder>/output.",
)
@click.option(
    "--client",
    metavar="ADDRESS",
    help="The scheduler of a Dask cluster. Default: the cores of this machine.",
)
@click.option("--resume", is_flag=True, help=HELP["resume"])
@click.option("--extend", is_flag=True, help=EXTEND)
@click.option("--overwrite", is_flag=True, help=HELP["overwrite"])
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option(
    "--environment-variable",
    "-e",
    "environment_variables",
    multiple=True,
    metavar="NAME=VALUE",
    help=HELP["environment_variables"],
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="COLUMN=TYPE",
    help="Type of a column of text, as pandas calls it. Default: fixed by samples.",
)
@options(OF_A_RUN)
@click.pass_context
def run(ctx: click.Context, /, script: str, inputs: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT over INPUT...; what follows -- goes to the script.

    What run() returns is written to one text file, in input order.
    """
    found = given(values)
    found["arguments"] = ctx.meta["arguments"]
    found["environment_variables"] = pairs(
        "--environment-variable", found.pop("environment_variables")
    )
    found["dtypes"] = pairs("--dtype", found.pop("dtypes")) or None
    if found.pop("extend"):
        found["resume"] = "extend"
    found["progress"] = False if found.pop("quiet") else None
    with _every_end():
        _run(ctx, script, inputs, found)


@main.command("plan", cls=Grouped, context_settings=CONTEXT, epilog=AFTER_PLAN)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@options(OF_READING)
def show_plan(inputs: tuple[str, ...], **values: Any) -> None:
    """Show the mini-batches that a run would make of INPUT...."""
    with _every_end():
        from daskprs.preview import plan

        click.echo(repr(plan(_data(inputs), **given(values))))


class CommandLine:
    """The surface of a job that was started by a command."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx

    def option(self, option: Option) -> str:
        """Return it with its dashes."""
        return flagged(option)

    def resume(self, job_dir: Path) -> str:
        """Return the whole command, to be pasted."""
        ctx = self._ctx
        words = [*ctx.command_path.split(), *ctx.meta["words"]]
        if not ctx.params["resume"]:
            words.append("--resume")
        if ctx.params["job_dir"] is None:
            words += ["--job-dir", str(job_dir)]
        if ctx.meta["arguments"]:
            words += ["--", *ctx.meta["arguments"]]
        return shlex.join(words)


def _run(ctx: click.Context, script: str, inputs: tuple[str, ...], found: dict[str, Any]) -> None:
    from daskprs.checked_call import check_call
    from daskprs.job import Job

    places = {name: found.pop(name, None) for name in ("client", "job_dir", "output_dir")}
    options = RunOptions.from_names(**found)
    call = check_call(_data(inputs), script, options, **places, text=True)
    _show(Job(call, CommandLine(ctx)).run())


def _show(result: ParallelRunResult) -> None:
    """Show the result; where nobody can read it the job is Completed all the same."""
    try:
        click.echo(repr(result))
    except OSError as error:
        # What is left in the buffer would fail once more, and change the exit code, at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"daskprs: completed, but stdout cannot be written: {error}", err=True)


def _data(inputs: tuple[str, ...]) -> Any:
    return inputs[0] if len(inputs) == 1 else list(inputs)


@contextmanager
def _every_end() -> Iterator[None]:
    """Give every end its exit code, and its reason on the terminal."""
    try:
        with _interrupted_by(*ENDED_BY):
            yield
    except (UsageError, JobFolderError) as error:
        _exit(EXIT_USAGE, f"daskprs: {error.worded(flagged)}")
    except ParallelRunFailed as error:
        _exit(EXIT_FAILED, str(error))
    except ParallelRunCanceled as error:
        _exit(EXIT_CANCELED, str(error))
    except KeyboardInterrupt:
        _exit(EXIT_CANCELED, "daskprs: interrupted.")
    except DaskprsError as error:
        _exit(EXIT_FAILED, f"daskprs: {error.worded(flagged)}")
    except OSError as error:
        _exit(EXIT_FAILED, f"daskprs: {error}")
    except Exception:  # noqa: BLE001 - it is shown whole, and has an exit code too
        traceback.print_exc()
        _exit(EXIT_FAILED, "daskprs: this is an error of daskprs itself, not of your script.")


@contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Make signals do what Ctrl-C does, unless they are ignored (nohup)."""
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: types.FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


def _exit(code: int, message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="daskprs")
