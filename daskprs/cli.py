"""The command line: ``daskprs run`` and ``daskprs plan``.

Exit codes: 0 completed, 42 the job failed, 130 canceled, 2 bad usage.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from daskprs import __version__
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
    from collections.abc import Callable

EXIT_USAGE, EXIT_FAILED, EXIT_CANCELED = 2, 42, 130
NOT_HERE = {"arguments", "resume", "overwrite", "progress", "dtypes", "environment_variables"}
"""Options that have a form of their own on the command line."""
OF_PLAN = (
    "input_type",
    "mini_batch_size",
    "partition_keys",
    "partition_format",
    "columns",
    "delimiter",
    "header",
    "encoding",
    "support_multi_line",
    "include_path_column",
)
LISTS = {"partition_keys", "columns"}


class Names(click.Group):
    """A group whose commands take options with underscores too, as Azure's users type them."""

    def main(self, args: Any = None, **extra: Any) -> Any:  # type: ignore[override] # overloads
        """Turn ``--mini_batch_size`` into ``--mini-batch-size``, up to ``--``."""
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        words[:end] = [_dashed(word) for word in words[:end]]
        return super().main(args=words, **extra)


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _option(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    """Return the command line's form of an option of `RunOptions`."""
    flag = "--" + field.name.replace("_", "-")
    text = HELP[field.name]
    if field.default is True:
        return click.option(f"{flag}/--no-{flag[2:]}", field.name, default=None, help=text)
    if field.default is False:
        return click.option(flag, field.name, is_flag=True, default=None, help=text)
    if field.name in LISTS:
        return click.option(flag, field.name, metavar="NAME,…", default=None, help=text)
    kind = {int: int, float: float}.get(type(field.default), str)
    if field.name == "allowed_failed_percent" or field.name.endswith("timeout"):
        kind = float
    elif field.name in ("node_count", "process_count_per_node"):
        kind = int
    return click.option(flag, field.name, type=kind, default=None, help=text)


def _options(*names: str) -> Callable[[Any], Any]:
    fields = {field.name: field for field in dataclasses.fields(RunOptions)}

    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _option(fields[name])(command)
        return command

    return add


@click.group(cls=Names)
@click.version_option(__version__, prog_name="daskprs")
def main() -> None:
    """Run a Python script over a table or a list of files, in parallel."""


@main.command("run")
@click.argument("script")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--job-dir", help="The job folder. Default: ./daskprs-jobs/<script>-<utc>-<id>/.")
@click.option("--output-dir", help="The folder of the output file. Default: <job folder>/output.")
@click.option("--client", metavar="ADDRESS", help="The scheduler of a Dask cluster.")
@click.option("--resume", is_flag=True, help=HELP["resume"])
@click.option("--overwrite", is_flag=True, help=HELP["overwrite"])
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option(
    "--environment-variable",
    "-e",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help=HELP["environment_variables"],
)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="COLUMN=TYPE", help="Type of a column of text."
)
@_options(*(f.name for f in dataclasses.fields(RunOptions) if f.name not in NOT_HERE))
def run(script: str, inputs: tuple[str, ...], **given: Any) -> None:
    """Run SCRIPT over INPUT...; what follows -- goes to the script."""
    inputs, arguments = _split(inputs)
    options = _given(given)
    options.update(
        arguments=arguments,
        resume=options.pop("resume", False),
        environment_variables=_pairs("--environment-variable", options.pop("variables", ())),
        dtypes=_pairs("--dtype", options.pop("dtypes", ())) or None,
        progress=False if options.pop("quiet", False) else None,
    )
    _until_the_end(lambda: _run(script, inputs, options))


@main.command("plan")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@_options(*OF_PLAN)
def show_plan(inputs: tuple[str, ...], **given: Any) -> None:
    """Show the mini-batches that a run would make of INPUT...."""
    from daskprs.preview import plan

    _until_the_end(lambda: click.echo(repr(plan(_data(inputs), **_given(given)))))


def _run(script: str, inputs: tuple[str, ...], options: dict[str, Any]) -> None:
    from daskprs.job import Job

    client, job_dir = options.pop("client", None), options.pop("job_dir", None)
    output_dir = options.pop("output_dir", None)
    job = Job(
        _data(inputs),
        script,
        RunOptions.from_names(**options),
        client=client,
        job_dir=job_dir,
        output_dir=output_dir,
        text=True,
    )
    click.echo(repr(job.run()))


def _until_the_end(work: Callable[[], None]) -> None:
    """Do the work; every end has its exit code, and its reason on the terminal."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        work()
    except (UsageError, JobFolderError) as error:
        _exit(EXIT_USAGE, f"daskprs: {error}")
    except ParallelRunFailed as error:
        _exit(EXIT_FAILED, str(error))
    except ParallelRunCanceled as error:
        _exit(EXIT_CANCELED, str(error))
    except KeyboardInterrupt:
        _exit(EXIT_CANCELED, "daskprs: interrupted before the job had begun.")
    except DaskprsError as error:
        _exit(EXIT_FAILED, f"daskprs: {error}")


def _exit(code: int, message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


def _interrupt(number: int, frame: types.FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the inputs, and what stood behind ``--`` for the script."""
    behind = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    if not behind:
        return words, ()
    return words[: len(words) - len(behind)], tuple(behind)


def _data(inputs: tuple[str, ...]) -> Any:
    return inputs[0] if len(inputs) == 1 else list(inputs)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, lists as lists."""
    given = {name: value for name, value in values.items() if value is not None}
    for name in LISTS & given.keys():
        given[name] = [part.strip() for part in given[name].split(",")]
    return given


def _pairs(option: str, words: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            message = f"{option} {word!r}: write NAME=VALUE"
            raise click.UsageError(message)
        pairs[name] = value
    return pairs


if __name__ == "__main__":
    main()
