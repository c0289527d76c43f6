"""The resume of a job: read its journals, check its bytes, compare its plan."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from daskprs._output.journal.changes import check_unchanged
from daskprs._output.journal.commits import digest_of, each
from daskprs._output.journal.history import GivenUp, History
from daskprs._output.journal.index_mapping import index_mapping
from daskprs._output.spool import Region, checksum_of, holds
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError, JournalError, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import CommitTable, Numbers
    from daskprs._output.journal.history import FailedRowsOf, Publication, PublishedFile
    from daskprs._output.journal.index_mapping import IndexMapping
    from daskprs._output.spec import OutputSpec

Runs = Literal["all that is left", "what is new", "what failed"]

RUNS: dict[bool | str, Runs] = {
    True: "all that is left",
    "extend": "what is new",
    "failed": "what failed",
}
"""Values of the option `resume`."""


class Resumption(NamedTuple):
    """The conditions of a resume."""

    plan: Callable[[], Iterator[MiniBatch]]
    """Makes the current plan, from the start."""
    runs: Runs = "all that is left"
    accepted: Collection[str] = ()
    """Parts of the fingerprint that may have changed."""
    is_input: Callable[[str], bool] = lambda _: False
    """Whether a file in the script's folder is now input, and not one of the script's."""
    known_before: Mapping[str, Any] = {}
    """The facts about the input that the earlier run learnt after it wrote its fingerprint."""
    failed_before: Callable[[MiniBatch], bool] = lambda _: False
    """Whether a mini-batch is part of what failed, though it was not known as a mini-batch then."""
    isolates: bool = False
    """Whether items run without others of their mini-batch."""
    comparable: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda options: options
    """Returns recorded options without the values of what is secret now."""

    @property
    def extends(self) -> bool:
        """Whether the input may have grown."""
        return self.runs == "what is new"

    @property
    def accepts(self) -> set[str]:
        """Parts that may have changed: a mended script may run the failed mini-batches."""
        return {*self.accepted, *(["script"] if self.runs == "what failed" else [])}

    def renumber(self, folder: JobFolder, history: History) -> IndexMapping | None:
        """Renumber settled mini-batches to the current plan, and drop those no longer in it.

        This is always done. A check whether the plan has changed would have to trust the record of
        the last plan: if a driver died while it wrote that record, rows would be doubled.

        Return None if no number has changed. Raise `JobFolderError` when only failed mini-batches
        are to run, and others are left.
        """
        commits, given_up = history.commits, history.given_up
        if not commits and not given_up and self.runs != "what failed":
            return None  # a new job
        numbers = self._numbers(commits, given_up)
        if self.runs == "what failed":
            left = numbers.left - sum(map(self.failed_before, self.plan()))
            if left:
                raise JobFolderError(_unfinished(folder, numbers.of_plan, left))
        if not numbers.changes(len(commits) + len(given_up)):
            return None
        there, now = numbers.of(commits.column("index"))
        commits.keep(there)
        commits.set_column("index", now)
        history.given_up = numbers.moved(given_up)
        history.failed_rows = numbers.moved(history.failed_rows)
        return numbers

    def _numbers(self, commits: CommitTable, given_up: dict[int, GivenUp]) -> IndexMapping:
        indexes = np.array([*given_up], np.uint32)
        digests = np.array([digest_of(one.identity) for one in given_up.values()], np.uint64)
        return index_mapping(
            np.concatenate([commits.column("index"), indexes]),
            np.concatenate([commits.column("identity"), digests]),
            self.plan(),
        )


class Found(NamedTuple):
    """The recovered state: what the journals record and the disk still holds."""

    commits: CommitTable
    published: Publication | None
    """The output file, if it was published and is unchanged."""
    may_overwrite: bool
    """Whether an existing output file may be replaced."""
    given_up: dict[int, GivenUp]
    """Mini-batches that were given up, by number."""
    failed_rows: dict[int, FailedRowsOf]
    """Mini-batches, by number, whose commits lack items that failed by themselves."""
    is_new: bool
    """Whether the output file would differ from the published one."""
    runs_items: bool
    """Whether of those whose commits lack items just these are run again."""
    spent: Mapping[str, float]
    """What earlier runs have used by the script's own count."""
    columns: tuple[str, ...] | None
    """The columns of what `run` returns, where rows of nulls need them."""
    whole_again: str
    """A sentence on mini-batches that run again as a whole, though few items failed in them."""
    records: list[tuple[Any, ...]]
    """The journal records of this recovery."""


def recover(
    folder: JobFolder,
    spec: OutputSpec,
    fingerprint: dict[str, Any],
    target: Path | None,
    resumption: Resumption,
) -> Found:
    """Read the journals of all epochs, and check every byte that they promise.

    A commit whose bytes are missing or changed is dropped: its mini-batch runs again. Once the
    output is published, its rows are in the published file, which is recognized by its checksum,
    not by its existence.

    Raise `JobChanged` when a journal was written for other inputs, another script or other options,
    `JournalError` when it was written by another version, and `JobFolderError` when only what
    failed is to be run, and more than that is left.
    """
    history = History(folder)
    then = history.fingerprint()
    if then is not None and resumption.known_before:
        then = {**then, "input": {**then["input"], **resumption.known_before}}
    if then is not None and "options" in then:
        then = {**then, "options": resumption.comparable(then["options"])}
    check_unchanged(
        then,
        fingerprint,
        resumption.accepts,
        extend=resumption.extends,
        is_input=resumption.is_input,
    )
    commits, standing = history.commits, history.standing()
    published = publication_in_place(history, target)
    if published is not None:
        _place_in_file(history, published)
    whole = _are_whole(folder, spec, commits, standing, published)
    told = ""
    runs_items = resumption.runs == "what failed"
    if runs_items:
        why = _obstacle(spec, resumption, published)
        indexes = [i for i, one in history.failed_rows.items() if why or not one.places]
        whole &= ~np.isin(commits.column("index")[standing], indexes)
        _fail_again(history, indexes)
        told = _whole_again(len(indexes), why)
    is_new = published is None or not np.array_equal(
        standing[whole], history.standing(published.epoch)
    )
    # Of two drivers that believed that the folder is theirs, the older one may have committed what
    # is lost, too. That commit would stand at the next resume, without its failed rows.
    numbered = commits.column("index")
    lost = np.flatnonzero(np.isin(numbered, numbered[standing[~whole]]))
    dropped = list(each(commits.column("epoch")[lost], history.recorded()[lost]))
    if dropped and history.failed_rows:  # their mini-batches run again as a whole
        gone = {*dropped}
        history.failed_rows = {
            index: one for index, one in history.failed_rows.items() if one.made not in gone
        }
    kept = np.zeros(len(commits), dtype=bool)
    kept[standing[whole]] = True
    commits.keep(kept)
    known = any(publication.target == target for publication in history.publications)
    records: list[tuple[Any, ...]] = [("dropped", *one) for one in dropped]
    numbers = resumption.renumber(folder, history)
    if numbers is not None:
        records.append(("renumbered", numbers.before.tolist(), numbers.now.tolist()))
    if history.given_up and resumption.runs == "all that is left":
        records.append(("again",))
    if runs_items and history.failed_rows:
        records.append(("failed rows again",))
    return Found(
        commits,
        published,
        history.may_overwrite or known,
        history.given_up,
        history.failed_rows,
        is_new or numbers is not None,
        runs_items,
        sum(map(Counter, history.spent.values()), Counter()),
        history.columns,
        told,
        records,
    )


def _are_whole(
    folder: JobFolder,
    spec: OutputSpec,
    commits: CommitTable,
    rows: Numbers,
    published: Publication | None,
) -> Numbers:
    """Say of each of these commits whether its bytes are there as they were written."""
    broken = [np.empty(0, np.int64)]
    if spec.text:
        in_spool = rows[commits.column("in_file")[rows] == 0]
        broken.append(broken_in_spools(commits, in_spool, "text", folder.spools))
        if published is not None:
            broken.append(_broken_in_parts(commits, rows, published))
    if spec.typed:
        broken.append(broken_in_spools(commits, rows, "typed", folder.typed_spools))
    return ~np.isin(rows, np.concatenate(broken))


def _fail_again(history: History, indexes: Iterable[int]) -> None:
    """Let mini-batches with failed items count as failed."""
    for index in indexes:
        one = history.failed_rows.pop(index)
        history.given_up[index] = GivenUp(
            one.identity, one.items, epoch=one.made[0], is_committed=True
        )


def _obstacle(spec: OutputSpec, resumption: Resumption, published: Publication | None) -> str:
    """Return why no items can run without the others of their mini-batch; empty if they can."""
    if not resumption.isolates:
        return f"rows run alone only with {Option('on_error', 'isolate')} or 'null'"
    if published is None or not spec.is_dataset:
        return ""
    if spec.partition_by:
        return "a published data set with folders does not show the order of rows"
    return "published lines of JSON do not show the types of rows" if spec.format == "jsonl" else ""


def _whole_again(count: int, why: str) -> str:
    """Return a sentence on mini-batches that run again as a whole; empty without any."""
    why = why or (
        "the place of the rows in the output is not known, since the script has named them itself"
    )
    noun = "mini-batch with failed rows runs" if count == 1 else "mini-batches with failed rows run"
    return f"{count} {noun} again as a whole: {why}." if count else ""


def _unfinished(folder: JobFolder, count: int, left: int) -> str:
    noun, have = "mini-batch" if count == 1 else "mini-batches", "has" if left == 1 else "have"
    return (
        f"of {count} {noun} of the job in {folder}, {left} {have} neither "
        "rows nor failed in the end: it has not come to its end, or its input or output was moved "
        "or changed. Do all of that by `daskprs resume`, or in Python by resume=True."
    )


def publication_in_place(history: History, target: Path | None) -> Publication | None:
    """Return the publication that is in place, whether or not its epoch lived to say so."""
    checksums: dict[Path, tuple[int, int]] = {}
    for publication in reversed(history.publications):
        identity = publication.identity
        if publication.target != target or not identity.is_file():
            continue
        if identity not in checksums:
            with open_regular(identity) as file:
                checksums[identity] = checksum_of(file)
        size, checksum = checksums[identity]
        is_whole = publication.identity != publication.target or size == publication.size
        if is_whole and checksum == publication.checksum:
            return publication
    return None


def _place_in_file(history: History, published: Publication) -> None:
    """Point the text of published commits to its place in the published file."""
    commits = history.commits
    rows = history.standing(published.epoch)
    lengths = commits.column("text_length")[rows]
    refuse_lost_records(published, lengths)
    offsets, in_file = commits.column("text_offset"), commits.column("in_file")
    if published.parts is None:
        offsets[rows] = published.header_bytes + np.cumsum(lengths) - lengths
    else:
        counts = [part.mini_batches for part in published.parts]
        parts, rows = commits.column("part"), rows[lengths > 0]
        parts[rows] = np.repeat(np.arange(1, len(counts) + 1), counts)
        offsets[rows] = np.concatenate([*map(np.arange, counts), np.empty(0, np.int64)])
        commits.set_column("part", parts)
    in_file[rows] = True
    commits.set_column("text_offset", offsets)
    commits.set_column("in_file", in_file)


def refuse_lost_records(published: Publication, lengths: Numbers) -> None:
    """Refuse journals without the records of some rows that are published.

    The places of all other rows in the output would be wrong. No driver publishes before the
    records are synced, so that only a disk that loses synced data comes to this.
    """
    if published.parts is None:
        is_whole = published.header_bytes + lengths.sum() == published.size
    else:
        is_whole = sum(part.mini_batches for part in published.parts) == (lengths > 0).sum()
    if not is_whole:
        msg = (
            f"{published.target} is whole, but the journals of its job lack the records of some of "
            "its rows: the disk has lost data that was synced. This job cannot go on. Start it "
            "anew with another job folder and another output."
        )
        raise JournalError(msg)


def _broken_in_parts(commits: CommitTable, rows: Numbers, published: Publication) -> Numbers:
    """Return the commits in part files that are missing or changed."""
    broken = [
        number
        for number, part in enumerate(published.parts or (), 1)
        if not all(is_unchanged(published.target / file.name, file) for file in part.files)
    ]
    in_file = commits.column("in_file")[rows].astype(bool)
    gone: Numbers = rows[in_file & np.isin(commits.column("part")[rows], broken)]
    return gone


def is_unchanged(path: Path, file: PublishedFile) -> bool:
    try:
        with open_regular(path) as there:
            return checksum_of(there) == (file.size, file.checksum)
    except FileNotFoundError:
        return False


def broken_in_spools(
    commits: CommitTable, rows: Numbers, form: str, spools: Callable[[int], Path]
) -> Numbers:
    """Return the commits whose bytes in the spools are missing or changed."""
    rows = rows[commits.column(f"{form}_length")[rows] > 0]
    numbers = commits.column("spool")[rows]
    region = [commits.column(f"{form}_{part}")[rows] for part in Region._fields]
    in_order = np.lexsort((region[0], numbers))
    columns = (rows, numbers, *region)
    broken: list[int] = []
    of_spools = groupby(each(*(column[in_order] for column in columns)), key=itemgetter(1))
    for number, regions in of_spools:
        broken += _broken_in(commits.spool(number, spools), regions)
    return np.array(broken, dtype=np.int64)


def _broken_in(spool: Path, regions: Iterable[tuple[int, ...]]) -> list[int]:
    try:
        with open_regular(spool) as file:
            return [row for row, _, *place in regions if not holds(file, Region(*place))]
    except FileNotFoundError:
        return [row for row, *_ in regions]
