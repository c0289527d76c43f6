"""What the journals of a job tell, read once: commits, what became of them, what was published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs.errors import JournalError
from daskprs.job_lock import latest_epoch
from daskprs.output.commits import Commits, CommitTable, Regions
from daskprs.output.journal import VERSION, records

if TYPE_CHECKING:
    from daskprs.job_folder import JobFolder
    from daskprs.output.commits import Numbers


class Publication(NamedTuple):
    """An output file that an epoch had finished, whether or not it lived to put it in place."""

    epoch: int
    target: Path
    size: int
    checksum: int
    header_bytes: int


class History:
    """The records of all epochs, the oldest first."""

    def __init__(self, folder: JobFolder) -> None:
        self.commits = CommitTable()
        """Every commit that a journal tells of, dropped ones too."""
        self._fingerprints: dict[int, dict[str, Any]] = {}
        self.publications: list[Publication] = []
        self.may_overwrite = False
        """An epoch was told that it may replace the output file."""
        self._dropped: list[tuple[int, int]] = []
        for epoch in range(1, latest_epoch(folder) + 1):
            journal = folder.journal(epoch)
            if journal.exists():
                self._read(journal, epoch)

    def standing(self, at_the_end_of: int | None = None) -> Numbers:
        """Return the rows of the commits that count: one for each mini-batch, in no order.

        Parameters
        ----------
        at_the_end_of
            As things stood at the end of this epoch; None: now.

        """
        epochs, indexes = self.commits.column("epoch"), self.commits.column("index")
        last = np.iinfo(epochs.dtype).max if at_the_end_of is None else at_the_end_of
        dropped = np.array([key for by, key in self._dropped if by <= last], dtype=np.uint64)
        there = (epochs <= last) & ~np.isin(_key(epochs, indexes), dropped)
        rows = np.flatnonzero(there)
        _, first = np.unique(indexes[rows], return_index=True)
        chosen: Numbers = rows[first]
        return chosen

    def fingerprints(self) -> list[dict[str, Any]]:
        """Return what the epochs that have something to show for it were begun with."""
        made = {publication.epoch for publication in self.publications}
        made.update(np.unique(self.commits.column("epoch")).tolist())
        return [fingerprint for epoch, fingerprint in self._fingerprints.items() if epoch in made]

    def _read(self, journal: Path, epoch: int) -> None:
        for record in records(journal):
            match record:
                case ["job", int(version), fingerprint, bool(overwrite)]:
                    _check_version(version, journal)
                    self._fingerprints[epoch] = fingerprint
                    self.may_overwrite |= overwrite
                case ["commits", *columns]:
                    self.commits.add(_commits(*columns), epoch)
                case ["dropped", int(of_epoch), int(index)]:
                    self._dropped.append((epoch, _key(of_epoch, index)))
                case ["publishing", str(target), *numbers]:
                    self.publications.append(Publication(epoch, Path(target), *numbers))


def _key(epoch: Any, index: Any) -> Any:
    """Return one number for a commit: in an epoch there is at most one of a mini-batch."""
    if isinstance(epoch, int):
        return epoch << 32 | index
    return epoch.astype(np.uint64) << np.uint64(32) | index.astype(np.uint64)


def _check_version(version: int, journal: Path) -> None:
    if version != VERSION:
        msg = (
            f"{journal} was written by another version of daskprs (its form is {version}, this one "
            f"reads {VERSION}). Resume the job with that version, or use another job_dir."
        )
        raise JournalError(msg)


def _commits(*columns: Any) -> Commits:
    commits = Commits(*columns)
    text, typed = (None if region is None else Regions(*region) for region in columns[6:8])
    return commits._replace(text=text, typed=typed)
