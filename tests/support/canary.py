"""An object that shows that it was unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Canary:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        """Say how to make the file."""
        return Path.touch, (self._path,)
