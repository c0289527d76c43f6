"""The place of an MLTable, which its relative paths start from."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from daskprs._inputs.files.marked_folder import without_scheme
from daskprs._inputs.source.input_file import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "MLTable"


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
