"""Front ends of a job, Python and the command line: how each words options and next steps."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daskprs._job.flags import flagged
from daskprs.errors import Option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def arguments_to_resume(job_dir: Path, accept: str = "", **again: Any) -> str:
    """Return the arguments that resume a job, to be added to the call in Python."""
    accepted = [Option("accept_changes", accept)] if accept else []
    others = [Option(name, value) for name, value in again.items() if value is not None]
    words = [Option("resume", value=True), Option("job_dir", str(job_dir)), *accepted, *others]
    return ", ".join(map(str, words))


def command_to_resume(
    job_dir: Path, accept: str = "", *, program: str = "daskprs", **again: Any
) -> str:
    """Return the command that resumes a job from its folder."""
    command = shlex.join([*program.split(), "resume", str(job_dir), *accepting(accept)])
    others = [flagged(Option(name, value)) for name, value in again.items() if value is not None]
    return " ".join([command, *others])


def command_to_report(job_dir: Path, *, program: str = "daskprs") -> str:
    """Return the command that says how the job in a folder went, and why."""
    return shlex.join([*program.split(), "report", str(job_dir), "--text"])


def accepting(part: str) -> list[str]:
    """Return the words of a command that accept a change of a part of a job."""
    return ["--accept-changes", part] if part else []


@dataclass(frozen=True)
class Surface:
    """The words of a front end; the default is a call of `parallel_run` in Python."""

    option: Callable[[Option], str] = str
    """Returns an option that a message names."""
    resume: Callable[..., str] = arguments_to_resume
    """Returns the words that resume the job in a folder and accept a changed part of the job, with
    the options, by name, of `Ending.again`."""
    report: Callable[[Path], str] = command_to_report
    """Returns the command that says how the job in a folder went, and why."""
    has_shown: bool = False
    """Whether the output of the steps of a pipeline was shown, so that no message repeats it."""
