"""The output file: checked before anything starts, claimed while a job runs, published whole."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._folders.job_lock import epochs_of
from daskprs._folders.unfinished import ATTEMPTS, CLAIM, PART
from daskprs._output.journal.history import MANIFEST
from daskprs._system.atomic_file import exchanged, sync_folder
from daskprs._system.file_lock import claimed
from daskprs.errors import Option, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from daskprs._folders.job_folder import JobFolder


NOT_OF_TEXT = {
    **dict.fromkeys((".parquet", ".pq", ".pqt"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    ".json": "jsonl",
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".orc", ".avro", ".npy", ".npz", ".h5", ".hdf5"), ""),
    **dict.fromkeys((".pkl", ".pickle"), ""),
}
"""Suffixes whose readers cannot read lines of text, and the output format that they want, if any.
Lines of text may be JSON: one object for each line is ``.jsonl``, and ``.json`` is one value."""


COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files, which stand behind the suffix of the format."""


def name_of_another_format(name: str, *, may_be_dataset: bool = True) -> str:
    """Return the fault of the name of a file of text; empty if the name is right.

    `may_be_dataset` says that the caller can choose the output format.
    """
    whole = name
    for compression in COMPRESSIONS:
        if whole.lower().endswith(compression):
            whole = whole[: -len(compression)]
    stem, dot, suffix = whole.rpartition(".")
    form = NOT_OF_TEXT.get(f".{suffix}".lower())
    if not dot or form is None:
        return ""
    ways = f"Use a name for text, such as {Option('append_row_file_name', f'{stem}.txt')}"
    if form and may_be_dataset:
        other = "" if form != "jsonl" else f" and {Option('append_row_file_name', f'{stem}.jsonl')}"
        ways = f"Write a data set by {Option('output_format', form)}{other}, or use {ways[4:]}"
    return (
        f"{Option('append_row_file_name', name)}: the output is lines of text, which no reader of "
        f".{suffix} files can read. {ways}."
    )


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


def check_output_file(target: Path, *, overwrite: bool, is_dataset: bool = False) -> None:
    """Refuse an output that exists, unless it may be replaced.

    Only a data set may replace a folder, and only one that holds a data set or nothing.
    """
    if target.is_dir():
        if not is_dataset:
            raise it_is_a_folder(target)
        foreign = _foreign_in(target)
        if foreign:
            msg = (
                f"{target} holds {foreign}, which does not belong to a data set of daskprs, so "
                f"nothing replaces it. Use another {Option('append_row_file_name')}, or move it."
            )
            raise OutputError(msg)
    if os.path.lexists(target) and not overwrite:
        raise it_exists(target)


def _foreign_in(folder: Path) -> str:
    """Return a file in a folder that no manifest of daskprs names; empty if there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        own = {MANIFEST, *(one["path"] for one in manifest["files"])}
        own = own if "daskprs_data_set" in manifest else set()
    except (OSError, ValueError, KeyError, TypeError):
        own = set()
    return next((name for name in files_below(folder) if name not in own), "")


def files_below(folder: Path) -> Iterator[str]:
    """Yield the names of all files below a folder."""
    places = (one for one in folder.rglob("*") if one.is_symlink() or not one.is_dir())
    return (one.relative_to(folder).as_posix() for one in places)


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
        named = Option("output_dir", str(output_dir))
        raise OutputError(named, f" cannot be made: {error}.") from error


@contextmanager
def claimed_output(target: Path) -> Iterator[None]:
    """Make the folder of an output file, and keep other jobs from writing the same one.

    Raise `OutputError` when the folder cannot be made or written, and `JobFolderLocked` when
    another job has claimed the file.
    """
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            claim = target.with_name(f".{target.name}{CLAIM}")
            stack.enter_context(claimed(claim, f"the output file {target}"))
        except OSError as error:
            named = Option("output_dir", str(target.parent))
            raise OutputError(named, f" cannot be written: {error}.") from error
        yield


def part_of(target: Path, job: str, epoch: int) -> Path:
    """Return the temporary name of an output while the driver of an epoch writes it.

    Two drivers may believe that the job folder is theirs: neither writes what the other publishes,
    nor removes it.
    """
    return target.with_name(f".{target.name}.{job}.{epoch}{PART}")


def attempts_of(part: Path) -> Path:
    """Return the folder for attempts of other processes at parts of an unfinished output."""
    return part.with_suffix(ATTEMPTS)


def put_in_place(part: Path, target: Path) -> None:
    """Give a finished output its name, in one step; what it replaces lies in its place then.

    Where the file system cannot exchange two names, that takes two steps, between which nothing
    has the name: `tidy_up` puts the old output back after a crash there.
    """
    if not os.path.lexists(target):
        part.replace(target)
    elif not exchanged(part, target):
        old = _old_of(part)
        removed(old)
        target.replace(old)
        part.replace(target)


def tidy_up(part: Path, target: Path) -> None:
    """Remove an output that was replaced in two steps; put it back if nothing has its name."""
    old = _old_of(part)
    if os.path.lexists(old):
        if os.path.lexists(target):
            removed(old)
        else:
            old.replace(target)


def drop_unfinished(earlier: Path, part: Path) -> None:
    """Remove the unfinished output of an earlier driver, by way of the name of one's own.

    That driver may be at work, and give its output the final name now: no half of a folder may get
    it, nor what is not there any more.
    """
    if os.path.lexists(earlier):
        removed(part)
        with suppress(FileNotFoundError):
            earlier.replace(part)
        removed(part)


def removed(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _old_of(part: Path) -> Path:
    return part.with_suffix(".old")


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
