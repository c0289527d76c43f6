"""From what the caller names to the files that are meant."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.errors import InputError
from daskprs.inputs.input_file import InputFile, is_url
from daskprs.inputs.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GLOB_CHARACTERS = frozenset("*?[")


def discover(data: str | os.PathLike[str] | Sequence[Any]) -> list[list[InputFile]]:
    """Return the files of each input, in lexicographic order of path.

    A folder is searched recursively. In a list, each folder or glob is an input of its own, which
    no mini-batch mixes with another; the plain files of a list are one input together, in the
    place of the first of them. A file that is named twice is taken once.

    Raises
    ------
    InputError
        For a path that is not there, or a glob without a match.

    """
    if isinstance(data, (str, os.PathLike)):
        return [_one(os.fspath(data))]
    plain: list[InputFile] = []
    inputs: list[list[InputFile]] = []
    for path in map(os.fspath, data):
        found = _one(path)
        if _names_many(path, found):
            inputs.append(found)
        else:
            if not plain:
                inputs.append(plain)
            plain.extend(found)
    plain[:] = sorted(set(plain))
    return inputs


def _names_many(path: str, found: list[InputFile]) -> bool:
    is_plain = len(found) == 1 and found[0].path in (path, os.path.abspath(path))  # noqa: PTH100
    return not is_plain


def _one(path: str) -> list[InputFile]:
    found = sorted(set(_remote(path) if is_url(path) else _local(path)))
    if not found and _is_glob(path):
        msg = f"the glob {path!r} matches nothing.{nearest(path)}"
        raise InputError(msg)
    return found


def _is_glob(path: str) -> bool:
    return not GLOB_CHARACTERS.isdisjoint(path)


# ---- on a disk ----


def _local(path: str) -> Iterator[InputFile]:
    place = Path(path).absolute()
    if place.is_file():
        yield _file(str(place), place.name)
    elif place.is_dir():
        yield from _below(place)
    elif _is_glob(path):
        root = _glob_root(path)
        for match in glob.glob(path, recursive=True, include_hidden=True):  # noqa: PTH207 - takes absolute patterns
            if Path(match).is_dir():
                yield from _below(Path(match).absolute(), root)
            else:
                yield _file(os.path.abspath(match), os.path.relpath(match, root))  # noqa: PTH100
    else:
        msg = f"there is no file or folder {path!r}.{nearest(path)}"
        raise InputError(msg)


def _below(folder: Path, root: Path | None = None) -> Iterator[InputFile]:
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - a million of them
            if os.path.isfile(path):  # noqa: PTH113 - neither sockets nor dangling links
                yield _file(path, os.path.relpath(path, root or folder))


def _file(path: str, relative: str) -> InputFile:
    status = os.stat(path)  # noqa: PTH116 - a million of them
    return InputFile(path, status.st_size, str(status.st_mtime_ns), relative)


def _glob_root(path: str) -> Path:
    """Return the folder above the first part with a wildcard."""
    parts = Path(path).parts
    fixed = next(place for place, part in enumerate(parts) if _is_glob(part))
    return Path(*parts[:fixed]) if fixed else Path()


# ---- elsewhere ----


def _remote(path: str) -> Iterator[InputFile]:
    import fsspec

    try:
        filesystem, place = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        msg = f"{path!r} cannot be opened: {error}"
        raise InputError(msg) from error
    if _is_glob(place):
        found = filesystem.glob(place, detail=True)
    elif filesystem.isdir(place):
        found = filesystem.find(place, detail=True)
    elif filesystem.exists(place):
        found = {place: filesystem.info(place)}
    else:
        msg = f"there is nothing at {path!r}."
        raise InputError(msg)
    root = filesystem._strip_protocol(path.partition("*")[0]).rstrip("/")  # noqa: SLF001 - fsspec's own way to do it
    for name, info in found.items():
        if info["type"] == "file":
            below = os.path.relpath(name, root) if name != root else name.rpartition("/")[2]
            yield InputFile(filesystem.unstrip_protocol(name), info["size"], _version(info), below)


def _version(info: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created"):
        if info.get(key):
            return str(info[key])
    return ""


def visible(files: Iterable[InputFile]) -> list[InputFile]:
    """Leave out hidden files and those with a leading underscore, as tables want it."""
    return [
        file
        for file in files
        if not any(part.startswith((".", "_")) for part in file.relative.split("/"))
    ]
