"""One file of an input, on a disk or wherever fsspec reaches."""

from __future__ import annotations

from pathlib import Path
from typing import IO, NamedTuple, cast


class InputFile(NamedTuple):
    """A file as it was found."""

    path: str
    """Absolute, or an fsspec URL."""
    size_bytes: int
    version: str
    """Its time of modification in nanoseconds, or what the store calls a version of it."""
    relative: str
    """Its path below the folder that was given; the file's name where a file was given."""

    @property
    def identity(self) -> str:
        """What it is by content, as far as one can know without reading it."""
        return f"{self.path}|{self.size_bytes}|{self.version}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def is_url(path: str) -> bool:
    """Say whether a path goes through fsspec."""
    return "://" in path


def open_binary(path: str) -> IO[bytes]:
    """Open a file for reading, wherever it is."""
    if not is_url(path):
        return Path(path).open("rb")
    import fsspec

    return cast("IO[bytes]", fsspec.open(path, "rb").open())
