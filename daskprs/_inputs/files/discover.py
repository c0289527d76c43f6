"""The files that the caller's paths, folders and globs stand for."""

from __future__ import annotations

import glob
import os
from functools import lru_cache, partial
from heapq import merge
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._folders.own_folders import is_own
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.file_versions import version_of
from daskprs._inputs.files.listing import counted_pages, current_listing
from daskprs._inputs.source.input_file import InputFile, is_url
from daskprs._suggest import nearest
from daskprs._system.store_calls import STORE_REQUESTS, at_once, each_in_order, takes_several
from daskprs._system.stores import no_bucket, open_store
from daskprs.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

GLOB_CHARACTERS = frozenset("*?[")
LOCAL_URL = "file://"


class MatchedFiles(NamedTuple):
    """The files that one name stands for."""

    files: FileList
    """Each file once, in lexicographic order of path."""
    is_one_file: bool
    """Whether the name is that of a file, not of a folder or a glob."""


class InStore(NamedTuple):
    """A URL that was given, and what is open for it."""

    url: str
    filesystem: Any
    place: str
    """The path in the store."""


def discover(
    data: str | os.PathLike[str] | Sequence[Any], requests: int = STORE_REQUESTS
) -> list[FileList]:
    """Return the files of each input, in lexicographic order of path.

    A folder is searched recursively. In a list, each folder or glob is an input of its own, which
    no mini-batch mixes with another; the plain files of a list are one input together, in the
    place of the first of them. A file that is named twice is taken once, in the first place. A path
    that is not there or cannot be read, or a glob without a match, is an `InputError`.

    A store is asked for at most `requests` of the paths and folders at the same time.
    """
    if isinstance(data, (str, os.PathLike)):
        return [_named(_place_of(os.fspath(data)), requests).files]
    plain = FileList()
    inputs: list[FileList] = []
    for named in _all_named(list(map(os.fspath, data)), requests):
        if not named.is_one_file:
            inputs.append(named.files)
        else:
            if not plain:
                inputs.append(plain)
            for file in named.files:
                plain.add(file)
    return _each_once([files.in_order() for files in inputs])


def _all_named(paths: list[str], requests: int) -> Iterator[MatchedFiles]:
    """Yield the files of each path; a store that takes several calls is asked for all at once."""
    places = list(map(_place_of, paths))
    stores = [one.filesystem for one in places if isinstance(one, InStore)]
    if len(places) == 1 or not stores or not all(takes_several(one, "info") for one in stores):
        yield from (_named(one, requests) for one in places)
        return
    listing = current_listing()
    found = each_in_order(partial(_named, requests=requests), places, requests)
    for _, named in zip(listing.reading("paths", places), found, strict=True):
        listing.listed += len(named.files)
        yield named


def places_below(data: Any, root: Path) -> Iterator[Path]:
    """Yield the folders and files below a resolved folder that are named as input, resolved.

    The data are those of `parallel_run`; only paths and globs of this machine name a place.
    """
    named = data if isinstance(data, (list, tuple)) else [data]
    paths = (os.fspath(one) for one in named if isinstance(one, (str, os.PathLike)))
    resolved = lru_cache(maxsize=1)(os.path.realpath)  # files of a folder are named in a row
    inside = f"{root}/"
    for path in (one.removeprefix(LOCAL_URL) for one in paths if one):
        if is_url(path):
            continue
        folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - a million of them
        if f"{resolved(folder)}/{name}".startswith(inside):
            matches = _glob(path) if is_glob(path) else [path]
            yield from (Path(match).resolve() for match in matches)
        elif is_glob(path) and root.is_relative_to(Path(glob_root(path)).resolve()):
            below = (Path(match).resolve() for match in _glob(path))
            yield from (place for place in below if place.is_relative_to(root))


def _glob(path: str) -> list[str]:
    """Return the paths that a glob matches; a part that exists as it is written matches itself."""
    root = glob_root(path)
    first, slash, rest = path[len(root) :].partition("/")
    pattern = glob.escape(root) + first
    if "[" not in rest:
        pattern += slash + rest
        return glob.glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207 - takes absolute patterns
    folders = glob.glob(f"{pattern}/", recursive=True, include_hidden=True)  # noqa: PTH207 - the same
    return [*dict.fromkeys(match for folder in folders for match in _glob(folder + rest))]


def _each_once(inputs: list[FileList]) -> list[FileList]:
    """Leave out files that an earlier input has; all inputs are walked side by side, in order."""
    again: list[set[int]] = [set() for _ in inputs]
    places = (zip(one.paths(), repeat(at), count()) for at, one in enumerate(inputs))
    last = ""
    for path, at, row in merge(*places) if len(inputs) > 1 else ():
        if path == last:
            again[at].add(row)
        last = path
    return [one.without(rows) if rows else one for one, rows in zip(inputs, again, strict=True)]


def _place_of(path: str) -> str | InStore:
    """Return a path of this machine, or what is open for a URL, without its former listings."""
    if not path:
        msg = "data: an empty path names nothing. The current folder is '.'."
        raise InputError(msg)
    if path.startswith(LOCAL_URL):
        return path.removeprefix(LOCAL_URL)
    if not is_url(path):
        return path
    try:
        filesystem, place = open_store(path)
    except (ImportError, ValueError) as error:
        msg = f"{path!r} cannot be opened: {error}"
        raise InputError(msg) from error
    # fsspec keeps file systems and their listings for the whole process.
    filesystem.invalidate_cache()  # its former listings may have changed
    return InStore(path, filesystem, place)


def _named(place: str | InStore, requests: int) -> MatchedFiles:
    path = place if isinstance(place, str) else place.url
    listing = current_listing()
    listing.begin(path)
    try:
        named = _local(place) if isinstance(place, str) else _remote(place, requests)
    except OSError as error:
        msg = f"{path!r} cannot be read: {error}"
        raise InputError(msg) from error
    if not named.files and is_glob(path):
        msg = f"the glob {path!r} matches nothing.{'' if is_url(path) else nearest(path)}"
        raise InputError(msg)
    listing.end(len(named.files))
    return named


def is_glob(path: str) -> bool:
    return not GLOB_CHARACTERS.isdisjoint(path)


# ---- on a disk ----


TEXT = " Texts are paths here: put rows into a DataFrame."


def _local(path: str) -> MatchedFiles:
    place = Path(path).absolute()
    if place.is_file():
        status = place.stat()
        return MatchedFiles(FileList([_file(str(place), status, "")]), is_one_file=True)
    if place.is_dir():
        below = current_listing().count(_below(str(place), ""))
        return MatchedFiles(FileList(below), is_one_file=False)
    if is_glob(path):
        matches = current_listing().count(_matches(path))
        return MatchedFiles(FileList(matches).in_order(), is_one_file=False)
    hint = nearest(path) or (TEXT if " " in path else "")
    msg = f"there is no file or folder {path!r}.{hint}"
    raise InputError(msg)


def _matches(path: str) -> Iterator[InputFile]:
    root = glob_root(path)
    named = {part for part in path[len(root) :].split("/") if not is_glob(part)}

    @lru_cache(maxsize=1000)  # files of a folder come in a row
    def is_own_below(place: str) -> bool:
        """Say whether a place lies in a folder of ours, without a name of it in the glob."""
        above, name = os.path.split(place)
        return (
            len(place) > len(root)
            and name not in named
            and (is_own(place, _names(place)) or is_own_below(above))
        )

    matches = _glob(path)
    matches.sort(reverse=True)
    while matches:
        match = matches.pop()  # a file that is listed need not be held as a name, too
        place = os.path.abspath(match)  # noqa: PTH100 - a million of them
        relative = os.path.relpath(match, root)
        if os.path.isdir(match):  # noqa: PTH112 - the same
            if not is_own_below(match.rstrip("/")):
                yield from _below(place, f"{relative}/")
        elif os.path.isfile(match):  # noqa: PTH113 - neither sockets nor dangling links
            folder, name = os.path.split(match)
            if name not in named and is_own_below(folder):
                continue
            yield _file(place, os.stat(match), relative)  # noqa: PTH116 - the same


class _Folder(NamedTuple):
    """A folder that is being searched."""

    path: str
    relative: str
    above: frozenset[tuple[int, int]]
    """It and the folders above it."""
    names: list[str]
    """Names that are left in it, the last first; names of folders end with a slash."""


def _below(folder: str, relative: str) -> Iterator[InputFile]:
    """Yield the files under a folder, in lexicographic order of path.

    A link to one of the folders above it is not followed. Folders that daskprs has made are left
    out, but for this one, which somebody has named.
    """
    root = folder if folder.endswith("/") else f"{folder}/"
    inside = [_opened(root, relative, frozenset())]
    while inside:
        folder, relative, above, names = inside[-1]
        if not names:
            inside.pop()
            continue
        name = names.pop()
        path = folder + name
        if name.endswith("/"):
            below = _opened(path, relative + name, above)
            if not is_own(path, below.names):
                inside.append(below)
        else:
            yield _file(path, os.stat(path), relative + name)  # noqa: PTH116 - a million of them


def _opened(path: str, relative: str, above: frozenset[tuple[int, int]]) -> _Folder:
    status = os.stat(path)  # noqa: PTH116 - a million of them
    here = (status.st_dev, status.st_ino)
    return _Folder(path, relative, above | {here}, [] if here in above else _names(path))


def _names(folder: str) -> list[str]:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                names.append(entry.name)
            elif entry.is_dir():
                names.append(f"{entry.name}/")
    names.sort(reverse=True)
    return names


def _file(path: str, status: os.stat_result, relative: str) -> InputFile:
    return InputFile(path, status.st_size, str(status.st_mtime_ns), relative)


def glob_root(path: str, exists: Callable[[str], bool] = os.path.lexists) -> str:
    """Return the folder above the first part that is a pattern, and its slash; empty for none.

    A part that exists as it is written, such as ``data[2024]``, is not a pattern.
    """
    start = 0
    while start < len(path):
        stop = path.find("/", start)
        stop = len(path) if stop < 0 else stop
        if is_glob(path[start:stop]) and not exists(path[:stop]):
            return path[:start]
        start = stop + 1
    return path


# ---- elsewhere ----


def _remote(given: InStore, requests: int) -> MatchedFiles:
    url, filesystem, place = given
    try:
        with counted_pages(filesystem, current_listing()):
            found, root, is_one_file = _found(filesystem, place, requests)
    except FileNotFoundError as error:
        msg = f"there is nothing at {url!r}.{no_bucket(filesystem, place)}"
        raise InputError(msg) from error
    except Exception as error:  # each store has errors of its own
        msg = f"{url!r} cannot be read: {error}"
        raise InputError(msg) from error
    if not found and (told := no_bucket(filesystem, place)):
        msg = f"there is nothing at {url!r}.{told}"
        raise InputError(msg)
    files = FileList()
    for name in sorted(found):
        info = found.pop(name)  # a kilobyte
        if info["type"] == "file" and not name.endswith("/"):  # the mark of a folder on S3
            path = _chained(filesystem.unstrip_protocol(name), url)
            relative = name.removeprefix(root).lstrip("/")
            files.add(InputFile(path, info["size"], version_of(info), relative))
    return MatchedFiles(files.in_order(), is_one_file)


def _found(
    filesystem: Any, place: str, requests: int
) -> tuple[dict[str, dict[str, Any]], str, bool]:
    """Return the entries at a place, the folder that they lie in, and whether it is one file."""
    root = glob_root(place, filesystem.exists) if is_glob(place) else place
    if root != place:
        pattern = place[len(root) :]
        _list_ahead(filesystem, root, pattern, requests)
        return filesystem.glob(glob.escape(root) + pattern, detail=True), root, False
    if _is_s3(filesystem):  # to learn that a flat folder is one, it would list all of it
        found = filesystem.find(place, detail=True)
        if found:
            is_one_file = place in found and found[place]["type"] == "file"
            return found, place.rstrip("/"), is_one_file
    if filesystem.isdir(place):
        return filesystem.find(place, detail=True), place.rstrip("/"), False
    return {place: filesystem.info(place)}, place, True


def _is_s3(filesystem: Any) -> bool:
    return "s3" in filesystem.protocol


def _list_ahead(filesystem: Any, root: str, pattern: str, requests: int) -> None:
    """Let a store list the folders that a glob looks into, all those of a level at the same time.

    The glob of s3fs lists one folder after the other, and finds these listings in its cache.
    Other stores list at once what is below the root.
    """
    folders = pattern.strip("/").count("/")
    is_fit = _is_s3(filesystem) and takes_several(filesystem, "ls")
    if "**" in pattern or not folders or not is_fit:
        return
    level, seen = [root.rstrip("/")], set[str]()
    for _ in range(folders + 1):
        seen.update(level)
        calls = [partial(filesystem._ls, folder, detail=True) for folder in level]  # noqa: SLF001 - fsspec's name of what its loop calls
        listed = at_once(filesystem, calls, requests)
        entries = (entry for one in listed if not isinstance(one, BaseException) for entry in one)
        names = (one["name"].rstrip("/") for one in entries if one["type"] == "directory")
        level = [name for name in names if name not in seen]


def _chained(url: str, given: str) -> str:
    """Return a URL with the links that the given one had: ``zip://*.csv::s3://b/all.zip``."""
    head, chain, rest = given.partition("::")
    if not chain:
        return url
    return f"{url}::{rest}" if is_url(head) else f"{head}::{url}"


def visible(files: Iterable[InputFile]) -> Iterator[InputFile]:
    """Yield the files without those in hidden folders, or with a leading dot or underscore.

    A file that the caller named itself stays.
    """
    for file in files:
        if not any(part.startswith((".", "_")) for part in file.relative.split("/")):
            yield file
