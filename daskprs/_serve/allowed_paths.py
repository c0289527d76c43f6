"""The folders that the operator allows: callers can read and write nothing outside of them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from daskprs._serve.http_errors import Refusal, not_found
from daskprs.azure._assets import IN_DATASTORE, RELATIVE, Assets
from daskprs.azure._mltable.form import MLTableForm
from daskprs.azure._mltable.place import NAME, resolved
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import filled
from daskprs.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STORE = re.compile(
    r"(?:azureml://(?:.*/)?|/subscriptions/.*/)datastores/(?P<store>[^/]+)/paths(?P<path>|/.*)",
    re.DOTALL,
)
"""A datastore path in each documented form: short, with workspace, or as a resource."""
_RESOURCE = re.compile(r"/subscriptions/.*/(versions|labels)/")
"""An asset as a resource."""


class Roots:
    """Allowed folders, by the name of the datastore whose paths lie there.

    `option` is the option that gives the folders, for messages. The places of `assets` are allowed,
    too.
    """

    def __init__(
        self, folders: Mapping[str, str], option: str = "--root", assets: Assets | None = None
    ) -> None:
        self._assets = assets or Assets()
        self._folders: dict[str, Path] = {}
        for name, folder in folders.items():
            place = Path(folder)
            if not place.is_dir():
                msg = f"{option} {name}={folder}: this folder does not exist."
                raise OptionError(msg)
            self._folders[name] = place.resolve(strict=True)

    @property
    def folders(self) -> list[Path]:
        """The folders, their links resolved."""
        return [*self._folders.values()]

    def holds(self, path: Path) -> bool:
        """Say whether a resolved path lies in an allowed folder."""
        return any(path.is_relative_to(folder) for folder in self._folders.values())

    def shows(self, path: Path) -> bool:
        """Say whether a resolved path lies in an allowed folder or in an asset."""
        assets = (Path(one).resolve() for one in self._assets.paths.values())
        return self.holds(path) or any(path.is_relative_to(one) for one in assets)

    def lies_in(self, path: Path) -> bool:
        """Say whether an allowed folder lies in a resolved path."""
        return any(folder.is_relative_to(path) for folder in self._folders.values())

    def existing(self, uri: str, kind: str, *, target: str) -> Path:
        """Return the file or folder that a caller names, its symbolic links resolved.

        Refuse a path that is missing or lies outside, and a folder with a link that leads outside.
        """
        own = self._asset(uri, target)
        path = own or self._inside(uri, target)
        is_there, name = {
            "UriFile": (path.is_file, "file"),
            "UriFolder": (path.is_dir, "folder"),
            "MLTable": ((path / NAME).is_file, "folder with a file MLTable"),
        }.get(kind, (path.exists, "file or folder"))
        try:
            is_found = is_there()
        except OSError:  # a name that is too long, or a folder that the service may not enter
            is_found = False
        if not is_found:
            raise not_found(name, uri, target)
        if path.is_dir():
            self._refuse_links(path, uri, target, own)
            if (path / NAME).is_file():  # a step may read it as one, whatever the caller calls it
                _refuse_entries(path, uri, target)
        return path

    def _asset(self, uri: str, target: str) -> Path | None:
        """Return the place that the operator gave an asset; None for a path of another form."""
        reference = f"azureml:/{uri}" if _RESOURCE.match(uri) else uri
        in_store = _STORE.fullmatch(uri) or IN_DATASTORE.fullmatch(uri)
        if not reference.startswith("azureml:") or in_store:
            return None
        try:
            if RELATIVE.match(reference):
                raise self._outside(uri, target)
            return self._assets.place(reference, Path("/")).resolve(strict=True)
        except UsageError as error:
            message = f"{uri!r} is not an asset to which the operator of this service gave a place."
            raise Refusal(403, "PathNotAllowed", message, target=target) from error
        except OSError:
            raise not_found("file or folder", uri, target) from None

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

    def _refuse_links(self, folder: Path, uri: str, target: str, own: Path | None) -> None:
        """Refuse a folder with a link that leads neither into a root nor into the asset `own`."""

        def is_allowed(link: Path) -> bool:
            path = link.resolve()
            return self.holds(path) or (own is not None and path.is_relative_to(own))

        try:
            bad = next((link for link in _links(folder) if not is_allowed(link)), None)
        except (OSError, RuntimeError) as error:
            message = f"{uri!r} cannot be searched: {type(error).__name__}."
            raise Refusal(403, "PathNotAllowed", message, target=target) from error
        if bad is not None:
            message = (
                f"In {uri!r} the link {str(bad.relative_to(folder))!r} leads out of the folders "
                "that this service may use."
            )
            raise Refusal(403, "PathNotAllowed", message, target=target)


def _refuse_entries(folder: Path, uri: str, target: str) -> None:
    """Refuse an MLTable with paths outside of its own folder, whose links have been checked."""
    try:
        document = Document.read(folder / NAME)
        form, mistakes = filled(MLTableForm, document.content, document)
    except UsageError:
        form, mistakes = None, []
    if form is None or mistakes:
        message = f"The file MLTable in {uri!r} cannot be read as such."
        raise Refusal(400, "BadRequest", message, target=target)
    places = [Path(resolved(entry.path, str(folder))) for entry in form.paths]
    if not all(place.is_relative_to(folder) and ".." not in place.parts for place in places):
        message = f"{uri!r} is an MLTable with paths outside of its folder."
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
