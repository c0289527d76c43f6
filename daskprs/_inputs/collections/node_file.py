"""Files on the disk of a node that last as long as the Dask result that owns them."""

from __future__ import annotations

import secrets
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NodeFile:
    """A file that goes with the last reference to it; its pickle holds its content.

    Such an object is the result of a Dask task, or a part of one. Dask releases it on its worker,
    which removes the file, or sends it to another worker, which writes a file of its own when the
    content is first asked for. The file is complete, and belongs to this object from now on.
    """

    def __init__(self, path: Path) -> None:
        self._content: bytes | None = None
        """Until the file is written, where this object has just arrived; else None."""
        self._lock = threading.Lock()
        self._own(path)

    def at(self, folder: Path) -> Path:
        """Return the path of the file; it is written to a folder where it has just arrived."""
        with self._lock:
            if self._content is not None:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / new_name()
                try:
                    path.write_bytes(self._content)
                except OSError:  # a full disk keeps no part of it
                    path.unlink(missing_ok=True)
                    raise
                self._content = None
                self._own(path)
            return self._path

    def remove(self) -> None:
        """Remove the file, though there may be references: an error in a circle holds some."""
        with self._lock:
            if self._content is None:
                self._path.unlink(missing_ok=True)

    def _own(self, path: Path) -> None:
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True)

    def __getstate__(self) -> bytes:
        """Return the content, from which another process makes a file of its own."""
        with self._lock:
            return self._path.read_bytes() if self._content is None else self._content

    def __setstate__(self, content: bytes) -> None:
        self._content = content
        self._lock = threading.Lock()

    def __sizeof__(self) -> int:
        """Return the bytes in memory, which Dask counts."""
        return object.__sizeof__(self) + len(self._content or b"")


def new_name() -> str:
    """Return a file name that no other file of the node has."""
    return secrets.token_hex(12)
