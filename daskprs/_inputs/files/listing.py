"""The progress of the listing of an input, for the messages to the caller."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

T = TypeVar("T")


class Listing:
    """Counts what has been listed and read of an input; another thread reads `how_far`."""

    def __init__(self) -> None:
        self._doing = self._of = ""
        self._count = 0
        self.listed = 0
        """Number of files that all names together stand for, so far."""

    @property
    def how_far(self) -> str:
        """Return the present work with a count, in a few words; empty before any work."""
        if not self._doing:
            return ""
        return f"{self._doing}: {self._count:,} {self._of}" if self._count else self._doing

    def begin(self, place: str) -> None:
        """Begin to list a path, a folder, a glob or a URL."""
        self._doing, self._of, self._count = f"listing {place}", "so far", 0

    def count(self, entries: Iterable[T]) -> Iterator[T]:
        """Yield entries of the place, and count them."""
        for entry in entries:
            self._count += 1
            yield entry

    def end(self, files: int) -> None:
        """Note the files of the place."""
        self._doing = ""
        self.listed += files

    def reading(self, what: str, files: Sequence[T]) -> Iterator[T]:
        """Yield files, and count them while something of each is read."""
        self._doing, self._of, self._count = f"reading {what}", f"of {len(files):,}", 0
        yield from self.count(files)
        self._doing = ""


_current: ContextVar[Listing | None] = ContextVar("listing", default=None)


def current_listing() -> Listing:
    """Return the listing that this thread's caller watches, or one that no one does."""
    return _current.get() or Listing()


@contextmanager
def watched_listing() -> Iterator[Listing]:
    """Yield the listing of what is listed within the block."""
    token = _current.set(Listing())
    try:
        yield current_listing()
    finally:
        _current.reset(token)


_counting = threading.Lock()
"""Held while a file system counts its entries."""


@contextmanager
def counted_pages(filesystem: Any, listing: Listing) -> Iterator[None]:
    """Count the entries that a store sends within the block, before it has sent them all.

    The methods of fsspec return the whole listing. That of S3 passes each entry through a method
    of its own on the way; of other stores there is no count.
    """
    entries = getattr(type(filesystem), "_iterdir", None)
    if entries is None or not _counting.acquire(blocking=False):
        yield  # fsspec shares a file system among threads: one of them counts at a time
        return

    async def counted(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async for entry in entries(filesystem, *args, **options):
            for one in listing.count([entry]):
                yield one

    filesystem._iterdir = counted  # noqa: SLF001
    try:
        yield
    finally:
        del filesystem._iterdir  # noqa: SLF001 - the method of its class is there again
        _counting.release()
