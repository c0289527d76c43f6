"""Where a job is asked for, Python or the command line, and how what to do next is said there."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from daskprs.errors import Option

if TYPE_CHECKING:
    from pathlib import Path


class Surface(Protocol):
    """Words options and the way to go on with a job, as a person there would write them."""

    def option(self, option: Option) -> str:
        """Return an option that a message names."""
        ...

    def resume(self, job_dir: Path) -> str:
        """Return what goes on with a job."""
        ...


class Python:
    """A call of `parallel_run`."""

    def option(self, option: Option) -> str:
        """Return it as a keyword argument."""
        return str(option)

    def resume(self, job_dir: Path) -> str:
        """Return the arguments to be added."""
        return f"{Option('resume', value=True)}, {Option('job_dir', str(job_dir))}"


def command_to_resume(job_dir: Path, program: str = "daskprs") -> str:
    """Return the command that goes on with a job: the folder knows the rest."""
    return shlex.join([*program.split(), "resume", str(job_dir)])
