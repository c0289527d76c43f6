"""Folders that are one input because a file of a certain name is in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from daskprs._inputs.files.discover import LOCAL_URL, is_glob
from daskprs._inputs.source.input_file import is_url, name_of
from daskprs._system.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence


def mark_at(data: str | os.PathLike[str] | Sequence[Any], name: str) -> str | None:
    """Return the path of the file of this name that is meant: itself, or in the folder named.

    A list of several paths names no such file: each path is an input of its own.
    """
    if not isinstance(data, (str, os.PathLike)):
        if len(data) != 1:
            return None
        data = data[0]
    path = without_scheme(os.fspath(data))
    if is_url(path):
        return _remote(path, name)
    place = Path(path)
    if place.name == name and place.is_file():
        return str(place.absolute())
    inside = place / name
    return str(inside.absolute()) if path and inside.is_file() else None


def without_scheme(path: str) -> str:
    """Return the path of a ``file://`` URL."""
    if not path.startswith(LOCAL_URL):
        return path
    return unquote(path.removeprefix(LOCAL_URL).removeprefix("localhost"))


def _remote(url: str, name: str) -> str | None:
    if name_of(url) == name:
        return url
    if "::" in url or is_glob(url) or "." in name_of(url.rstrip("/")):
        return None
    inside = f"{url.rstrip('/')}/{name}"
    try:
        filesystem, place = open_store(inside)
        filesystem.invalidate_cache()  # what it has listed before may have changed
        return inside if filesystem.isfile(place) else None
    except Exception:  # noqa: BLE001 - each store has its own; listing it reports the error
        return None
