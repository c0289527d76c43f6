"""The words of the commands that run a pipeline, and the command that resumes a pipeline."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from daskprs._job.flags import flagged
from daskprs._job.frontend import Surface, accepting
from daskprs._system.standard_streams import to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIPELINE_SPELLING = {"output_dir": "--output", "append_row_file_name": "append_row_to"}
"""Options of a job, and their replacements for a step of a pipeline."""
OF_ONE_TIME = {"job_dir", "resume", "accept_changes"}
"""Options of a pipeline that differ when the pipeline is resumed."""


def lines(*, quiet: bool) -> Callable[[str], None]:
    """Return the function that shows the lines of a pipeline, or drops them."""
    return (lambda _: None) if quiet else to_stderr


def pipeline_command(ctx: click.Context) -> Surface:
    """Return the surface of a pipeline that a command starts: a resume repeats the command."""
    words = [*ctx.command_path.split(), *_repeated(ctx)]

    def resume(job_dir: Path, accept: str = "", **_: Any) -> str:
        return shlex.join([*words, "--resume", "--job-dir", str(job_dir), *accepting(accept)])

    return Surface(
        lambda option: PIPELINE_SPELLING.get(option.name) or flagged(option),
        resume,
        has_shown=not ctx.params.get("quiet"),
    )


def _repeated(ctx: click.Context) -> Iterator[str]:
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
