"""The command line as the place where a job was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.cli_options import flagged
from daskprs.surface import command_to_resume

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from daskprs.errors import Option


class CommandLine:
    """The surface of a job that was started by a command."""

    def __init__(self, ctx: click.Context) -> None:
        self._program = ctx.parent.command_path if ctx.parent is not None else "daskprs"

    def option(self, option: Option) -> str:
        """Return it with its dashes."""
        return flagged(option)

    def resume(self, job_dir: Path) -> str:
        """Return the whole command, to be pasted."""
        return command_to_resume(job_dir, self._program)
