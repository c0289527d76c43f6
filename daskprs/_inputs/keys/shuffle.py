"""Rows of a table brought together by key, in files, with memory for a part of them only.

The table is dealt out piece by piece: each row goes to its part, by a hash of its keys. Then each
part is gathered, and the rows of each key are written side by side. Neither the pieces nor the
parts depend on the cluster, so the files are the same wherever they are made. The rows of one key
have to fit into memory, since `run` gets them at once.
"""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs._folders.row_labels import prepared_labels, reorder_labels
from daskprs._inputs.keys.dealing import deal, dealt_part
from daskprs._inputs.keys.gathering import Gathered, Group, gather
from daskprs._system.seal import new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.source import TableSource

# Parts of twice this size took half as much memory more, in the same time.
PART_BYTES = 16 << 20
MOST_PARTS = 1024
PIECE_BYTES = 32 << 20
LARGEST_PIECE_BYTES = 128 << 20
MANY_PIECES = 256
"""Larger tables have larger pieces, not more of them: a part is read from all pieces."""
UNKNOWN_BYTES = 16 << 20
"""The bytes that a mini-batch of unknown size counts for."""


class Cut(NamedTuple):
    """The size of a table, of its pieces, and the number of its parts."""

    size_bytes: int
    piece_bytes: int
    parts: int

    @classmethod
    def of(cls, source: TableSource) -> Cut:
        """Return how a prepared table is cut."""
        return cls.of_size(sum(one.size_bytes or 0 for one in source.mini_batches()))

    @classmethod
    def of_size(cls, size: int) -> Cut:
        """Return how a table of a size in bytes is cut."""
        piece_bytes = min(max(PIECE_BYTES, size // MANY_PIECES), LARGEST_PIECE_BYTES)
        return cls(size, piece_bytes, max(1, min(MOST_PARTS, -(-size // PART_BYTES))))

    def pieces(self, source: TableSource) -> Iterator[list[MiniBatch]]:
        """Yield the mini-batches of each piece."""
        some: list[MiniBatch] = []
        size = 0
        for mini_batch in source.mini_batches():
            some.append(mini_batch)
            size += mini_batch.size_bytes or UNKNOWN_BYTES
            if size >= self.piece_bytes:
                yield some
                some, size = [], 0
        if some:
            yield some


def shuffle(
    source: TableSource, keys: Sequence[str], files: Path, report: Callable[[str], None]
) -> list[Group]:
    """Bring the rows of each key of a prepared table together in `files`, numbered by part.

    Null is a key of its own, NaN equals NaN, and −0.0 equals 0.0. The progress is reported in a few
    words, and the groups are returned in order of first appearance.
    """
    scratch, cut, seal_key = files.parent, Cut.of(source), new_key()
    dealt: list[str] = []
    rows = 0
    # A pickle has an object once that it finds twice. Workers get a pickled reader: with another
    # one here, the same rows would have another checksum.
    with closing(pickle.loads(pickle.dumps(source.reader()))) as reader:
        for number, piece in enumerate(cut.pieces(source)):
            path = scratch / f"dealt.{number}"
            rows += deal(reader, piece, keys, cut.parts, path, seal_key)
            dealt.append(str(path))
            report(f"{rows:,} rows are dealt out by key")
    found: list[Gathered] = []
    for part in range(cut.parts):
        places = [dealt_part(path, part) for path in dealt]
        found.append(gather(keys, part, places, file_of(files, part), seal_key))
        report(f"rows of each key are put together, {part + 1} of {cut.parts} parts")
    for number in range(len(dealt)):
        (scratch / f"dealt.{number}").unlink()
    return in_order(found, scratch)


def file_of(files: Path, part: int) -> Path:
    """Return the file that holds the rows of a part, by key."""
    return files.with_name(f"{files.name}.{part}")


def labelled(scratch: Path) -> bool:
    """Return whether the source has prepared row labels."""
    return prepared_labels(scratch).exists()


def in_order(parts: Sequence[Gathered], scratch: Path) -> list[Group]:
    """Return the groups of all parts in order of first appearance; reorder the labels alike."""
    groups = sorted(group for part in parts for group in part.groups)
    if labelled(scratch):
        rows = (
            parts[group.part].numbers[group.place : group.place + group.rows] for group in groups
        )
        counts = np.array([0, *(group.rows for group in groups)], np.int64)
        reorder_labels(scratch, rows, np.cumsum(counts))
    return groups
