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

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return what goes on with a job, and accepts that a part of it has changed."""
        ...


class Python:
    """A call of `parallel_run`."""

    def option(self, option: Option) -> str:
        """Return it as a keyword argument."""
        return str(option)

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return the arguments to be added."""
        options = [Option("resume", value=True), Option("job_dir", str(job_dir))]
        return ", ".join(map(str, options + ([Option("accept_changes", accept)] if accept else [])))


def command_to_resume(job_dir: Path, program: str = "daskprs", accept: str = "") -> str:
    """Return the command that goes on with a job: the folder knows the rest."""
    return shlex.join([*program.split(), "resume", str(job_dir), *accepting(accept)])


def accepting(part: str) -> list[str]:
    """Return the words of a command that accept a change of a part of a job."""
    return ["--accept-changes", part] if part else []
