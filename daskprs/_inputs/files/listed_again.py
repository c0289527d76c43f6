"""Whether an output would be listed as input the next time, or would take the place of input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from daskprs._inputs.files.discover import glob_root, is_glob
from daskprs._inputs.files.marked_folder import without_scheme
from daskprs._inputs.source.input_file import is_url

if TYPE_CHECKING:
    from collections.abc import Callable


def listing_of(
    data: Any, output: str, file: str, *, skips_hidden: bool, job: str = ""
) -> tuple[str, bool] | None:
    """Return the path of an input that lists an output, or whose files it would replace.

    Parameters
    ----------
    data
        The input; what is no path lists nothing.
    output
        The path or URL of the output.
    file
        That of a file of it: of the output itself, or of a part in its folder.
    skips_hidden
        Whether the input is without hidden files, as tables are.
    job
        The job folder, which listings leave out, if anything else is named; empty: there is none.

    Returns
    -------
    tuple of str and bool or None
        The path, as it was given, and whether the output would replace a file of the input; None
        where the input and the output are apart.

    """
    named = [data] if isinstance(data, (str, os.PathLike)) else data
    if not isinstance(named, Sequence) or isinstance(named, (bytes, bytearray)):
        return None
    if not all(isinstance(one, (str, os.PathLike)) for one in named):
        return None
    resolved = lru_cache(maxsize=1)(os.path.realpath)  # files of a folder are named in a row
    output, file = _place(output, resolved), _place(file, resolved)
    job = _place(job, resolved) if job else ""
    is_left_out = bool(job) and _is_in(file, job)
    for path in map(os.fspath, named):
        root = glob_root(path, _exists) if is_glob(path) else path
        place = _place(root, resolved)
        if place == file or _is_in(place, output):
            return path, True
        if not _is_in(file, place):
            continue
        parts = filter(None, path[len(root) :].split("/"))
        if is_left_out and not _is_in(place, job) and all(map(is_glob, parts)):
            continue
        below = file[len(place.rstrip("/")) :].strip("/").split("/")
        is_hidden = skips_hidden and any(part.startswith((".", "_")) for part in below)
        if not is_hidden and _takes(path[len(root) :], below):
            return path, os.path.lexists(file) and file == output
    return None


def _exists(path: str) -> bool:
    return not is_url(path) and os.path.lexists(path)


def _place(path: str, resolved: Callable[[str], str]) -> str:
    """Return a path without links, or a URL without empty parts."""
    path = without_scheme(path)
    if is_url(path):
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{'/'.join(filter(None, rest.split('/')))}"
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - a million of them
    place = os.path.join(resolved(folder), name)  # noqa: PTH118 - the same
    return os.path.realpath(place) if os.path.islink(place) else place  # noqa: PTH114 - the same


def _is_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def _takes(pattern: str, below: list[str]) -> bool:
    """Return whether a glob takes a file, by its parts below the root: it, or a folder above it."""
    if not pattern:
        return True
    wanted = [part for part in pattern.split("/") if part not in ("", ".")]
    last = len(below) - pattern.endswith("/")
    return any(_fits(below[:count], wanted) for count in range(1, last + 1))


def _fits(parts: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not parts
    first, *rest = wanted
    if first == "**" and _fits(parts, rest):
        return True
    if not parts:
        return False
    if first == "**":
        return _fits(parts[1:], wanted)
    is_fit = first == parts[0] or fnmatchcase(parts[0], first)
    return is_fit and _fits(parts[1:], rest)
