"""What goes on with a job, by its folder: a command, its program or its pipeline."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from daskprs._folders.joint_folder import joint_folder_at
from daskprs._job.flags import flagged
from daskprs._job.request import files_of_variables, in_its_program, read_call
from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._folders.job_folder import JobFolder
    from daskprs._job.frontend import Surface


def way_on(folder: JobFolder, surface: Surface, again: Mapping[str, Any]) -> str:
    """Return the command that resumes a job, or what its pipeline or its program does instead.

    `again` has the options that the resume needs, as `Ending.again`.
    """
    return way_elsewhere(folder) or surface.resume(folder.path, **again, **_files(folder))


def way_on_mended(folder: JobFolder, program: str, script: str | None, *, is_complete: bool) -> str:
    """Return what goes on with a job whose failure is mended, with another script if it is that."""
    command, how = ("retry-failed", "failed") if is_complete else ("resume", True)
    if way := way_elsewhere(folder, how):
        return way
    words = [*program.split(), command, str(folder)]
    words += ["--script", script] if script else []
    words += ["--accept-changes", "script"] if script and not is_complete else []
    files = [flagged(Option(name, file)) for name, file in _files(folder).items()]
    return " ".join([shlex.join(words), *files])


def _files(folder: JobFolder) -> dict[str, str]:
    """Return the files that set the job's variables; none if its call cannot be read."""
    try:
        return files_of_variables(read_call(folder))
    except JobFolderError:
        return {}


def way_elsewhere(folder: JobFolder, resume: bool | str = True) -> str:  # noqa: FBT001, FBT002 - the option
    """Return what the pipeline or the program of a job does to go on; empty: a command does it."""
    try:
        joint = joint_folder_at(folder.path.parent)
        if joint is not None and (way := joint.way_on_of(folder.path)) is not None:
            return way
        needs_program = bool(read_call(folder)["objects"])
    except JobFolderError:  # it was made by another version, or this user may not read it
        needs_program = False
    return in_its_program(folder, resume) if needs_program else ""
