"""Front ends of a job, Python and the command line: how each words options and next steps."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from daskprs.errors import Option

if TYPE_CHECKING:
    from pathlib import Path


class Surface(Protocol):
    """Words options and the resume of a job as a user of this front end would write them."""

    def option(self, option: Option) -> str:
        """Return an option that a message names."""
        ...

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return the words that resume a job and, with `accept`, accept a changed part of it."""
        ...


class Python:
    """A call of `parallel_run`."""

    def option(self, option: Option) -> str:
        """Return an option as a keyword argument."""
        return str(option)

    def resume(self, job_dir: Path, accept: str = "") -> str:
        """Return the arguments to add to the call."""
        options = [Option("resume", value=True), Option("job_dir", str(job_dir))]
        return ", ".join(map(str, options + ([Option("accept_changes", accept)] if accept else [])))


def command_to_resume(job_dir: Path, program: str = "daskprs", accept: str = "") -> str:
    """Return the command that resumes a job from its folder."""
    return shlex.join([*program.split(), "resume", str(job_dir), *accepting(accept)])


def accepting(part: str) -> list[str]:
    """Return the words of a command that accept a change of a part of a job."""
    return ["--accept-changes", part] if part else []
