"""The folders that the operator allows: callers can read and write nothing outside of them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from daskprs.errors import OptionError
from daskprs.serve.http_errors import Refusal, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STORE = re.compile(
    r"(?:azureml://(?:.*/)?|/subscriptions/.*/)datastores/(?P<store>[^/]+)/paths/(?P<path>.*)",
    re.DOTALL,
)
"""A datastore path in each documented form: short, with workspace, or as a resource."""


class Roots:
    """Allowed folders, by the name of the datastore whose paths lie there.

    `option` is the option that gives the folders, for messages.
    """

    def __init__(self, folders: Mapping[str, str], option: str = "--root") -> None:
        self._folders: dict[str, Path] = {}
        for name, folder in folders.items():
            place = Path(folder)
            if not place.is_dir():
                msg = f"{option} {name}={folder}: this folder does not exist."
                raise OptionError(msg)
            self._folders[name] = place.resolve(strict=True)

    def holds(self, path: Path) -> bool:
        """Say whether a resolved path lies in an allowed folder."""
        return any(path.is_relative_to(folder) for folder in self._folders.values())

    def lies_in(self, path: Path) -> bool:
        """Say whether an allowed folder lies in a resolved path."""
        return any(folder.is_relative_to(path) for folder in self._folders.values())

    def existing(self, uri: str, *, folder: bool, target: str) -> Path:
        """Return the file or folder that a caller names, its symbolic links resolved.

        Refuse a path that is missing or lies outside, and a folder with a link that leads outside.
        """
        path = self._inside(uri, target)
        if not (path.is_dir() if folder else path.is_file()):
            raise not_found("folder" if folder else "file", uri, target)
        if folder:
            self._refuse_links(path, uri, target)
        return path

    def new(self, uri: str, *, folder: bool, target: str) -> Path:
        """Return the path that a caller names for output, whether or not it exists.

        Refuse a path outside, and an output file whose folder lies outside.
        """
        path = self._inside(uri, target)
        if not folder and not self.holds(path.parent):  # a root itself cannot be an output file
            raise self._outside(uri, target)
        return path

    def _inside(self, uri: str, target: str) -> Path:
        try:
            path = self._named(uri).resolve()
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, no such name
            raise self._outside(uri, target) from None
        if not self.holds(path):
            raise self._outside(uri, target)
        return path

    def _named(self, uri: str) -> Path:
        if store := _STORE.fullmatch(uri):
            folder = self._folders.get(store["store"])
            if folder is None:
                raise ValueError(store["store"])
            return folder / store["path"].lstrip("/")
        if uri.startswith("file:///"):
            return Path(unquote(uri.removeprefix("file://"), errors="strict"))
        if not uri.startswith("/"):
            raise ValueError(uri)
        return Path(uri)

    def _outside(self, uri: str, target: str) -> Refusal:
        """Return the same answer for every path outside, so that it does not reveal what exists."""
        known = ", ".join(f"azureml://datastores/{name}/paths/" for name in self._folders)
        message = f"{uri!r} does not lie in a folder that this service may use: {known or 'none'}."
        return Refusal(403, "PathNotAllowed", message, target=target)

    def _refuse_links(self, folder: Path, uri: str, target: str) -> None:
        try:
            bad = next((link for link in _links(folder) if not self.holds(link.resolve())), None)
        except (OSError, RuntimeError) as error:
            message = f"{uri!r} cannot be searched: {type(error).__name__}."
            raise Refusal(403, "PathNotAllowed", message, target=target) from error
        if bad is not None:
            message = (
                f"In {uri!r} the link {str(bad.relative_to(folder))!r} leads out of the folders "
                "that this service may use."
            )
            raise Refusal(403, "PathNotAllowed", message, target=target)


def _links(folder: Path) -> Iterator[Path]:
    """Yield the symbolic links under a folder, those under linked folders included."""
    waiting, seen = [str(folder)], set()
    while waiting:
        here = waiting.pop()
        status = os.stat(here)  # noqa: PTH116 - as many as there are folders
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path)
                if entry.is_dir():
                    waiting.append(entry.path)
