"""The proof of a job: every byte that its journals promise, compared where it lies.

Nothing is written, and nothing runs. Each record of a journal has a checksum, each mini-batch has
one for its rows, and each published file has one. So a byte that is another one now is found, and
with it the mini-batches whose rows it belongs to.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from daskprs._folders.job_lock import begun_epochs, epochs_of
from daskprs._output.journal.history import MANIFEST, History
from daskprs._output.journal.recovery import broken_in_spools, publication_in_place
from daskprs._output.publish.output_file import files_below
from daskprs._output.spool import COPY_BYTES, RegionCheck, checksum_of
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import Numbers
    from daskprs._output.journal.history import Publication, PublishedPart
    from daskprs._output.journal.journal import BrokenLine

OF_READERS = ("_", ".")
"""Beginnings of names that readers of data sets pass over."""
_WITHOUT = (
    "Without it, a resume runs again what its records committed, or refuses if the rows are "
    "published."
)
HEADER = -1
"""The number of the header, among those of mini-batches; it has no checksum of its own."""


class Finding(NamedTuple):
    """One thing that is not as the journals say."""

    where: str
    """The file, or its URL; the job folder where no single file is meant."""
    what: str
    """What is wrong with it: a clause without its subject."""
    next_step: str
    """A sentence."""
    byte_range: tuple[int, int] | None = None
    """The first byte and the end of what is not as it was."""
    mini_batches: Sequence[tuple[int, int]] = ()
    """First and last number of each run of mini-batches whose rows are concerned."""
    items: int = 0
    """The number of their items in the input."""


class OutputPlace(Protocol):
    """A published output, wherever it lies."""

    @property
    def name(self) -> str:
        """Its path or its URL."""
        ...

    @property
    def remedy(self) -> str:
        """What a resume of the job does for it, behind its removal, in words."""
        ...

    def opened(self, name: str) -> Any:
        """Return a file of a data set, open; an empty name means the output itself."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files of a data set."""
        ...


class LocalPlace:
    """An output on this machine."""

    remedy = "resume the job, which runs {mini_batches} again"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    def opened(self, name: str) -> Any:
        """Return a file of it, open."""
        return open_regular(self.path / name if name else self.path)

    def names(self) -> list[str]:
        """Return the names of all files below the folder."""
        return sorted(files_below(self.path))


class Proof:
    """Compares the files of a job with its journals; no driver may be at work in the folder.

    Raise `JournalError` when another version has written a journal.
    """

    def __init__(self, folder: JobFolder) -> None:
        self.findings: list[Finding] = []
        self.files = self.bytes = 0
        """How many files were read, and how many bytes of them."""
        self.torn_bytes = 0
        """Bytes at the ends of journals that were being written when a driver died."""
        self.no_journals: list[Path] = []
        """Journals that are not there, of runs that have left no rows either."""
        self.is_whole = True
        """Whether the journals have lost no record."""
        self._folder = folder
        lines: dict[Path, list[BrokenLine]] = {}
        self.history = History(folder, lambda path, line: lines.setdefault(path, []).append(line))
        self._standing = self.history.standing()
        self._read_journals(lines)
        self._miss_journals()
        self._check_counts()

    @cached_property
    def published(self) -> Publication | None:
        """The output that should be in place, if one should be."""
        history = self.history
        if not history.publications:
            return None
        last = history.publications[-1]
        if last.epoch in history.published:
            return last
        # A driver that died may have renamed the output, and not lived to say so.
        try:
            found = publication_in_place(history, last.target)
        except (OSError, JobFolderError):
            found = None
        said = [one for one in history.publications if one.epoch in history.published]
        return found or next((one for one in reversed(said) if one.target == last.target), None)

    def check_rows(self) -> None:
        """Compare the rows of all commits: those of the output, and those in the spools."""
        commits, standing, published = self.history.commits, self._standing, self.published
        in_spools = standing
        if published is not None:
            self.check_output(published, LocalPlace(published.target))
            in_spools = np.setdiff1d(standing, self.history.standing(published.epoch))
        for form, rows, spools in (
            ("text", in_spools, self._folder.spools),
            ("typed", standing, self._folder.typed_spools),
        ):
            self._count_spools(rows, form)
            broken = broken_in_spools(commits, rows, form, spools)
            self._tell_of_spools(np.sort(broken), form, spools)

    def check_output(self, published: Publication, place: OutputPlace) -> None:
        """Compare a published output with the commits that are in it."""
        rows = self.history.standing(published.epoch)
        rows = rows[self.history.commits.column("text_length")[rows] > 0]
        if published.parts is None:
            self._check_text(published, place, rows)
        else:
            self._check_parts(published, published.parts, place, rows)

    # ---- the journals ----

    def _read_journals(self, broken: dict[Path, list[BrokenLine]]) -> None:
        for epoch in begun_epochs(self._folder):
            journal = self._folder.journal(epoch)
            size = journal.stat().st_size
            self.files, self.bytes = self.files + 1, self.bytes + size
            is_over = epoch == self.history.epoch and self.history.ended is not None
            for lines in _adjacent(broken.get(journal, [])):
                start, end = lines[0].start, lines[-1].end
                if not is_over and end == size and all(line.is_torn for line in lines):
                    self.torn_bytes += end - start
                    continue
                self.is_whole = False
                self.findings.append(
                    Finding(
                        str(journal),
                        f"is not what was written: line {lines[0].number}",
                        f"Put the journal back from a copy. {_WITHOUT}",
                        (start, end),
                    )
                )

    def _miss_journals(self) -> None:
        """Look for runs without a journal: one that ended before it had begun has no rows."""
        folder = self._folder
        claimed = epochs_of(folder, folder.epoch, folder.spools, folder.typed_spools)
        for epoch in sorted({*claimed} - {*begun_epochs(folder)}):
            journal, spools = (
                folder.journal(epoch),
                (folder.spools(epoch), folder.typed_spools(epoch)),
            )
            if not any(one.stat().st_size for rows in spools for one in rows.glob("*")):
                self.no_journals.append(journal)
                continue
            self.is_whole = False
            what = "is missing, and its run has left rows: it was moved or removed"
            self.findings.append(
                Finding(str(journal), what, f"Put it back from a copy. {_WITHOUT}")
            )

    def _check_counts(self) -> None:
        """Compare the records of mini-batches with their number at the end of the plan."""
        history, standing = self.history, self._standing
        if history.settled is None:
            return
        committed, given_up = history.settled
        if (len(standing), len(history.given_up)) != (committed, given_up):
            known = np.zeros(max(committed + given_up, 1), dtype=bool)
            indexes = [*history.commits.column("index")[standing].tolist(), *history.given_up]
            known[[index for index in indexes if index < len(known)]] = True
            self.is_whole = False
            self.findings.append(
                Finding(
                    str(self._folder),
                    f"has journals that name {len(standing):,} committed and "
                    f"{len(history.given_up):,} failed mini-batches, of {committed:,} and "
                    f"{given_up:,}",
                    "Put the journals back from a copy.",
                    None,
                    ranges_of(np.flatnonzero(~known)),
                )
            )

    # ---- the output ----

    def _check_text(self, published: Publication, place: OutputPlace, rows: Numbers) -> None:
        commits = self.history.commits
        lengths = commits.column("text_length")[rows]
        checksums = commits.column("text_checksum")[rows]
        is_known = published.header_bytes + int(lengths.sum()) == published.size
        if not is_known:  # a record is lost: the places of the rows are unknown
            lengths = checksums = np.empty(0, np.int64)
            self._tell_lost(place)
        walk = self._opened(
            place, "", rows, lambda file: _walk(file, published, lengths, checksums)
        )
        if walk is None:
            return
        ends = published.header_bytes + np.cumsum(lengths)
        for first, last in ranges_of(np.array(walk.changed, np.int64)):
            some = slice(first, last + 1)
            region = int(ends[first] - lengths[first]), int(ends[last])
            self._tell(place, "", "is not what was committed", rows[some], region, of_all=rows)
        if walk.size > published.size:
            region = published.size, walk.size
            self._tell(place, "", "has bytes behind the last row", rows[:0], region, of_all=rows)
        elif (walk.size, walk.checksum) != (published.size, published.checksum) and (
            not walk.changed
        ):
            region = (0, published.header_bytes if is_known else published.size)
            what = f"is not what was published{', in its header' if is_known else ''}"
            self._tell(place, "", what, rows[:0], region, of_all=rows)

    def _check_parts(
        self, published: Publication, parts: list[PublishedPart], place: OutputPlace, rows: Numbers
    ) -> None:
        if sum(part.mini_batches for part in parts) != len(rows):
            self._tell_lost(place)
            rows = rows[:0]
        if not published.is_single_file:
            found = self._opened(place, MANIFEST, rows, checksum_of)
            if found is not None and found[1] != published.checksum:
                what = "is not what was published"
                self._tell(place, MANIFEST, what, rows[:0], (0, found[0]), of_all=rows)
        first = 0
        for part in parts:
            of_part = rows[first : first + part.mini_batches]
            first += part.mini_batches
            for file in part.files:
                in_file = of_part[np.array(file.counts[: len(of_part)], np.int64) > 0]
                found = self._opened(place, file.name, in_file, checksum_of, of_part)
                if found is None or found == (file.size, file.checksum):
                    continue
                what = "is not what was published"
                if found[0] != file.size:
                    what = f"has {found[0]:,} bytes, not {file.size:,}"
                self._tell(place, file.name, what, in_file, (0, found[0]), of_all=of_part)
        if not published.is_single_file:
            self._check_others(place, {file.name for part in parts for file in part.files})

    def _check_others(self, place: OutputPlace, known: set[str]) -> None:
        """Name files that a reader of the folder would take for a part of the data set."""
        try:
            names = place.names()
        except FileNotFoundError:
            return
        for name in names:
            hidden = any(part.startswith(OF_READERS) for part in name.split("/"))
            if name not in known and not hidden:
                what = "is none of the files of the data set, and readers of its folder may read it"
                self.findings.append(
                    Finding(_joined(place, name), what, "Move it elsewhere, or remove it.")
                )

    def _opened(
        self,
        place: OutputPlace,
        name: str,
        rows: Numbers,
        use: Callable[[Any], Any],
        of_all: Numbers | None = None,
    ) -> Any:
        """Return what is found in a file; None, and a finding, if it cannot be read."""
        try:
            with place.opened(name) as file:
                found = use(file)
        except FileNotFoundError:
            self._tell(place, name, "is missing: it was moved or removed", rows, None, of_all)
        except Exception as error:  # noqa: BLE001 - each store has errors of its own
            self._tell(place, name, f"cannot be read: {error}", rows, None, of_all)
        else:
            self.files, self.bytes = self.files + 1, self.bytes + found[0]
            return found
        return None

    def _tell(
        self,
        place: OutputPlace,
        name: str,
        what: str,
        rows: Numbers,
        byte_range: tuple[int, int] | None = None,
        of_all: Numbers | None = None,
    ) -> None:
        """Note what is wrong with a file of an output; `of_all` are the rows that it costs."""
        commits = self.history.commits
        count = len(rows if of_all is None else of_all)
        cost = f"{count:,} mini-batch{'' if count == 1 else 'es'}"
        removal = "" if byte_range is None else "remove it and "
        if name == MANIFEST:  # without it, nothing replaces the folder
            removal = f"remove the folder {place.name} and "
        self.findings.append(
            Finding(
                _joined(place, name),
                what,
                f"Put it back from a copy, or {removal}{place.remedy.format(mini_batches=cost)}.",
                byte_range,
                ranges_of(commits.column("index")[rows]),
                int(commits.column("total")[rows].sum()),
            )
        )

    def _tell_lost(self, place: OutputPlace) -> None:
        self.is_whole = False
        self.findings.append(
            Finding(
                place.name,
                "has rows whose records the journals lack, so its rows cannot be told apart",
                "Put the journals back from a copy.",
            )
        )

    # ---- the spools ----

    def _count_spools(self, rows: Numbers, form: str) -> None:
        lengths = self.history.commits.column(f"{form}_length")[rows]
        spools = self.history.commits.column("spool")[rows][lengths > 0]
        self.files += len(np.unique(spools))
        self.bytes += int(lengths.sum())

    def _tell_of_spools(self, broken: Numbers, form: str, path_of: Callable[[int], Path]) -> None:
        commits = self.history.commits
        numbers = commits.column("spool")[broken]
        for number in np.unique(numbers).tolist():
            rows = broken[numbers == number]
            spool = commits.spool(number, path_of)
            offsets = commits.column(f"{form}_offset")[rows]
            ends = offsets + commits.column(f"{form}_length")[rows]
            is_there = spool.exists()
            indexes = commits.column("index")[rows]
            self.findings.append(
                Finding(
                    str(spool),
                    "is not what was committed" if is_there else "is missing",
                    "Put it back from a copy, or resume the job, which runs these again.",
                    (int(offsets.min()), int(ends.max())) if is_there else None,
                    ranges_of(np.sort(indexes)),
                    int(commits.column("total")[rows].sum()),
                )
            )


class _Walk(NamedTuple):
    """What a file of text holds."""

    size: int
    checksum: int
    changed: list[int]
    """The places, among the rows of the file, of the mini-batches that are not as committed."""


def _walk(file: Any, published: Publication, lengths: Numbers, checksums: Numbers) -> _Walk:
    """Read a file of text once, and compare the rows of each mini-batch."""
    of_rows = zip(range(len(lengths)), lengths.tolist(), checksums.tolist(), strict=True)
    check = RegionCheck(chain([(HEADER, published.header_bytes, 0)], of_rows))
    buffer = memoryview(bytearray(COPY_BYTES))
    size = whole = 0
    changed: list[int] = []
    while count := file.readinto(buffer):
        view = buffer[:count]
        whole, size = zlib.crc32(view, whole), size + count
        changed += check.take(view)
    changed += check.rest()
    return _Walk(size, whole, [place for place in changed if place != HEADER])


def _adjacent(lines: list[BrokenLine]) -> Iterator[list[BrokenLine]]:
    """Yield the lines that follow each other without a gap, together."""
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(lines), 1) if a.end != b.start)]
    for start, stop in pairwise([*starts, len(lines)] if lines else []):
        yield lines[start:stop]


def ranges_of(numbers: Numbers) -> list[tuple[int, int]]:
    """Return the first and the last of each run of consecutive numbers, which are sorted."""
    ends = np.flatnonzero(np.diff(numbers.astype(np.int64), prepend=-2, append=-2) != 1)
    return [(int(numbers[first]), int(numbers[end - 1])) for first, end in pairwise(ends.tolist())]


def _joined(place: OutputPlace, name: str) -> str:
    return f"{place.name}/{name}" if name else place.name
