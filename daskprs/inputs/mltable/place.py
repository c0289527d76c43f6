"""Where an MLTable is, and what its relative paths mean."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from daskprs.inputs.source.input_file import is_url, name_of
from daskprs.system.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NAME = "MLTable"
LOCAL_URL = "file://"


_PLACES: ContextVar[Callable[[str], str | None]] = ContextVar(
    "places of URLs in an MLTable", default=lambda _: None
)


@contextmanager
def located(place_of: Callable[[str], str | None]) -> Iterator[None]:
    """Let a function give the places of URLs in MLTables that a block opens; None: unknown."""
    before = _PLACES.set(place_of)
    try:
        yield
    finally:
        _PLACES.reset(before)


def mltable_at(data: str | os.PathLike[str] | Sequence[Any]) -> str | None:
    """Return the path of the file `MLTable` that is meant: itself, or in the folder named.

    A list of several paths names no MLTable: each path is an input of its own.
    """
    if not isinstance(data, (str, os.PathLike)):
        if len(data) != 1:
            return None
        data = data[0]
    path = without_scheme(os.fspath(data))
    if is_url(path):
        return _remote(path)
    place = Path(path)
    if place.name == NAME and place.is_file():
        return str(place.absolute())
    inside = place / NAME
    return str(inside.absolute()) if path and inside.is_file() else None


def folder_of(path: str) -> str:
    """Return the folder that an MLTable lies in, without a slash at its end."""
    return path.rpartition("/")[0].rstrip("/") or "/"


def resolved(path: str, folder: str) -> str:
    """Return a path of an MLTable, resolved: relative ones begin at its folder."""
    path = _PLACES.get()(path) or without_scheme(path)
    if is_url(path) or path.startswith("/"):
        return path
    if not is_url(folder):
        return os.path.normpath(f"{folder}/{path}")
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return f"{folder}/{path}" if path not in {"", "."} else folder


def without_scheme(path: str) -> str:
    """Return the path of a ``file://`` URL."""
    if not path.startswith(LOCAL_URL):
        return path
    return unquote(path.removeprefix(LOCAL_URL).removeprefix("localhost"))


def _remote(url: str) -> str | None:
    if name_of(url) == NAME:
        return url
    if "::" in url or not {"*", "?", "["}.isdisjoint(url) or "." in name_of(url.rstrip("/")):
        return None
    inside = f"{url.rstrip('/')}/{NAME}"
    try:
        filesystem, place = open_store(inside)
        filesystem.invalidate_cache()  # what it has listed before may have changed
        return inside if filesystem.isfile(place) else None
    except Exception:  # noqa: BLE001 - each store has its own; listing it reports the error
        return None
