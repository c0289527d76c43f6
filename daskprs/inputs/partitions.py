"""Partitions of an input, some of which are wanted: fixed pieces, whatever a mini-batch holds."""

from __future__ import annotations

from typing import NamedTuple

from daskprs.errors import InputError


class Partitions(NamedTuple):
    """The partitions of an input that are wanted, by their numbers from 0."""

    wanted: tuple[int, ...]
    size_bytes: int
    """Of each of text. Of Parquet a row group is one, and of a stream the whole file."""

    def check(self, count: int) -> None:
        """Refuse a number that there is not.

        Raises
        ------
        InputError
            With the numbers that there are.

        """
        beyond = [number for number in self.wanted if number >= count]
        if beyond:
            known = f"0 to {count - 1}" if count else "none"
            msg = f"select_partitions: there is no partition {beyond[0]}; there are {known}."
            raise InputError(msg)

    def ranges(self, size: int, first: int) -> list[tuple[int, int]]:
        """Return the wanted byte ranges of a file whose partitions are numbered from `first`."""
        inside = range(first, first + self.count(size))
        starts = [(number - first) * self.size_bytes for number in self.wanted if number in inside]
        return [(start, min(start + self.size_bytes, size)) for start in starts]

    def count(self, size: int | None) -> int:
        """Return how many partitions a file of text has; None is the size of a stream."""
        return 1 if size is None else -(-size // self.size_bytes)
