"""The command ``environment create``: a virtual environment of a published environment's file."""

from __future__ import annotations

import shlex

import click

from daskprs._cli.exit_codes import echo_result, every_end
from daskprs._cli.options import CONTEXT
from daskprs._system.standard_streams import to_stderr

AFTER_CREATE = """\b
Examples:
  daskprs environment create environment.yml --dry-run
  daskprs environment create environment.yml
  daskprs environment create conda.yaml --python ~/.pyenv/versions/3.8.20/bin/python --to venvs/old

\b
Exit codes:
  0    the environment is made, or with --dry-run its plan shown
  42   venv or pip has failed: the reason is shown, and nothing is left
  75   interrupted, by SIGTERM: nothing is left
  130  canceled, by Ctrl-C: nothing is left
  2    nothing was made: the file, an option or the folder cannot be used
"""


@click.group("environment", context_settings=CONTEXT)
def environment() -> None:
    """Make interpreters for the environments that Azure's files name."""


@environment.command("create", context_settings=CONTEXT, epilog=AFTER_CREATE)
@click.argument("file", metavar="FILE")
@click.option("--name", metavar="NAME", help="Its name. Default: the one in the file.")
@click.option(
    "--to",
    "folder",
    metavar="FOLDER",
    help="The folder of the virtual environment. Default: ./daskprs-environments/NAME.",
)
@click.option(
    "--python",
    metavar="PYTHON",
    help="The interpreter that it is made with. Default: this one, or one of the PATH that fits.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and make nothing.")
def create(
    file: str, *, name: str | None, folder: str | None, python: str | None, dry_run: bool
) -> None:
    """Make a virtual environment of FILE, with pip.

    FILE is a conda file, an environment of Azure with a conda_file, or a file of pip's
    requirements. The plan is shown first, with what pip cannot install and why.
    """
    with every_end():
        from daskprs.azure._environments.new_environment import NewEnvironment
        from daskprs.azure._environments.specification import read_specification

        planned = NewEnvironment.planned(
            read_specification(file), name=name, folder=folder, python=python
        )
        for line in planned.lines():
            to_stderr(line)
        if not dry_run:
            planned.make()
            echo_result(f"--environment {shlex.quote(f'{planned.name}={planned.folder}')}")
