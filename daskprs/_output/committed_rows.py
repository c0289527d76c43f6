"""The committed rows of a job, read in input order while the job goes on.

Journals say what is committed, and every byte is compared with its checksum, so that any process
that sees the job folder can read.
"""

from __future__ import annotations

import zlib
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np

from daskprs._output.journal.history import History
from daskprs._output.read_rows import frame_of_each, pieces_of_each
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError, JournalError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import Numbers
    from daskprs._output.journal.history import Publication
    from daskprs._output.spool import Region


class CommittedRows:
    """Reads the rows of a job, a mini-batch after the other, each once.

    The epoch `after` is the last one before that of the job: what it has left counts as soon as the
    job has looked at it.
    """

    def __init__(self, folder: JobFolder, after: int = 0) -> None:
        self._folder = folder
        self._after = after
        self._history = History(folder)
        self._plans = 0
        self._next = 0
        """Number of the first mini-batch whose rows have not been given out."""
        self._places: dict[int, dict[int, int]] = {}
        """By epoch: the offset of each commit in the file that the epoch published."""

    def new(self, *, is_complete: bool) -> Iterator[pd.DataFrame | str]:
        """Return the rows of the next mini-batches: frames if the job keeps types, else text.

        A mini-batch without rows gives nothing. Unless the job is Completed, the rows behind a
        mini-batch that may still have some have to wait. Raise `OptionError` when the job keeps no
        rows, `JobFolderError` when a later run has given other numbers to the mini-batches, and
        `JournalError` when rows are not those that were committed.
        """
        history = self._history
        history.read_on()
        # A journal is there a moment before its first record, which says what the job keeps.
        if history.epoch <= self._after or not history.forms:
            return iter(())
        if self._next and history.plans != self._plans:
            msg = (
                f"iter_batches: the job in {self._folder} goes on with another input, which "
                "numbers the mini-batches anew. Begin a new iteration."
            )
            raise JobFolderError(msg)
        self._plans = history.plans
        rows = history.standing()
        numbers = history.commits.column("index")[rows]
        count = len(numbers) if is_complete else self._without_a_gap(numbers)
        first = int(np.searchsorted(numbers, self._next))
        rows = rows[first:count]
        if count > first:
            self._next = int(numbers[count - 1]) + 1
        if history.forms.get("typed"):
            return frame_of_each(pieces_of_each(self._folder, history.commits, rows))
        if history.forms.get("format"):
            msg = (
                "iter_batches: the rows of this job are a data set, whose files are there when the "
                f"job is Completed. Keep the rows with their types too, by "
                f"{Option('keep_rows', value=True)}, or read the files."
            )
            raise OptionError(msg)
        if history.forms.get("text"):
            return starmap(self._text, history.commits.regions(rows, "text"))
        msg = (
            "iter_batches: this job keeps no rows. Call it without "
            f"{Option('output_action', 'summary_only')}."
        )
        raise OptionError(msg)

    def _without_a_gap(self, numbers: Numbers) -> int:
        """Return how many commits have no mini-batch before them that may still get rows."""
        history = self._history
        failed = [i for i, one in history.given_up.items() if one.epoch == history.epoch]
        settled = np.union1d(numbers, np.array(failed, dtype=numbers.dtype))
        settled = np.setdiff1d(settled, [*history.run_again])
        whole = int(np.argmin(np.append(settled == np.arange(len(settled)), False)))
        return int(np.searchsorted(numbers, whole))

    def _text(self, row: int, index: int, spool: int, region: Region) -> str:
        """Return the rows of a mini-batch from the spool, or from the file that was made of it."""
        kept = self._history.commits.spool(spool, self._folder.spools), region.offset
        for path, offset in [kept, *self._published(row)]:
            try:
                with open_regular(path) as file:
                    file.seek(offset)
                    found = file.read(region.length)
            except FileNotFoundError:
                continue
            if len(found) == region.length and zlib.crc32(found) == region.checksum:
                return found.decode("utf-8", "surrogateescape")
        msg = (
            f"iter_batches: the rows of mini-batch {index} are damaged, or their file was moved or "
            f"changed. Run the job again with {Option('resume', value=True)}: what is damaged is "
            "done again."
        )
        raise JournalError(msg)

    def _published(self, row: int) -> Iterator[tuple[Path, int]]:
        """Yield each published file, and the offset in it, that may have the rows of a commit."""
        history = self._history
        history.read_on()  # a file that was published since has no spool any more
        for published in reversed(history.publications):
            offset = self._offsets(published).get(row)
            if offset is not None:
                yield published.target, offset

    def _offsets(self, published: Publication) -> dict[int, int]:
        """Return the place of each commit in a published file, which never changes."""
        epoch = published.epoch
        if epoch not in self._places:
            rows = self._history.standing(epoch)
            lengths = self._history.commits.column("text_length")[rows]
            offsets = published.header_bytes + np.cumsum(lengths) - lengths
            self._places[epoch] = dict(zip(rows.tolist(), offsets.tolist(), strict=True))
        return self._places[epoch]
