"""The parts of the published data set, from which a next publication takes what is unchanged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from daskprs._output.dataset.part_file import RowsFile
from daskprs._output.rows.part_formats import RowsInOrder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._output.journal.commits import CommitTable, Numbers
    from daskprs._output.journal.history import Publication, PublishedPart


class EarlierParts:
    """Finds the rows of commits in a published data set."""

    def __init__(self, published: Publication, commits: CommitTable) -> None:
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(published.schema))
        """The schema of its rows."""
        self.has_rows = published.has_rows
        """Whether it has rows, which have fixed the schema."""
        self._target = published.target
        self._parts = published.parts or []
        self._table = commits
        self._ends: dict[int, list[Numbers]] = {}
        """By part: where the rows of each mini-batch end in each file."""

    @property
    def names(self) -> set[str]:
        """The names of its files."""
        return {file.name for part in self._parts for file in part.files}

    def places(self, row: int) -> Iterator[tuple[RowsFile, int, int]]:
        """Yield the files with rows of a commit, and which rows; one at least, if with none."""
        value = self._table.values(row)
        number, place = value["part"] - 1, value["text_offset"]
        files = self._parts[number].files
        if number not in self._ends:
            self._ends[number] = [np.cumsum(file.counts) for file in files]
        found = False
        for file, ends in zip(files, self._ends[number], strict=True):
            count = file.counts[place]
            if count:
                found = True
                source = RowsFile(str(self._target / file.name), file.name.rpartition("/")[0])
                yield source, int(ends[place]) - count, count
        if not found:
            yield RowsFile(str(self._target), ""), 0, 0

    def tables(self, row: int, format_: str) -> Iterator[pa.Table]:
        """Yield the rows of a commit, with the types of the data set."""
        for file, first, count in self.places(row):
            yield from RowsInOrder(format_, Path(file.path)).tables(first, count, self.schema)

    def unchanged(
        self, rows: Numbers, lengths: list[int], place: int, least_bytes: int
    ) -> PublishedPart | None:
        """Return the full part that commits, from a place on, make up; None without one."""
        value = self._table.values(int(rows[place]))
        if not value["in_file"] or value["text_offset"]:
            return None
        part = self._parts[value["part"] - 1]
        of_part = [self._table.values(int(row)) for row in rows[place : place + part.mini_batches]]
        found = [(one["in_file"], one["part"], one["text_offset"]) for one in of_part]
        is_whole = found == [(1, value["part"], offset) for offset in range(part.mini_batches)]
        is_full = sum(lengths[place : place + part.mini_batches]) >= least_bytes
        return part if is_whole and is_full else None

    def adopted(self, part: PublishedPart, new: Path, name: str) -> PublishedPart:
        """Give the files of a part another name, in a new data set."""
        adopted = []
        for file in part.files:
            folder = file.name.rpartition("/")[0]
            path = new / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _link(self._target / file.name, path)
            adopted.append(file._replace(name=f"{folder}/{name}".lstrip("/")))
        return part._replace(files=adopted)


def _link(old: Path, new: Path) -> None:
    """Give a file one more name, or copy it where the file system has no links."""
    try:
        # A link, so that a resume takes neither time nor disk space for parts that are unchanged.
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)
        with new.open("rb") as file:
            os.fsync(file.fileno())
