"""The output file: checked before anything starts, claimed while a job runs, published whole."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.errors import Option, OutputError
from daskprs.folders.job_lock import epochs_of
from daskprs.system.atomic_file import sync_folder
from daskprs.system.file_lock import claimed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from daskprs.folders.job_folder import JobFolder


def check_output_dir(output_dir: str | PathLike[str]) -> Path:
    """Return the output folder as an absolute path; it need not exist. Nothing is created.

    Raise `OutputError` when it is remote, is another file, or cannot be written.
    """
    named = os.fspath(output_dir)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", named):  # a Path makes one slash of two
        raise OutputError(
            Option("output_dir", named),
            ": a URL is given as text, not as a Path, with two slashes after its colon.",
        )
    path = Path(named).absolute()
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not there.is_dir():
        raise OutputError(Option("output_dir", named), f": {there} is not a folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(Option("output_dir", named), f": {there} cannot be written by this user.")
    return path


def check_output_file(target: Path, *, overwrite: bool) -> None:
    """Refuse an output file that exists, unless it may be replaced; a folder never is."""
    if target.is_dir():
        raise it_is_a_folder(target)
    if os.path.lexists(target) and not overwrite:
        raise it_exists(target)


def it_is_a_folder(file: object) -> OutputError:
    """Return the error for a folder with the name of the output file."""
    msg = f"the output file {file} is a folder. Use another {Option('append_row_file_name')}."
    return OutputError(msg)


def it_exists(file: object) -> OutputError:
    """Return the error for an existing output file, with the ways to go on."""
    return OutputError(
        f"the output file {file} exists. Replace it by {Option('overwrite', value=True)}, or write "
        f"elsewhere by another {Option('output_dir')} or {Option('append_row_file_name')}."
    )


def make_output_dir(output_dir: Path) -> None:
    """Make the output folder, for a script that writes files of its own into it."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"output_dir: {output_dir} cannot be made: {error}."
        raise OutputError(msg) from error


@contextmanager
def claimed_output(target: Path) -> Iterator[None]:
    """Make the folder of an output file, and keep other jobs from writing the same one.

    Raise `OutputError` when the folder cannot be made or written, and `JobFolderLocked` when
    another job has claimed the file.
    """
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            claim = target.with_name(f".{target.name}.daskprs-claim")
            stack.enter_context(claimed(claim, f"the output file {target}"))
        except OSError as error:
            msg = f"output_dir: {target.parent} cannot be written: {error}."
            raise OutputError(msg) from error
        yield


def part_of(target: Path, job: str) -> Path:
    """Return the temporary name of an output file while it is written."""
    return target.with_name(f".{target.name}.{job}.part")


def drop_spools(folder: JobFolder, target: Path, last: int) -> str:
    """Remove the spools of all epochs up to `last`; return any problem, which is not fatal."""
    try:
        sync_folder(target.parent)  # else a loss of power could undo the publishing
        for epoch in epochs_of(folder, folder.spools):
            if epoch <= last:
                with suppress(FileNotFoundError):
                    shutil.rmtree(folder.spools(epoch))
    except OSError as error:
        return (
            f"{target} is published. What it was made of is kept in {folder}, since its folder "
            f"cannot be synced, or that cannot be removed: {error}."
        )
    return ""
