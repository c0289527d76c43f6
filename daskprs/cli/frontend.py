"""The command line as the place where a job was called."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from daskprs.cli.options import flagged
from daskprs.job.frontend import accepting, command_to_resume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from daskprs.errors import Option

SAID = {"output_dir": "--output", "append_row_file_name": "append_row_to"}
"""What does for a step of a pipeline what options of a job do."""
OF_ONE_TIME = {"job_dir", "resume", "accept_changes"}
"""Options of a pipeline that are others when it is gone on with."""


class CommandLine:
    """The surface of a job that was started by a command."""

    def __init__(self, ctx: click.Context) -> None:
        self._program = ctx.parent.command_path if ctx.parent is not None else "daskprs"

    def option(self, option: Option) -> str:
        """Return it with its dashes."""
        return flagged(option)

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return the whole command, to be pasted."""
        return command_to_resume(job_dir, self._program, accept)


class PipelineCommand(CommandLine):
    """The surface of a pipeline that was started by a command."""

    def __init__(self, ctx: click.Context) -> None:
        super().__init__(ctx)
        self._words = [*ctx.command_path.split(), *_given(ctx)]

    def option(self, option: Option) -> str:
        """Return it with its dashes, or what of a pipeline does the same."""
        return SAID.get(option.name) or super().option(option)

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return the whole command, to be pasted: a pipeline is told anew what it is given."""
        more = ["--resume", "--job-dir", str(job_dir), *accepting(accept)]
        return shlex.join([*self._words, *more])


def _given(ctx: click.Context) -> Iterator[str]:
    """Yield the words of a command that are the same each time."""
    for one in ctx.command.params:
        value = ctx.params.get(one.name or "")
        if not value or one.name in OF_ONE_TIME:
            continue
        if isinstance(one, click.Argument):
            yield str(value)
        elif isinstance(one, click.Option) and one.is_flag:
            yield one.opts[0]
        else:
            for word in value if one.multiple else [value]:
                yield from (one.opts[0], str(word))


def to_stderr(line: str) -> None:
    """Show a line; where nobody can read it, the steps are done all the same."""
    with suppress(OSError):
        click.echo(line, err=True)


def lines(*, quiet: bool) -> Callable[[str], None]:
    """Return what shows the lines of a pipeline, or nothing."""
    return (lambda _: None) if quiet else to_stderr
