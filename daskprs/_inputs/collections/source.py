"""A Dask collection as a source: its partitions become known while the job runs."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._folders.row_labels import LabelWriter, prepared_labels
from daskprs._inputs.collections.partition_table import (
    LABELS,
    TABLE,
    PartitionCut,
    PartitionTable,
)
from daskprs._inputs.collections.staged_reader import StagedReader
from daskprs._inputs.collections.staging import staged
from daskprs._inputs.collections.staging_form import WHOLE
from daskprs._inputs.source.pieces import PartitionSlice, StagedPiece, Uncomputed
from daskprs._inputs.source.source import TableSource
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import keep_to_owner, open_unshared
from daskprs.errors import JobFolderError, LoadError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pandas as pd

    from daskprs._inputs.collections.collection_graph import CollectionGraph
    from daskprs._inputs.collections.partition_graph import PartitionGraph
    from daskprs._inputs.collections.staging import StagedPartition
    from daskprs._inputs.collections.staging_form import StagingForm
    from daskprs._inputs.source.source import InputWork, Unit

MOST_KEPT = 32
"""Most failed partitions whose tasks a job folder keeps."""


class CollectionSource(TableSource):
    """The partitions of a Dask collection, computed by the workers of a cluster.

    Without a size each partition is a mini-batch, whose number is that of the partition. With one,
    partitions are cut, and mini-batches are numbered in the order of partitions. The `form` says
    how partitions are checked, cut and written for the agents.
    """

    keeps_nan = True

    def __init__(self, collection: CollectionGraph, form: StagingForm, unit: Unit) -> None:
        self.graph = collection.graph
        self.form = form
        self.unit = unit
        self.table: PartitionTable
        """The partitions that are known (after `open_table`)."""
        self.failures: dict[int, Uncomputed] = {}
        """The partitions that a resume could not compute when it compared them."""
        self._collection = collection
        self._partitions: list[str] = []
        self._staged: list[StagedPartition] = []
        """All partitions, where they were computed in this process."""
        self._scratch = Path()

    @property
    def is_cut(self) -> bool:
        """Whether partitions are cut."""
        return self.form.size != WHOLE

    @property
    def has_token(self) -> bool:
        """Whether a token shows that the collection is the same; else its content does."""
        return self._collection.token is not None

    def prepare(self, scratch: Path) -> None:
        """Compute all partitions, one after the other, in this process (a plan without a job)."""
        self.open_table(scratch)
        for number in range(len(self.graph)):
            partition = staged(_computed(self.graph, number), number, self.form, scratch)
            self._staged.append(partition)
            self.table.cuts[number] = partition.cut
            if partition.labels is not None:
                self.keep_labels(number, partition.cut, partition.labels)
        if self.form.keep_labels:
            self.finish_labels()

    def begin(self, work: InputWork) -> None:
        """Have partitions computed by the job's cluster, while the job runs."""
        self.open_table(work.scratch)
        work.follow(self)

    def let_go(self) -> None:
        """Let go of the collection, and of the futures in it.

        The parts of a job refer to each other: Python would free them at its next collection of
        garbage, and the cluster keep the caller's persisted partitions until then.
        """
        del self.graph, self._collection

    def open_table(self, scratch: Path) -> None:
        """Read what an earlier run of the job has learnt of the partitions."""
        self._scratch = scratch
        count = len(self.graph)
        header = {"token": self._collection.token, "count": count, **self._described()}
        self.table = PartitionTable(scratch / TABLE, header)
        if self.table.is_same:
            self.table.cuts = dict(self.table.before)

    # ---- a replay ----

    def kept_for(self, failed: Collection[int]) -> KeptCollection:
        """Return the source with the tasks of the partitions of some mini-batches alone.

        Raise `ValueError` when no mini-batch has failed, or a partition is the result of a cluster.
        """
        wanted = {_partition_of(one) for one in self.mini_batches() if one.index in failed}
        graph = self._collection.graph.only(sorted(wanted)[:MOST_KEPT])
        alone = self._collection._replace(graph=graph, collection=None)
        kept = KeptCollection(alone, self.form, self.unit)
        kept.known = dict(self.table.cuts)
        return kept

    # ---- a resume ----

    def unknown(self) -> Collection[int]:
        """Return the partitions that have to be computed before a resume can compare its plan.

        Without the same token these are all. A partition that failed before others had been cut
        shifts their numbers if it no longer fails.
        """
        known = self.table.cuts
        if not self.table.header_before:
            return []  # the earlier run had none yet
        if not self.table.is_same:
            return range(len(self.graph))
        last = max((n for n, cut in known.items() if not cut.failed), default=-1)
        return [n for n in range(last) if self.is_cut and (n not in known or known[n].failed)]

    def compare(self, *, extends: bool) -> dict[str, Any]:
        """Return the facts that the earlier run learnt of the input, to compare fingerprints.

        From now on the fingerprint has these partitions as they are now. It has all partitions
        where their number has changed, or may have changed with `extends`.
        """
        before, now = self.table.before, self.table.cuts
        if not self.table.header_before:
            return {}
        known = sorted(number for number, cut in before.items() if not cut.failed)
        is_other = extends or self.table.header_before.get("count") != len(self.graph)
        numbers = sorted(now) if is_other else [number for number in known if number in now]
        self._partitions = [now[number].digest for number in numbers]
        return {"partitions": [before[number].digest for number in known]}

    def failed_before(self, mini_batch: MiniBatch) -> bool:
        """Return whether an earlier run could not compute the partition of a mini-batch."""
        piece = mini_batch.piece
        before = self.table.before
        return (
            isinstance(piece, PartitionSlice)
            and piece.partition in before
            and before[piece.partition].failed
        )

    # ---- the plan, as far as it is known ----

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the mini-batches of the known partitions, as far as their numbers are known.

        One stands for a partition that is not known, and for all that follow where numbers end.
        """
        index = first = 0
        for number in range(len(self.graph)):
            cut = self.table.cuts.get(number)
            if cut is None:
                place = index if self.is_cut else number
                yield MiniBatch(place, None, f"not computed yet: {number}")
                if self.is_cut:
                    return
                continue
            for mini_batch in self.cut(number, cut, index, first):
                yield self._placed(mini_batch) if self._staged else mini_batch
                index += 1
            first += cut.rows

    def cut(
        self, number: int, cut: PartitionCut, index: int, first: int, worker: str = ""
    ) -> Iterator[MiniBatch]:
        """Yield the mini-batches of a partition that a worker holds.

        The number of its first mini-batch, and that of its first row, are only used where
        partitions are cut: otherwise the partitions before it may not be known.
        """
        if cut.failed:
            place = index if self.is_cut else number
            yield MiniBatch(
                place, None, f"not computed: {number}", items=1, label=f"partition {number}"
            )
            return
        for place, (start, stop) in enumerate(cut.slices(), index if self.is_cut else number):
            rows = f", {self.unit}s {start}-{stop}" if self.is_cut else ""
            yield MiniBatch(
                index=place,
                piece=PartitionSlice(number, start, stop, cut.digest),
                identity=f"{cut.digest}:{start}-{stop}",
                items=stop - start,
                size_bytes=cut.size_bytes * (stop - start) // max(1, cut.rows),
                row_lower_bound=first + start if self.is_cut else None,
                label=f"partition {number}{rows}",
                worker=worker,
            )

    def _placed(self, mini_batch: MiniBatch) -> MiniBatch:
        """Return a mini-batch with the file that holds it."""
        piece = mini_batch.piece
        return mini_batch._replace(piece=self._staged[piece.partition].placed(piece, self._scratch))

    def count(self) -> int | None:
        """Return the number of mini-batches, where it is known."""
        if not self.is_cut:
            return len(self.graph)
        cuts = self.table.cuts
        if len(cuts) < len(self.graph):
            return None
        return sum(1 for cut in cuts.values() for _ in cut.slices())

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on, with the content as far as a resume compares it."""
        return {**self._described(), "partitions": self._partitions}

    def _described(self) -> dict[str, Any]:
        meta = self.form.meta
        names = [] if meta is None else [f"{name}: {kind}" for name, kind in meta.dtypes.items()]
        return {
            "kind": f"dask {self._collection.kind}",
            "columns": names,
            "format": self.form.batch_format,
            "size": self.form.size.told if self.is_cut else None,
        }

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return which rows of its partition."""
        if not isinstance(mini_batch.piece, (PartitionSlice, StagedPiece)):
            return Where()
        return Where(rows=(mini_batch.piece.start, mini_batch.piece.stop))

    def reader(self) -> StagedReader:
        """Return the reader for the agents."""
        return StagedReader()

    def meta(self) -> Any:
        """Return the table without rows; None where partitions are not tables."""
        return self.form.meta

    # ---- row labels ----

    def keep_labels(self, number: int, cut: PartitionCut, labels: pd.Index | str) -> None:
        """Keep the labels of a partition's rows, or why there are none, until all are known."""
        with whole_file(self._labels_of(number, cut)) as file:
            keep_to_owner(file)
            pickle.dump(labels, file)

    def finish_labels(self) -> Path:
        """Write the labels of all rows, in the order of the plan, and return their folder."""
        bounds = [0]
        cuts = [self.table.cuts[number] for number in range(len(self.graph))]
        there = [number for number, cut in enumerate(cuts) if not cut.failed]
        with LabelWriter(self._scratch) as writer:
            # The labels of no rows may have another type; of a table without rows they are all.
            for number in [one for one in there if cuts[one].rows] or there[:1]:
                with open_unshared(self._labels_of(number, cuts[number]), os.geteuid()) as file:
                    writer.add(pickle.load(file))
            for cut in cuts:
                first = bounds[-1]
                slices = [(0, 0)] if cut.failed else cut.slices()
                bounds += [first + stop for _, stop in slices]
            writer.finish(np.array(bounds, np.int64))
        return prepared_labels(self._scratch)

    def numbered_rows(self) -> int:
        """Return the number of rows, all known now, if their labels number them from 0; else −1."""
        rows = 0
        for _, cut in sorted(self.table.cuts.items()):
            if cut.rows and cut.first_label != rows:
                return -1
            rows += cut.rows
        return rows

    def _labels_of(self, number: int, cut: PartitionCut) -> Path:
        return self._scratch / f"{LABELS}{number}.{cut.digest}"


class KeptCollection(CollectionSource):
    """A collection that a job folder has kept, with the tasks of a few partitions."""

    known: dict[int, PartitionCut]
    """The cuts of the partitions, as the job has found them."""

    def prepare(self, scratch: Path) -> None:
        """Take the cuts as they were; a partition is computed when its mini-batch is chosen."""
        self.open_table(scratch)
        self.table.cuts = dict(self.known)

    def begin(self, work: InputWork) -> None:
        """Do the same: no cluster computes partitions ahead."""
        self.prepare(work.scratch)

    def computed_again(self, mini_batch: MiniBatch) -> tuple[MiniBatch, str]:
        """Compute the partition of a mini-batch in this process.

        Return the mini-batch with its rows, or with the error of the partition, and a note if the
        content is another one than in the job.
        """
        piece, number = mini_batch.piece, _partition_of(mini_batch)
        if number not in self.graph.wanted:
            msg = (
                f"{mini_batch.described} cannot be run again: the job folder has the tasks of "
                f"{len(self.graph.wanted)} failed partitions, and not those of partition {number}."
            )
            raise JobFolderError(msg)
        try:
            partition = staged(_value(self.graph, number), number, self.form, self._scratch)
        except Exception as error:  # noqa: BLE001 - whatever the user's tasks raise
            return mini_batch._replace(piece=Uncomputed.of(error, number)), ""
        self._again = partition  # its file goes with it
        now = partition.cut
        note, first = "", 0
        if not isinstance(piece, PartitionSlice):
            note = f"partition {number} could not be computed in the job, and can be now"
        elif now.digest != piece.digest:
            note = f"partition {number} was computed again, and has other rows than in the job"
            first = piece.start
        if note:
            # Pickles are read as they are cut: the one with its first row, or else the last one.
            start = min(first, max(0, now.rows - 1)) // now.step * now.step
            piece = PartitionSlice(number, start, min(start + now.step, now.rows), now.digest)
        placed = partition.placed(piece, self._scratch)
        items = piece.stop - piece.start
        return mini_batch._replace(piece=placed, items=items, worker=""), note


def _partition_of(mini_batch: MiniBatch) -> int:
    """Return the number of the partition, which is in the identity where it is not computed."""
    piece = mini_batch.piece
    if isinstance(piece, PartitionSlice):
        return piece.partition
    return int(mini_batch.identity.rpartition(" ")[2])


def _computed(graph: PartitionGraph, number: int) -> Any:
    """Compute a partition by the scheduler that Dask uses."""
    try:
        return _value(graph, number)
    except Exception as error:  # whatever the user's tasks raise
        msg = f"{type(error).__name__}: {Uncomputed.of(error, number).message}"
        raise LoadError(msg) from error


def _value(graph: PartitionGraph, number: int) -> Any:
    from dask.delayed import Delayed

    group = graph.of([number]).group(number)
    if group.future is not None:
        return group.future.result()
    return Delayed(group.output, group.tasks).compute()
