"""A path below a folder, as an attribute of the class that knows the folder's paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Below:
    """Returns the path of a file or folder below the ``path`` of its owner, given with slashes."""

    def __init__(self, relative: str) -> None:
        self._relative = relative

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, _: type | None = None) -> Path:
        # The folder keeps it, so that the next access does not come here.
        path: Path = folder.path / self._relative
        folder.__dict__[self._name] = path
        return path
