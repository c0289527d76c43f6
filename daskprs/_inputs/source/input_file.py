"""One file of an input, on a disk or wherever fsspec reaches."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar, cast

from daskprs._system.store_calls import each_in_order, takes_several
from daskprs._system.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

T = TypeVar("T")

MOST_LISTED = 10_000
"""Most files whose names a fingerprint holds."""


READ_AHEAD_BYTES = 5 << 20
"""Bytes of a file in a store that are read beyond those wanted, for the mini-batches that follow.
With the 50 MB of the client of S3, agents that share a file would each read most of it."""


class InputFile(NamedTuple):
    """A file of the plan, as it was found."""

    path: str
    """Absolute, or an fsspec URL."""
    size_bytes: int | None
    """Size in bytes; None if its store does not report it."""
    version: str
    """Its time of modification in nanoseconds, or the version that its store reports."""
    relative: str
    """Its path below the folder or glob that was given; empty where the file itself was given."""

    @property
    def identity(self) -> str:
        """Identity of the content, as far as it is known without reading the file."""
        return f"{self.path}|{self.size_bytes}|{self.version}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return name_of(self.path)


def name_of(path: str) -> str:
    """Return the last part of a path; in ``zip://a/b.csv::s3://c.zip`` that is ``b.csv``."""
    if "::" in path and is_url(path):
        path = next(link for link in path.split("::") if is_url(link))
    return path.rpartition("/")[2]


def files_fingerprint(files: Iterable[InputFile]) -> dict[str, str] | str:
    """Return a fingerprint of files: one entry per path, or one digest of very many files."""
    listed: dict[str, str] = {}
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.identity.encode("utf-8", "surrogateescape") + b"\n")
        if len(listed) <= MOST_LISTED:
            listed[file.path] = f"{file.size_bytes}|{file.version}"
    return listed if len(listed) <= MOST_LISTED else digest.hexdigest()


def is_url(path: str) -> bool:
    """Say whether a path goes through fsspec."""
    return "://" in path


def open_binary(path: str, read_ahead_bytes: int | None = READ_AHEAD_BYTES) -> IO[bytes]:
    """Open a file for reading, wherever it is; None reads ahead as much as its store likes."""
    if not is_url(path):
        return Path(path).open("rb")
    filesystem, place = open_store(path)
    return cast("IO[bytes]", filesystem.open(place, "rb", block_size=read_ahead_bytes))


def of_each_file(
    work: Callable[[InputFile], T], files: Sequence[InputFile], requests: int
) -> Generator[T]:
    """Yield what work gives of each file, in order; many are read at once where a store allows it.

    Files of several stores are read one by one.
    """
    stores = {file.path.partition("://")[0] for file in files}
    if requests > 1 and len(files) > 1 and len(stores) == 1 and is_url(files[0].path):
        filesystem, _ = open_store(files[0].path)
        if takes_several(filesystem, "cat_file"):
            yield from each_in_order(work, files, requests)
            return
    yield from map(work, files)
