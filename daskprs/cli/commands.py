"""The command line, also as ``dask prs …``; `cli.job_commands` has those that take a FOLDER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daskprs import __version__
from daskprs.cli.exit_codes import every_end, show
from daskprs.cli.frontend import CommandLine
from daskprs.cli.help import AFTER_PLAN, AFTER_RUN, AFTER_SUBMIT, EXTEND, Grouped
from daskprs.cli.invoke import invoke
from daskprs.cli.job_commands import DETACHED_COMMANDS, FOLDER_COMMANDS
from daskprs.cli.options import CONTEXT, OF_A_RUN, OF_READING, given, help_of, options, pairs
from daskprs.cli.pipeline import is_pipeline, run_pipeline_file
from daskprs.cli.serve import serve
from daskprs.cli.validate import validate
from daskprs.options.run_options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.job.request import CheckedCall


class WithArguments(Grouped):
    """A command whose words behind ``--`` are not its own, but the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind ``--`` apart."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])


class Commands(click.Group):
    """All commands; `run` is another one where its first word is a YAML file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant."""
        name, command, words = super().resolve_command(ctx, args)
        if command is run and is_pipeline(run, words):
            command = run_pipeline_file
        return name, command, words


# "prs" is its name below `dask`; by itself it is `daskprs`.
@click.group("prs", cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="daskprs")
def main() -> None:
    """Run a Python script over a table or a list of files, in parallel."""


TYPES = click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="COLUMN=TYPE",
    help="Type of a column, as pandas calls it. Default: of text fixed by samples.",
)
"""The types of columns, as `OF_READING` and `OF_A_RUN` lack them."""
OF_A_CALL: list[Callable[[Any], Any]] = [
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
        help="The folder of the output file. Default: <job folder>/output.",
    ),
    click.option(
        "--client",
        "--scheduler",
        metavar="ADDRESS",
        help="The scheduler of a Dask cluster. Default: the cores of this machine.",
    ),
    click.option("--resume", is_flag=True, help=help_of("resume")),
    click.option("--extend", is_flag=True, help=EXTEND),
    click.option("--overwrite", is_flag=True, help=help_of("overwrite")),
    click.option(
        "--environment-variable",
        "-e",
        "environment_variables",
        multiple=True,
        metavar="NAME=VALUE",
        help=help_of("environment_variables"),
    ),
    click.option(
        "--side-input",
        "side_inputs",
        multiple=True,
        metavar="NAME=PATH",
        help=help_of("side_inputs"),
    ),
    TYPES,
    options(OF_A_RUN),
    click.pass_context,
]
"""What a job is called with, whoever drives it."""


def _of_a_call(command: Any) -> Any:
    for add in reversed(OF_A_CALL):
        command = add(command)
    return command


@main.command("run", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_RUN)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@_of_a_call
def run(ctx: click.Context, /, script: str, inputs: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT over INPUT...; what follows -- goes to the script.

    What run() returns is written to one text file, in input order.
    """
    values["progress"] = False if values.pop("quiet") else None
    found = _named(ctx, values)
    with every_end():
        from daskprs.job.prestart import prestart

        chosen, places = _of_job(found)
        with prestart(chosen, places["client"]):
            from daskprs.job.job import Job

            call = _checked(script, inputs, chosen, places)
            show(Job(call, CommandLine(ctx)).run())


@main.command("submit", cls=WithArguments, context_settings=CONTEXT, epilog=AFTER_SUBMIT)
@click.option(
    "--no-survive",
    is_flag=True,
    help="Take the risk that the job dies with the worker that carries its driver.",
)
@_of_a_call
def submit(ctx: click.Context, /, script: str, inputs: tuple[str, ...], **values: Any) -> None:
    """Hand a job to a cluster, and leave: SCRIPT over INPUT..., as `run` does it.

    Its job folder has to be on a file system that the workers share.
    """
    survive = not values.pop("no_survive")
    found = _named(ctx, values)
    with every_end():
        from daskprs.job import detached

        call = _checked(script, inputs, *_of_job(found))
        show(detached.submit(call, survive=survive))


@main.command("plan", cls=Grouped, context_settings=CONTEXT, epilog=AFTER_PLAN)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@TYPES
@options(OF_READING)
def show_plan(inputs: tuple[str, ...], **values: Any) -> None:
    """Show the mini-batches that a run would make of INPUT...."""
    found = given(values)
    found["dtypes"] = pairs("--dtype", found.pop("dtypes")) or None
    with every_end():
        from daskprs.job.plan import plan

        click.echo(repr(plan(_data(inputs), **found)))


def _named(ctx: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return what was given on the command line, as Python names and takes it."""
    found = given(values)
    found["arguments"] = ctx.meta["arguments"]
    found["environment_variables"] = pairs(
        "--environment-variable", found.pop("environment_variables")
    )
    found["side_inputs"] = pairs("--side-input", found.pop("side_inputs"))
    found["dtypes"] = pairs("--dtype", found.pop("dtypes")) or None
    if found.pop("extend"):
        found["resume"] = "extend"
    return found


def _of_job(found: dict[str, Any]) -> tuple[RunOptions, dict[str, Any]]:
    """Return the options of a job, and where it is and takes place."""
    places = {name: found.pop(name, None) for name in ("client", "job_dir", "output_dir")}
    return RunOptions.from_names(**found), places


def _checked(
    script: str, inputs: tuple[str, ...], chosen: RunOptions, places: dict[str, Any]
) -> CheckedCall:
    from daskprs.job.request import check_call

    return check_call(_data(inputs), script, chosen, **places, text=True)


def _data(inputs: tuple[str, ...]) -> Any:
    return inputs[0] if len(inputs) == 1 else list(inputs)


for command in (invoke, serve, validate, *FOLDER_COMMANDS, *DETACHED_COMMANDS):
    main.add_command(command)


if __name__ == "__main__":
    main(prog_name="daskprs")
