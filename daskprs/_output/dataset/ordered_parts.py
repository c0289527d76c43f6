"""The parts of a data set: made of committed rows in input order, published as one folder.

While the job runs, threads write the parts whose mini-batches are all settled. A part is full when
its rows, as Arrow streams, reach a size, so that the parts do not depend on the order of commits.
"""

from __future__ import annotations

import base64
import os
import secrets
from array import array
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from daskprs._output.dataset.manifest import manifest_of
from daskprs._output.dataset.part_attempt import sweep
from daskprs._output.dataset.part_file import (
    PartPlan,
    RowsFile,
    Sources,
    tables_in,
    write_part,
)
from daskprs._output.journal.commits import in_input_order, region_of
from daskprs._output.journal.history import MANIFEST
from daskprs._output.publish.output_file import attempts_of, put_in_place, removed, tidy_up
from daskprs._output.rows.given_schema import schema_of
from daskprs._output.rows.row_schema import RowSchema
from daskprs._output.spool import Region, checksum_of
from daskprs._system.atomic_file import sync_folder, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._output.dataset.earlier_parts import EarlierParts
    from daskprs._output.journal.commits import Commits, CommitTable, Numbers
    from daskprs._output.journal.history import PublishedPart
    from daskprs._output.publish.open_uploads import OpenUploads
    from daskprs._output.spec import OutputSpec

MOST_WAITING = 100_000
"""Most mini-batches that wait for an earlier one; beyond that, the rest is left for the end."""
LOOK_EVERY_S = 0.25
"""Seconds between looks at whether the job is to end while parts are written."""
# With a second thread the driver took 309 MB of memory, with a fourth 383 MB.
THREADS = 1
"""Threads that write parts, beside the agents."""


class FinishedParts(NamedTuple):
    """A data set that is finished and synced."""

    size: int
    checksum: int
    """The checksum of the manifest, or of the one file."""
    schema: bytes
    """Its schema as an Arrow message."""
    parts: list[PublishedPart]

    def record(self, target: Path) -> tuple[Any, ...]:
        """Return the journal record of publishing it."""
        schema = base64.b64encode(self.schema).decode()
        return "publishing parts", str(target), self.size, self.checksum, schema, self.parts


class OrderedParts:
    """Writes the rows of all commits into parts, in input order.

    Parameters
    ----------
    part
        The hidden folder to write, or the hidden file; `close` removes it unless it was renamed.
    spec
        The format of the data set, and how it is cut into files.
    commits
        The table of all commits.
    source
        Gives the spool for a number.
    made_by
        What the manifest says of the job.
    earlier
        The published data set in which commits of earlier epochs are.
    new_executor
        Makes what calls `write_part`, given a folder for attempts of other processes; None, or a
        result of None: threads of this process.
    check
        Called while the last parts are awaited; raises an error if the job is to end.
    uploads
        Uploads each part once it is written; None if the data set stays here.
    warn
        Called once with a sentence when an upload has failed.

    """

    def __init__(
        self,
        part: Path,
        spec: OutputSpec,
        commits: CommitTable,
        source: Callable[[int], Path],
        made_by: dict[str, Any],
        earlier: EarlierParts | None = None,
        new_executor: Callable[[Path], Executor | None] | None = None,
        check: Callable[[], None] = lambda: None,
        uploads: OpenUploads | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.complaint = ""
        """A sentence on what could not be removed from a store of objects; empty without any."""
        self.part = part
        self._spec = spec
        self._table = commits
        self._source = source
        self._made_by = made_by
        self._earlier = earlier
        self._new_executor = new_executor
        self._check_job = check
        self._executor: Executor | None = None
        self._uploads = uploads
        self._warn: Callable[[str], None] | None = warn
        self._target: Path | None = None
        self._unwanted = False
        self._late = False
        """Whether all rows that are not in parts yet are left for the end."""
        self._remove()  # what the driver of a removed job folder has left that died
        self._begin()

    def _begin(self) -> None:
        self._publication = secrets.token_hex(4)
        """Names the files, so that no two publications share a name."""
        self._next = 0
        """Index of the next mini-batch: all earlier ones are in a part, or in the open group."""
        self._waiting: dict[int, tuple[int, int]] = {}
        self._group = array("q")
        """Commits of the part that is not full yet."""
        self._group_bytes = 0
        self._parts: list[PartPlan | Future[PublishedPart]] = []
        """Parts in order, as plans until they are being written."""
        self._submitted = self._checked = 0
        """Number of parts, from the first on, that are submitted, and that are surely written."""
        given = None if self._spec.schema is None else schema_of(self._spec.schema)
        self._schema = RowSchema(given)
        self._metadata = None if given is None else given.metadata
        if given is None and self._earlier is not None and self._earlier.has_rows:
            self._schema.add(self._earlier.schema, 0)
            self._metadata = self._earlier.schema.metadata

    # ---- while the job runs ----

    def add(self, commits: Commits, _source: int) -> None:
        """Add commits, the last ones of the table; a part is written once it is full.

        Raise `ReturnTypeError` when rows of an earlier commit do not fit the schema.
        """
        row = len(self._table) - len(commits.index)
        lengths = repeat(0) if commits.text is None else commits.text.length
        for index, length in zip(commits.index, lengths, strict=False):
            self._waiting[index] = (row, length)
            row += 1
        self._go_on()

    def skip(self, index: int) -> None:
        """Note that a mini-batch has no rows."""
        self._waiting[index] = (0, 0)
        self._go_on()

    def _go_on(self) -> None:
        if self._late:
            self._waiting.clear()
            return
        if len(self._waiting) > MOST_WAITING:
            self._late = True
            return
        try:
            while (found := self._waiting.pop(self._next, None)) is not None:
                self._next += 1
                self._take(*found)
            if self._schema.is_settled:
                self._submit()
            self._check()
        except OSError:  # results need the room more
            self._close_files()
            self._begin()
            self._late = True

    def _take(self, row: int, length: int) -> None:
        """Put a commit into the open group, and close the group if it is full."""
        if not length:
            return
        if not self._schema.is_settled:
            self._scan(row)
        self._group.append(row)
        self._group_bytes += length
        if self._group_bytes >= self._spec.file_size_bytes and not self._spec.single_file:
            self._close_group()

    def _scan(self, row: int, *, with_rows: bool = True) -> None:
        """Let the rows of a commit say what the schema is."""
        index, path, region = self._region(row)
        if path is None:
            return  # the published schema was made of them
        for schema, table in tables_in(path, region, index):
            if (table is not None) == with_rows:
                if self._schema.schema is None:
                    self._metadata = schema.metadata
                self._schema.add(schema, index)
            if self._schema.is_settled:
                return

    def _region(self, row: int) -> tuple[int, Path | None, Region]:
        value = self._table.values(row)
        path = None if value["in_file"] else self._source(value["spool"])
        return value["index"], path, region_of(value, "text")

    # ---- parts ----

    def _close_group(self) -> None:
        """Plan a part of the commits in the open group."""
        rows, self._group, self._group_bytes = list(self._group), array("q"), 0
        self._parts.append(self._plan(rows))

    def _plan(self, rows: list[int]) -> PartPlan:
        files: dict[RowsFile, int] = {}
        sources = Sources.none()
        for row in rows:
            index, path, region = self._region(row)
            if path is None and self._earlier is not None:
                for file, *place in self._earlier.places(row):
                    sources.add(index, files.setdefault(file, len(files)), *place, 0)
            else:
                number = files.setdefault(RowsFile(str(path)), len(files))
                sources.add(index, number, *region)
        single = self._spec.single_file
        return PartPlan(
            str(self.part.parent if single else self.part),
            self.part.name if single else self._name(len(self._parts)),
            self._spec.format,
            self._schema,
            self._metadata,
            self._spec.partition_by,
            [*files],
            sources,
            self._uploads,
        )

    def _name(self, number: int) -> str:
        return f"part-{number:05d}-{self._publication}.{self._spec.format}"

    def _submit(self) -> None:
        """Have the planned parts written: the schema is settled."""
        for number in range(self._submitted, len(self._parts)):
            one = self._parts[number]
            if isinstance(one, PartPlan):
                self._parts[number] = self._write(one)
            self._submitted = number + 1

    def _check(self) -> None:
        """Raise the error of the first part that has one; parts behind one at work wait."""
        for number in range(self._checked, self._submitted):
            one = self._parts[number]
            if isinstance(one, Future):
                if not one.done():
                    return
                one.result()
                self._look_at_uploads()
            self._checked = number + 1

    def _look_at_uploads(self) -> None:
        """Say once that an upload has failed: wrong keys can be mended before the job ends."""
        if self._uploads is None or self._warn is None:
            return
        if error := self._uploads.failure():
            self._warn(
                f"a part file could not be uploaded to {self._uploads.url}: {error}. The job goes "
                "on, and uploads the file at its end."
            )
            self._warn = None

    def _write(self, plan: PartPlan) -> Future[PublishedPart]:
        if self._executor is None:
            make = self._new_executor
            self._executor = (make and make(attempts_of(self.part))) or _threads()
        if not self._spec.single_file:
            self.part.mkdir(exist_ok=True)
        self._unwanted = False
        try:
            return self._executor.submit(write_part, plan, lambda: self._unwanted)
        except RuntimeError:  # no more threads: this one does it
            made: Future[PublishedPart] = Future()
            made.set_result(write_part(plan))
            return made

    # ---- at the end ----

    def finish(self, _commits: CommitTable) -> FinishedParts:
        """Write the missing parts and the manifest, and return the finished data set.

        Raise `JournalError` when the bytes of a mini-batch differ from the committed ones,
        `ReturnTypeError` when its rows do not fit the schema, and `OSError` when the disk is full.
        """
        there = self._table.column("text_length") > 0
        rows = np.flatnonzero(there & (self._table.column("index") >= self._next))
        rows = in_input_order(self._table, rows)
        everything = in_input_order(self._table, np.flatnonzero(there))
        self._settle(rows, everything)
        self._cut(rows)
        is_needed = self._spec.single_file or (
            self._schema.schema is not None and not self._spec.partition_by
        )
        if self._group or (is_needed and not self._parts):
            if self._schema.schema is None:
                self._schema = RowSchema(pa.schema([]))
            self._close_group()
        made = self._made()
        if self._spec.single_file:
            return self._single_file(made)
        return self._folder(made, everything)

    def _settle(self, rows: Numbers, everything: Numbers) -> None:
        """Let the missing rows say what the schema is; without any, the columns of empty ones."""
        for row in rows.tolist():
            if self._schema.is_settled:
                return
            self._scan(row)
        for row in everything.tolist():
            if self._schema.schema is not None:
                return
            self._scan(row, with_rows=False)
        if self._schema.schema is None and self._earlier is not None:
            self._schema.add(self._earlier.schema, 0)

    def _cut(self, rows: Numbers) -> None:
        """Plan parts of the missing rows; published parts that are as they would be stay."""
        lengths = self._table.column("text_length")[rows].tolist()
        earlier = None if self._spec.single_file else self._earlier
        schema = self._schema.schema
        if earlier is not None and not earlier.schema.equals(schema, check_metadata=False):
            earlier = None
        least_bytes = self._spec.file_size_bytes
        place = 0
        while place < len(rows):
            part = earlier.unchanged(rows, lengths, place, least_bytes) if earlier else None
            if earlier is not None and part is not None:
                if self._group:
                    self._close_group()
                made: Future[PublishedPart] = Future()
                name = self._name(len(self._parts))
                made.set_result(earlier.adopted(part, self.part, name))
                self._parts.append(made)
                place += part.mini_batches
            else:
                self._take(int(rows[place]), lengths[place])
                place += 1

    def _made(self) -> list[PublishedPart]:
        """Have all parts written, and return their files in order."""
        self._submit()
        made = [one for one in self._parts if isinstance(one, Future)]
        for one in made:
            while wait([one], LOOK_EVERY_S).not_done:
                self._check_job()
                self._check()
        self._check()
        return [one.result() for one in made]

    def _single_file(self, parts: list[PublishedPart]) -> FinishedParts:
        (part,) = parts
        (file,) = part.files
        part = part._replace(files=[file._replace(name="")])
        return FinishedParts(file.size, file.checksum, self._message, [part])

    def _folder(self, parts: list[PublishedPart], everything: Numbers) -> FinishedParts:
        self.part.mkdir(exist_ok=True)
        manifest = manifest_of(
            self._spec,
            self._publication,
            self._made_by,
            self._schema.schema or pa.schema([]),
            self._table.column("index")[everything].tolist(),
            parts,
        )
        write_json(self.part / MANIFEST, manifest, indent=1)
        with (self.part / MANIFEST).open("rb") as written:
            size, checksum = checksum_of(written)
        for folder, _, _ in os.walk(self.part):
            sync_folder(self.part / folder)
        size += sum(one.size for part in parts for one in part.files)
        return FinishedParts(size, checksum, self._message, parts)

    @property
    def _message(self) -> bytes:
        schema = self._schema.schema or pa.schema([])
        return bytes(schema.with_metadata(self._metadata).serialize())

    def put(self, target: Path) -> None:
        """Give the finished data set its name; readers see the old one or the new one."""
        self._target = target
        put_in_place(self.part, target)

    def close(self) -> None:
        """End the threads, and remove what is not wanted: parts, or what was replaced."""
        self._close_files()
        self._uploads = None  # what could not be aborted waits for the next driver
        if self._target is not None:
            tidy_up(self.part, self._target)

    def _close_files(self) -> None:
        self._unwanted = True
        if self._executor is not None:
            executor, self._executor = self._executor, None
            executor.shutdown(wait=True, cancel_futures=True)
        self._remove()

    def _remove(self) -> None:
        """Remove the hidden parts, and abort the uploads of what is not published here."""
        removed(self.part)
        sweep(attempts_of(self.part))
        if self._uploads is None:
            return
        self.complaint = ""  # what has published it tells what is left
        if self._target is None:
            published = () if self._earlier is None else self._earlier.names
            self.complaint = self._uploads.abort(keep=published)


def _threads() -> Executor:
    return ThreadPoolExecutor(THREADS, "daskprs-output")
