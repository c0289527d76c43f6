"""Commands for the FOLDER of a detached job: ``attach`` and ``cancel``."""

from __future__ import annotations

import click

from daskprs.cli_ends import every_end, show
from daskprs.cli_options import CONTEXT
from daskprs.job_folder import JobFolder
from daskprs.regular_files import open_regular

PIECE_BYTES = 64 << 20
"""Bytes of the driver's output that are shown at a time."""


@click.command("attach", context_settings=CONTEXT)
@click.argument("folder")
def attach(folder: str) -> None:
    """Show what the detached job in FOLDER shows, until its end, and end with its exit code.

    Ctrl-C ends only this command.
    """
    with every_end():
        from daskprs import detached

        shown = Tail(JobFolder(folder))
        show(detached.attach(folder, meanwhile=shown.go_on))


@click.command("cancel", context_settings=CONTEXT)
@click.argument("folder")
def cancel(folder: str) -> None:
    """Ask the detached job in FOLDER to end; what it has done is kept for a resume."""
    with every_end():
        from daskprs import detached

        detached.cancel(folder)
        click.echo(f"The job in {JobFolder(folder)} was asked to end.")


DETACHED_COMMANDS = (attach, cancel)


class Tail:
    """Shows what the driver of a job writes, as it comes."""

    def __init__(self, folder: JobFolder) -> None:
        self._path = folder.driver_output
        self._at = 0

    def go_on(self) -> None:
        """Show what is new."""
        try:
            with open_regular(self._path) as file:
                file.seek(self._at)
                while new := file.read(PIECE_BYTES):
                    self._at += len(new)
                    click.echo(new.decode(errors="replace"), nl=False, err=True)
        except FileNotFoundError:
            return
