"""The command line, also as ``dask prs …``; `cli.job_commands` has those that take a FOLDER."""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import click

from daskprs import __version__, _plugins
from daskprs._cli.as_json import JSON, show_json
from daskprs._cli.clean import clean
from daskprs._cli.debug_commands import debug, replay
from daskprs._cli.exit_codes import echo, every_end, exit_unwritten, show
from daskprs._cli.job_commands import FOLDER_COMMANDS
from daskprs._cli.options import (
    CONTEXT,
    EXTEND,
    OF_A_RUN,
    OF_READING,
    QUIET,
    Grouped,
    WithArguments,
    client,
    command_line,
    data_of,
    given,
    options,
    stacked,
)
from daskprs._cli.plugin_commands import PluginCommands, first_argument
from daskprs._cli.record_commands import RECORD_COMMANDS
from daskprs._options.run_options import RunOptions
from daskprs._options.site_defaults import options_of_call
from daskprs._system.standard_streams import provide_streams

if TYPE_CHECKING:
    from daskprs._job.plan import Plan

AFTER_RUN = """\b
Examples:
  daskprs run score.py pictures/ --mini-batch-size 25 --output scored.csv
  daskprs run clean.py 'visits/*.csv' --partition-keys customer -- --model m.pickle

\b
Exit codes:
  0    the job is Completed
  42   the job is Failed: the reason is shown, and in logs/job_result.txt
  75   the job is Interrupted, by its deadline, the end of its batch job, a usage limit, a spent
       quota, or SIGTERM; resume it
  130  the job is Canceled, by Ctrl-C
  2    nothing was started: an option, the script, the input or a folder cannot be used
"""
AFTER_SUBMIT = """\b
Examples:
  daskprs submit score.py /shared/images --scheduler tcp://10.0.0.1:8786 --job-dir /shared/scored
  daskprs status /shared/scored
  daskprs attach /shared/scored
  daskprs cancel /shared/scored
  daskprs result /shared/scored
"""
AFTER_PLAN = """\b
Examples:
  daskprs plan visits.csv --mini-batch-size '500 KB'
  daskprs plan pictures/ --partition-format '{year}/{camera}/{n}.jpg' --partition-keys camera
  daskprs plan visits.csv --json | jq .totals

\b
Exit codes:
  0    the plan is shown
  2    an option or the input cannot be used
"""


class Commands(PluginCommands):
    """All commands; where `run` is given another file than a script, a plugin may take over."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        """Begin the program, also that of ``dask prs``: even a mistake in its words is shown."""
        provide_streams()
        return super().make_context(*given, **more)

    def main(self, *given: Any, **more: Any) -> Any:
        """Run the program; where stdout cannot be written, `--help` ends as a command does."""
        try:
            return super().main(*given, **more)
        except OSError as error:  # `every_end` catches those of a command
            codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
            if click.echo.__code__ not in codes:  # a command of another package has failed
                raise
            exit_unwritten(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole first sentence of each command, over several lines if need be."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        sentences = [
            (name, " ".join((command.help or "").partition("\n\n")[0].split()))
            for name, command in found
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(sentences)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to run."""
        name, command, words = super().resolve_command(ctx, args)
        if command is run:
            suffix = PurePath(first_argument(run, words)).suffix.lower()
            own = words[: words.index("--")] if "--" in words else words
            if any(word.partition("=")[0] == "--as" for word in own):
                command = _plugins.own_part("commands", "run --as") or run
            elif suffix not in ("", ".py"):
                command = _plugins.own_part("commands", f"run *{suffix}") or run
        return name, command, words


# "prs" is its name below `dask`; by itself it is `daskprs`.
@click.group("prs", cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="daskprs")
def main() -> None:
    """Run a Python script over a table or a list of files, in parallel."""


_of_a_call = stacked(
    click.argument("script"),
    click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
    click.option(
        "--job-dir",
        metavar="FOLDER",
        help="The job folder. Default: ./daskprs-jobs/<script>-<utc>-<id>/.",
    ),
    click.option(
        "--output-dir",
        metavar="FOLDER",
        help="The folder of lines of text, or of a data set that --output-format names. "
        "Default: <job folder>/output.",
    ),
    client(". Default: the cores of this machine."),
    click.option(
        "--resume",
        is_flag=True,
        help="Continue the job in --job-dir: what is committed does not run again.",
    ),
    EXTEND,
    options(OF_A_RUN),
    click.pass_context,
)
"""The options of a job, whoever drives it."""


@main.command("run", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_RUN)
@QUIET
@_of_a_call
def run(ctx: click.Context, /, script: str, inputs: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT over INPUT...; the words after -- go to the script.

    What run() returns is written in input order, as --output says, or to one text file. A file that
    is not a script has options of its own: see daskprs run pipeline.yml --help.
    """
    values["progress"] = False if values.pop("quiet") else None
    with every_end():
        from daskprs._job.prestart import prestart

        found, places = _of_job(ctx, values)
        early = RunOptions(**found)
        with prestart(early, places["client"], partial(options_of_call, found)) as final:
            from daskprs._job.job import Job
            from daskprs._job.request import check_call

            call = check_call(data_of(inputs), script, final, **places, text=True)
            show(Job(call, command_line(ctx)).run())


@main.command("submit", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_SUBMIT)
@click.option(
    "--no-survive",
    is_flag=True,
    help="Take the risk that the job dies with the worker that carries its driver.",
)
@_of_a_call
def submit(ctx: click.Context, /, script: str, inputs: tuple[str, ...], **values: Any) -> None:
    """Hand a job to a cluster, and return: SCRIPT over INPUT..., as `run` does it.

    Its job folder has to be on a file system that the workers share.
    """
    survive = not values.pop("no_survive")
    with every_end():
        from daskprs._job import detached
        from daskprs._job.request import check_call

        found, places = _of_job(ctx, values)
        call = check_call(data_of(inputs), script, options_of_call(found), **places, text=True)
        show(detached.submit(call, survive=survive))


@main.command("plan", cls=Grouped, context_settings=CONTEXT, epilog=AFTER_PLAN)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@options(OF_READING)
@JSON
def show_plan(inputs: tuple[str, ...], *, as_json: bool, **values: Any) -> None:
    """Show the mini-batches that a run would make of INPUT...."""
    found = given(values)
    with every_end():
        from daskprs._job.plan import plan

        planned = plan(data_of(inputs), **found)
        if as_json:
            show_json(_plan_values(planned))
        else:
            echo(repr(planned))


def _plan_values(plan: Plan) -> dict[str, Any]:
    """Return the sums of a plan, and what is known of each mini-batch."""
    each = [
        {
            "mini_batch": one.index,
            "label": one.label,
            "items": one.items,
            "size_bytes": one.size_bytes,
            "partition_key": dict(one.partition_key),
        }
        for one in plan
    ]
    return {"unit": plan.unit, "totals": plan.totals(), "mini_batches": each}


def _of_job(ctx: click.Context, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the given options of a job, and its client and folders."""
    found = {**given(values), "arguments": ctx.meta["arguments"]}
    if found.pop("extend"):
        found["resume"] = "extend"
    places = {name: found.pop(name, None) for name in ("client", "job_dir", "output_dir")}
    return found, places


for command in (clean, debug, replay, *FOLDER_COMMANDS, *RECORD_COMMANDS):
    main.add_command(command)


if __name__ == "__main__":
    main(prog_name="daskprs")
