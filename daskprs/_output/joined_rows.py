"""The rows of a mini-batch of which only some items ran again, put together with those it had.

The gaps in the earlier rows, and the edges of the new ones, say what belongs where. Both are read
from start to end and compared with their checksums, so that nothing damaged is committed anew.
"""

from __future__ import annotations

import zlib
from collections import Counter
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._arrow.sizes import size_bytes
from daskprs._output.journal.commits import region_of
from daskprs._output.spool import COPY_BYTES, DRIVER, Region, Regions, damaged
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from daskprs._core.outcomes import Outcome
    from daskprs._core.pieces import FailedRows, Gap, Place
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import Commits, CommitTable
    from daskprs._output.journal.history import Publication
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import SpoolFolder, Spools

WHOLE_BYTES = 64 << 20
"""Bytes of the rows of a data set that are held at once."""
TEXT, TYPED, ROWS = range(3)
"""The numbers of a place."""


class Earlier(NamedTuple):
    """The rows that earlier runs have committed."""

    folder: JobFolder
    spec: OutputSpec
    commits: CommitTable
    published: Publication | None
    """The output that they are in, if it was published."""


def joined(
    earlier: Earlier, gaps: Sequence[Gap], commits: Commits, outcome: Outcome, spools: Spools
) -> tuple[Commits, FailedRows | None]:
    """Put the rows of items that ran again, which are all that a commit lacks, into its rows.

    `commits` and `outcome` are the mini-batch as their attempt has left it, with the place of the
    new rows in the spools of this run. Return the commit of all rows, in the driver's spool, with
    the usage of both, and what has failed again, with its places among all rows. Raise
    `JournalError` when the earlier rows, or the new ones, are not those that were written.
    """
    index = outcome.index
    row = earlier.commits.row_of(index, (commits.identity or [""])[0])
    edges = () if outcome.pieces is None else outcome.pieces.edges
    if row is None or not _fit(edges, gaps):
        raise damaged(index)
    failed, stays = outcome.failed_rows, False
    if failed is not None:
        stays = earlier.spec.errors and _are_all(failed, gaps)
        failed = (_stayed if stays else _moved)(failed, gaps)
    if stays:  # nothing tells the types of new rows of nulls where nothing was returned
        gaps, edges = (), ()
    made: list[Regions | None] = []
    for form, number, spool in (("text", TEXT, spools.text), ("typed", TYPED, spools.typed)):
        regions = getattr(commits, form)
        if spool is None or regions is None:
            made.append(regions)
            continue
        new = spool.path / commits.spool, Region(*(column[0] for column in regions))
        if number == TEXT and earlier.spec.is_dataset:
            region = _of_tables(earlier, row, index, new, gaps, edges, spool)
        else:
            old = _place(earlier, row, form)
            with spool.written() as (sink, written):
                readers = BytesInOrder(*old, index), BytesInOrder(*new, index)
                for piece in _in_order(*readers, gaps, edges, number):
                    sink.write(piece)
            region = written[0]
        made.append(Regions(*([value] for value in region)))
    header = commits.header
    before = earlier.commits.values(row)["header"]
    if not (header and header[0]) and before:
        header = [earlier.commits.header(before)]
    used = Counter(dict((commits.usage or [None])[0] or ()))
    used.update(earlier.commits.usage(np.array([row])))
    usage = tuple((name, amount) for name, amount in used.items() if amount)
    text, typed = made
    commits = commits._replace(
        text=text, typed=typed, header=header, spool=DRIVER, usage=[usage] if usage else None
    )
    earlier.commits.replace(row)
    return commits, failed


def _place(earlier: Earlier, row: int, form: str) -> tuple[Path, Region]:
    """Return the file of the bytes of an earlier commit, and where they lie in it."""
    value = earlier.commits.values(row)
    region = region_of(value, form)
    if form == "text" and value["in_file"] and earlier.published is not None:
        return earlier.published.target, region
    folder_of = earlier.folder.spools if form == "text" else earlier.folder.typed_spools
    return earlier.commits.spool(value["spool"], folder_of), region


def _of_tables(
    earlier: Earlier,
    row: int,
    index: int,
    new: tuple[Path, Region],
    gaps: Sequence[Gap],
    edges: Sequence[Place],
    spool: SpoolFolder,
) -> Region:
    """Put the rows of a data set together; return where they are."""
    # Not at the top: a job with text need not load what makes data sets.
    from daskprs._output.dataset.earlier_parts import EarlierParts
    from daskprs._output.dataset.part_file import tables_in
    from daskprs._output.rows.arrow_rows import ArrowRows

    def tables(path: Path, region: Region) -> Iterator[pa.Table]:
        # No process has made the file if nothing was returned.
        for schema, table in tables_in(path, region, index) if region.length else ():
            yield schema.empty_table() if table is None else table

    if earlier.commits.values(row)["in_file"] and earlier.published is not None:
        old = EarlierParts(earlier.published, earlier.commits).tables(row, earlier.spec.format)
    else:
        old = tables(*_place(earlier, row, "text"))
    with spool.written() as (sink, written):
        rows = ArrowRows(earlier.spec, sink)
        readers = TablesInOrder(old), TablesInOrder(tables(*new))
        for table in _whole(_in_order(*readers, gaps, edges, ROWS)):
            rows.block(table)
        rows.flush()
    return written[0]


def _whole(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of one schema as one, as `run` would have returned them, up to a size."""
    import pyarrow as pa

    some: list[pa.Table] = []
    for table in tables:
        is_more = bool(some) and table.schema.equals(some[0].schema)
        if some and (not is_more or sum(map(size_bytes, some)) >= WHOLE_BYTES):
            yield pa.concat_tables(some).combine_chunks()
            some = []
        some.append(table)
    if some:
        yield pa.concat_tables(some).combine_chunks()


def _in_order(
    old: BytesInOrder | TablesInOrder,
    new: BytesInOrder | TablesInOrder,
    gaps: Sequence[Gap],
    edges: Sequence[Place],
    number: int,
) -> Iterator[Any]:
    """Yield the old rows, with new ones in their gaps; read either to its end."""
    for gap, edge in zip(gaps, edges, strict=True):
        yield from old.until(gap.before[number])
        for _ in old.until(gap.after[number]):
            pass
        yield from new.until(edge[number])
    yield from old.until(None)
    for _ in new.until(None):
        pass


class BytesInOrder:
    """Reads the bytes of a region once; to its end raises `JournalError` if they have changed."""

    def __init__(self, path: Path, region: Region, index: int) -> None:
        self._path = path
        self._region = region
        self._index = index
        self._at = self._checksum = 0

    def until(self, place: int | None) -> Iterator[bytes]:
        """Yield the next bytes before a place, or before the end."""
        stop = self._region.length if place is None else place
        if self._at < stop:
            with open_regular(self._path) as file:
                file.seek(self._region.offset + self._at)
                while piece := file.read(min(COPY_BYTES, stop - self._at)):
                    self._checksum = zlib.crc32(piece, self._checksum)
                    self._at += len(piece)
                    yield piece
        is_whole = place is not None or self._checksum == self._region.checksum
        if self._at != stop or not is_whole:
            raise damaged(self._index)


class TablesInOrder:
    """Reads the rows of tables once."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables: Iterator[pa.Table] = iter(tables)
        self._rest: pa.Table | None = None
        self._at = 0

    def until(self, place: int | None) -> Iterator[pa.Table]:
        """Yield the next rows before a place, or before the end, as tables."""
        while place is None or self._at < place:
            table, self._rest = self._rest, None
            if table is None:
                table = next(self._tables, None)
            if table is None:
                return
            if place is not None and self._at + table.num_rows > place:
                count = place - self._at
                table, self._rest = table.slice(0, count), table.slice(count)
            self._at += table.num_rows
            yield table


def _moved(failed: FailedRows, gaps: Sequence[Gap]) -> FailedRows:
    """Return failed items with their places among all rows, in place of those among the new."""
    items, left = [], [*gaps]
    kept = last = (0, 0, 0)
    for one in failed.items:
        while left and left[0].start <= one.start:
            gap = left.pop(0)
            kept, last = _each(add, kept, _each(sub, gap.before, last)), gap.after
        cut = one.cut and (_each(add, one.cut[0], kept), _each(add, one.cut[1], kept))
        items.append(one._replace(cut=cut))
    return failed._replace(items=tuple(items))


def _are_all(failed: FailedRows, gaps: Sequence[Gap]) -> bool:
    """Say whether all that ran again has failed; what the script has named may have rows."""
    is_found = all(one.cut is not None for one in failed.items)
    return is_found and failed.count == sum(gap.stop - gap.start for gap in gaps)


def _stayed(failed: FailedRows, gaps: Sequence[Gap]) -> FailedRows:
    """Return failed items with the places of the earlier rows of nulls."""
    items, left = [], [*gaps]
    for one in failed.items:
        before, after = left[0].before, left[0].after
        is_last = one.stop == left[0].stop
        items.append(one._replace(cut=(before, after if is_last else before)))
        if is_last:
            left.pop(0)
    return failed._replace(items=tuple(items))


def _each(of: Callable[[int, int], int], one: Place, other: Place) -> Place:
    first, second, third = map(of, one, other)
    return first, second, third


def _fit(edges: Sequence[Place], gaps: Sequence[Gap]) -> bool:
    """Say whether edges, which an agent tells, may be those of gaps."""
    return len(edges) == len(gaps) and all(
        list(numbers) == sorted(numbers) for numbers in zip(*edges, strict=True)
    )
