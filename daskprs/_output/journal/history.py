"""The content of a job's journals, read once: commits, their fate, and publications."""

from __future__ import annotations

import base64
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from daskprs._core.pieces import NAMED, FailedItems, Gap, gaps_of
from daskprs._folders.job_lock import begun_epochs
from daskprs._output.journal.commits import Commits, CommitTable, HeaderNumbers
from daskprs._output.journal.index_mapping import IndexMapping
from daskprs._output.journal.journal import BEGINNING, VERSION, BrokenLine, no_record, records
from daskprs._output.spool import Regions
from daskprs.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import Numbers


MANIFEST = "_manifest.json"
"""The name of the file that lists the files of a data set."""


class PublishedFile(NamedTuple):
    """A file of a data set."""

    name: str
    """Its path within the data set; empty where the data set is one file."""
    rows: int
    size: int
    checksum: int
    counts: Sequence[int]
    """The number of rows from each mini-batch of the part."""


class PublishedPart(NamedTuple):
    """The files of a data set with the rows of some consecutive mini-batches."""

    mini_batches: int
    """The number of mini-batches, …"""
    files: list[PublishedFile]
    """… all of which may have rows in each file."""


class Publication(NamedTuple):
    """An output that an epoch finished, even if the epoch died before it renamed the output."""

    epoch: int
    target: Path
    size: int
    checksum: int
    """The checksum of the file; for a folder, that of its manifest."""
    header_bytes: int
    parts: list[PublishedPart] | None = None
    """The parts of a data set, in input order."""
    schema: bytes = b""
    """The schema of a data set, as an Arrow message."""

    @property
    def identity(self) -> Path:
        """The file by which the output is recognized."""
        return self.target if self.parts is None or self.is_single_file else self.manifest

    @property
    def is_single_file(self) -> bool:
        """Whether a data set is one file."""
        return self.parts is not None and any(
            not one.name for part in self.parts for one in part.files
        )

    @property
    def has_rows(self) -> bool:
        """Whether a data set has rows, which have fixed its schema."""
        return any(one.rows for part in self.parts or () for one in part.files)

    @property
    def manifest(self) -> Path:
        """The manifest of a data set that is a folder."""
        return self.target / MANIFEST


class GivenUp(NamedTuple):
    """A mini-batch that was given up."""

    identity: str
    items: int
    borne: bool = False
    """Whether the plan completed nevertheless."""
    epoch: int = 0
    """The epoch that gave it up."""
    is_committed: bool = False
    """Whether it was not, but committed without items that failed in it, and runs again."""


class LeftOut(NamedTuple):
    """Failed items of a committed mini-batch, as a reader of its rows needs to know them."""

    start: int
    stop: int
    is_named: bool
    """Whether the script itself has left them out: they end no call of `run`."""
    has_rows: bool
    """Whether rows of nulls stand in their place."""


class FailedRowsOf(NamedTuple):
    """The failed items of one committed mini-batch, without their columns."""

    identity: str
    items: int
    made: tuple[int, int]
    """The epoch of the commit, and the number that the mini-batch had then."""
    places: array[int] = array("q")
    """The numbers of the gaps, one after the other: a job may have very many. Empty: unknown."""
    returned: int = 0
    """Number of the rows that `run` returned for all others."""
    numbers: array[int] = array("q")
    """What `left_out` yields, one number after the other."""

    @classmethod
    def of(
        cls, failed: list[FailedItems], identity: str, epoch: int, index: int, returned: int
    ) -> Self:
        """Return the failed items of a commit."""
        count = sum(one.stop - one.start for one in failed)
        places = array("q", (n for gap in gaps_of(failed) for n in (*gap[:2], *gap[2], *gap[3])))
        numbers = array("q", (n for one in failed for n in _left_out(one)))
        return cls(identity, count, (epoch, index), places, returned, numbers)

    @property
    def left_out(self) -> Iterator[LeftOut]:
        """The items, in order."""
        for at in range(0, len(self.numbers), 4):
            start, stop, is_named, has_rows = self.numbers[at : at + 4]
            yield LeftOut(start, stop, bool(is_named), bool(has_rows))

    @property
    def gaps(self) -> Iterator[Gap]:
        """The gaps that the items have left among the rows."""
        for at in range(0, len(self.places), 8):
            start, stop, a, b, c, d, e, f = self.places[at : at + 8]
            yield Gap(start, stop, (a, b, c), (d, e, f))


class History:
    """The records of all epochs, the oldest first, until now or until `read_on` was called last.

    With `broken`, a journal is read to its end: lines that are not whole, or hold none of our
    records, are reported to it. Header lines are not read then. Without it, a journal ends with the
    first line that is not whole.
    """

    def __init__(
        self, folder: JobFolder, broken: Callable[[Path, BrokenLine], None] | None = None
    ) -> None:
        self.epoch = 0
        """The last epoch with a journal; 0 without one."""
        self.commits = CommitTable()
        """Every commit in the journals, dropped ones too, with numbers of the current plan."""
        self.given_up: dict[int, GivenUp] = {}
        """Mini-batches, by number, that were given up and not committed since."""
        self.failed_rows: dict[int, FailedRowsOf] = {}
        """Mini-batches, by number, whose commits lack items that failed by themselves."""
        self._announced: dict[int, FailedRowsOf] = {}
        """The same of commits whose record follows."""
        self.run_again: set[int] = set()
        """Mini-batches, by number, whose failed items the last epoch runs, and has not yet run."""
        self.publications: list[Publication] = []
        self.published: set[int] = set()
        """Epochs that recorded that their output is in place."""
        self.settled: tuple[int, int] | None = None
        """How many mini-batches were committed and given up at the end of the last plan."""
        self.may_overwrite = False
        """Whether an epoch was allowed to replace the output file."""
        self.spent: dict[int, dict[str, float]] = {}
        """What each epoch has used by the script's own count."""
        self.columns: tuple[str, ...] | None = None
        """The columns of what `run` returns, where an epoch needed them for rows of nulls."""
        self.ended: dict[str, Any] | None = None
        """The result of the last epoch, if it lived to record one."""
        self.is_done = False
        """Whether the last epoch completed its plan and published its output."""
        self.labels: int | None = None
        """The epoch whose row labels hold for the current numbers; None without row labels."""
        self.unlabelled: int | None = None
        """`OutputSpec.unlabelled` of the last epoch."""
        self._fingerprints: dict[int, dict[str, Any]] = {}
        self._headers = HeaderNumbers()
        self._complete: set[int] = set()
        """Epochs that completed their plan."""
        self._dropped: list[tuple[int, int]] = []
        self._recorded = array("I")
        """The number that each commit had when it was made."""
        self._numbered: list[tuple[int, Numbers]] = []
        """Epochs that began with another plan, and the numbers of all commits before that."""
        self._folder = folder
        self._broken = broken
        self._mark = BEGINNING
        """The position up to which the journal of the last epoch has been read."""
        self.read_on()

    def read_on(self) -> None:
        """Read what was recorded since the last call."""
        for epoch in begun_epochs(self._folder):
            if epoch > self.epoch:
                self.epoch, self._mark = epoch, BEGINNING
                self.ended, self.is_done, self.settled = None, False, None
                self._headers = HeaderNumbers()
                # Of commits that were lost with their machine.
                self._announced, self.run_again = {}, set()
            if epoch == self.epoch:
                self._read(self._folder.journal(epoch))

    @property
    def forms(self) -> dict[str, bool]:
        """Whether the last epoch keeps its rows as ``text``, and whether ``typed``."""
        forms: dict[str, bool] = self._fingerprints.get(self.epoch, {}).get("output", {})
        return forms

    @property
    def schema(self) -> str | None:
        """The schema that the call of the last epoch gives, as text."""
        schema: str | None = self._options.get("schema")
        return schema

    @property
    def included(self) -> tuple[str, ...]:
        """The columns of the input that the call of the last epoch adds to the rows."""
        return tuple(self._options.get("include_columns") or ())

    @property
    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = self._fingerprints.get(self.epoch, {}).get("options", {})
        return options

    @property
    def plans(self) -> int:
        """The number of plans that have numbered the mini-batches."""
        return len(self._numbered) + 1

    def standing(self, at_the_end_of: int | None = None) -> Numbers:
        """Return the rows of the commits that count, one for each mini-batch, in input order.

        They are those that counted at the end of an epoch; None: now.
        """
        epochs, indexes = self.commits.column("epoch"), self._indexes(at_the_end_of)
        last = np.iinfo(epochs.dtype).max if at_the_end_of is None else at_the_end_of
        dropped = np.array([key for by, key in self._dropped if by <= last], dtype=np.uint64)
        there = (epochs <= last) & ~np.isin(_key(epochs, self.recorded()), dropped)
        rows = np.flatnonzero(there)
        # A mini-batch has a newer commit when its failed items have run again. And two drivers that
        # believed that a folder is theirs may each have committed it: the newer one alone
        # publishes, and its failed rows are those of its own commit.
        newest: Numbers = rows[::-1]
        _, places = np.unique(indexes[newest], return_index=True)
        chosen: Numbers = newest[places]
        return chosen

    def recorded(self) -> Numbers:
        """Return the numbers that commits had when they were made: their names in a journal."""
        return np.array(self._recorded)

    def fingerprint(self) -> dict[str, Any] | None:
        """Return the fingerprint of the last epoch that left a result.

        Earlier epochs had the same fingerprint, or the change was accepted.
        """
        made = {publication.epoch for publication in self.publications}
        made.update(np.unique(self.commits.column("epoch")).tolist())
        made.update(by for by, _ in self._numbered)
        if made:  # all that an extension has run may have failed
            made |= self._complete
        shown = made & self._fingerprints.keys()
        return self._fingerprints[max(shown)] if shown else None

    def fingerprint_of(self, epoch: int | None) -> dict[str, Any]:
        """Return the fingerprint with which an epoch began; None: the last epoch."""
        known = self._fingerprints
        return known.get(self.epoch if epoch is None else epoch, {})

    def _renumber(self, epoch: int, numbers: IndexMapping) -> None:
        """Renumber commits and failures to the plan that an epoch began with."""
        before, rows = self.commits.column("index"), self.standing(epoch)
        there, now = numbers.of(before[rows])
        after = before.copy()
        after[rows[there]] = now
        gone = np.ones(len(before), dtype=bool)
        gone[rows[there]] = False
        keys = _key(self.commits.column("epoch")[gone], self.recorded()[gone])
        self._dropped += [(epoch, key) for key in keys.tolist()]
        self._numbered.append((epoch, before))
        self.commits.set_column("index", after)
        self.given_up = numbers.moved(self.given_up)
        self.failed_rows = numbers.moved(self.failed_rows)

    def _indexes(self, at_the_end_of: int | None) -> Numbers:
        """Return the numbers of all commits in the plan of an epoch; later ones have none."""
        now = self.commits.column("index")
        for epoch, before in self._numbered if at_the_end_of is not None else ():
            if at_the_end_of is not None and epoch > at_the_end_of:
                now[: len(before)] = before
                return now
        return now

    def _read(self, journal: Path) -> None:
        is_broken = False
        for mark, record in records(journal, self._mark):
            if isinstance(record, BrokenLine):
                if self._broken is None:
                    return
                is_broken = True
                self._broken(journal, record)
                continue
            try:
                self._take(record, journal, self.epoch)
            except (TypeError, ValueError, LookupError, OverflowError, AttributeError) as error:
                if self._broken is None:
                    raise no_record(journal, mark.lines) from error
                if not is_broken:  # else it may be of no use without the broken one
                    is_broken = True
                    self._broken(journal, BrokenLine(mark.lines, self._mark.bytes, mark.bytes))
            self._mark = mark

    def _take(self, record: list[Any], journal: Path, epoch: int) -> None:
        match record:
            case ["commits", *columns]:
                commits = _commits(*columns)
                headers = None
                if self._broken is None:
                    headers = self._headers.headers(commits.header)
                self._commit(commits._replace(header=headers), epoch)
            case ["given up", str(identity), int(index), _, {"items": int(items)}]:
                self.given_up[index] = GivenUp(identity, items, epoch=epoch)
            case ["failed rows", str(identity), int(index), _, list(items), str(_), int(returned)]:
                failed = [FailedItems(*one) for one in items]
                self._announced[index] = FailedRowsOf.of(failed, identity, epoch, index, returned)
            case ["complete", int(committed), int(given_up)]:
                self._complete.add(epoch)
                self.settled = committed, given_up
                output = self._fingerprints[epoch].get("output", {})
                self.is_done = not output.get("text")
                self._bear(borne=True)
            case ["publishing", str(target), *numbers]:
                self.publications.append(Publication(epoch, Path(target), *numbers))
            case ["publishing parts", str(target), int(size), int(checksum), str(schema), parts]:
                made = [
                    PublishedPart(count, [PublishedFile(*file) for file in files])
                    for count, files in parts
                ]
                message = base64.b64decode(schema)
                self.publications.append(
                    Publication(epoch, Path(target), size, checksum, 0, made, message)
                )
            case ["published", _]:
                self.is_done = True
                self.published.add(epoch)
            case ["ended", dict(ended)]:
                self.ended = ended
                self._follow(str(ended.get("job_dir") or self._folder.path))
            case _:
                self._read_beginning(record, journal, epoch)

    def _follow(self, then: str) -> None:
        """Take an output in the job folder for moved with the folder, which was there then."""
        self.publications = [
            one._replace(target=Path(self._folder.moved(str(one.target), then)))
            for one in self.publications
        ]

    def _read_beginning(self, record: list[Any], journal: Path, epoch: int) -> None:
        """Read a record of an epoch as a whole, or of what becomes of earlier ones."""
        match record:
            case ["job", int(version), fingerprint, bool(overwrite)]:
                _check_version(version, journal)
                self._fingerprints[epoch] = fingerprint
                self.may_overwrite |= overwrite
                self.labels = self.unlabelled = None
            case ["dropped", int(of_epoch), int(index)]:
                self._dropped.append((epoch, _key(of_epoch, index)))
                self.failed_rows = {
                    number: one
                    for number, one in self.failed_rows.items()
                    if one.made != (of_epoch, index)
                }
            case ["renumbered", before, now]:
                old, new = (np.array(one, np.uint32) for one in (before, now))
                self._renumber(epoch, IndexMapping(old, new, 0))
            case ["replaces", int(), int(), int()]:
                pass  # the newer commit of a mini-batch stands in any case
            case ["failed rows again"]:
                self.run_again = {*self.failed_rows}
            case ["again"]:
                self._bear(borne=False)
            case _:
                self._read_finding(record, epoch)

    def _read_finding(self, record: list[Any], epoch: int) -> None:
        """Read a record of what an epoch has found out."""
        match record:
            case ["labels"]:
                self.labels = epoch
            case ["unlabelled", int(rows)]:
                self.unlabelled = rows
            case ["usage", dict(spent)]:
                self.spent[epoch] = {str(name): float(amount) for name, amount in spent.items()}
            case ["columns", list(names)]:
                self.columns = tuple(map(str, names))

    def _bear(self, *, borne: bool) -> None:
        for index, one in self.given_up.items():
            self.given_up[index] = one._replace(borne=borne)

    def _commit(self, commits: Commits, epoch: int) -> None:
        self.commits.add(commits, epoch)
        self._recorded.extend(commits.index)
        if self.given_up:
            for index in commits.index:
                self.given_up.pop(index, None)
        self.run_again.difference_update(commits.index)
        if self._announced or self.failed_rows:
            for index in commits.index:
                self.failed_rows.pop(index, None)
                if index in self._announced:
                    self.failed_rows[index] = self._announced.pop(index)


def _left_out(items: FailedItems) -> LeftOut:
    cut = items.cut
    has_rows = cut is not None and cut[0] != cut[1]
    return LeftOut(items.start, items.stop, items.status == NAMED, has_rows)


def _key(epoch: Any, index: Any) -> Any:
    """Return one number for a commit: an epoch commits a mini-batch at most once."""
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
