"""What is committed, in flat arrays: a million mini-batches take some 60 MB."""

from __future__ import annotations

import hashlib
from array import array
from typing import NamedTuple

import numpy as np


class Region(NamedTuple):
    """Bytes in the spool of an epoch."""

    epoch: int
    offset: int
    length: int
    checksum: int


NO_REGION = Region(0, 0, 0, 0)


class Commit(NamedTuple):
    """What the one attempt that counts made of a mini-batch."""

    index: int  # type: ignore[assignment] # hides tuple.index
    total: int
    succeeded: int
    empty: bool
    text: Region = NO_REGION
    typed: Region = NO_REGION
    header: str | None = None


class CommitTable:
    """All commits of a job."""

    def __init__(self) -> None:
        self._numbers = {name: array("q") for name in _COLUMNS}
        self._headers: list[str | None] = [None]
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers["index"])

    def add(self, commit: Commit, identity: str) -> None:
        """Add a commit of the mini-batch that `identity` names."""
        if commit.header not in self._headers:
            self._headers.append(commit.header)
        values = (
            _digest(identity),
            commit.index,
            commit.total,
            commit.succeeded,
            commit.empty,
            *commit.text,
            *commit.typed,
            self._headers.index(commit.header),
        )
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(value)

    def find(self, identity: str) -> Commit | None:
        """Return the first commit of a mini-batch, of those that were there at the first call.

        What is committed later is not asked for: a ledger settles each mini-batch once.
        """
        if self._sorted is None:
            digests = np.array(self._numbers["identity"])
            order = np.argsort(digests, kind="stable")
            self._sorted = digests[order], order
        digests, order = self._sorted
        digest = _digest(identity)
        place = int(np.searchsorted(digests, digest))
        if place == len(digests) or digests[place] != digest:
            return None
        return self._row(int(order[place]))

    def column(self, name: str) -> np.ndarray:
        """Return a column as an array that must not be kept while commits are added."""
        return np.array(self._numbers[name])

    def header(self, number: int) -> str | None:
        """Return a header by its number in the column ``header``."""
        return self._headers[number]

    def _row(self, place: int) -> Commit:
        row = {name: column[place] for name, column in self._numbers.items()}
        return Commit(
            row["index"],
            row["total"],
            row["succeeded"],
            bool(row["empty"]),
            Region(*(row[f"text_{part}"] for part in Region._fields)),
            Region(*(row[f"typed_{part}"] for part in Region._fields)),
            self._headers[row["header"]],
        )


_COLUMNS = (
    "identity",
    "index",
    "total",
    "succeeded",
    "empty",
    *(f"text_{part}" for part in Region._fields),
    *(f"typed_{part}" for part in Region._fields),
    "header",
)


def _digest(identity: str) -> int:
    """Return 63 bits of a hash: of a million mini-batches two share one in 1 of 18 million jobs."""
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
