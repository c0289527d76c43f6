"""The store of a job's results: the one writer of journal and output file.

Rows are in a spool, that of their agent or the driver's, before they are recorded in the journal;
a driver commits a mini-batch once, and of two drivers' commits that of the newer one stands. The
death of any process loses no commit, since both are written at once; a loss of power loses commits
made since the last sync, about a second before.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from daskprs._core.accounts import Settled
from daskprs._core.events import NOWHERE
from daskprs._core.mini_batch import Where
from daskprs._core.pieces import CarriedOverFailure, Recovered
from daskprs._folders.job_lock import epochs_of, latest_epoch
from daskprs._folders.row_labels import adopt_labels, drop_labels
from daskprs._output.failures.failed_rows import FailedRowsLog
from daskprs._output.failures.failed_work import FailedWork
from daskprs._output.joined_rows import Earlier, joined
from daskprs._output.journal.commits import Commits, CommitTable, HeaderNumbers
from daskprs._output.journal.journal import VERSION, Journal, Syncer, reported
from daskprs._output.journal.recovery import recover
from daskprs._output.publish.ordered_text import PUBLISHED, Headers, OrderedText
from daskprs._output.publish.output_file import (
    attempts_of,
    check_output_file,
    claimed_output,
    drop_spools,
    drop_unfinished,
    part_of,
    tidy_up,
)
from daskprs._output.spool import DRIVER, Spools
from daskprs._system.atomic_file import sync_file, sync_folder, whole_file
from daskprs._system.disk_space import what_to_do
from daskprs._system.interrupts import held_back
from daskprs.errors import JobFolderError, JournalError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from daskprs._core.events import Place
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome, Results
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.dataset.ordered_parts import OrderedParts
    from daskprs._output.journal.history import Publication, PublishedPart
    from daskprs._output.journal.recovery import Found, Resumption
    from daskprs._output.publish.open_uploads import OpenUploads
    from daskprs._output.spec import OutputSpec


class ResultStore:
    """Keeps the results of a job's attempts, one for each mini-batch.

    Parameters
    ----------
    folder
        The job folder, locked by this process.
    epoch
        The number of this driver's epoch in the job folder.
    spec
        Which rows are kept: text, typed, both or none.
    target
        The output file; None when there is none.
    fingerprint
        The fingerprint on which the results depend, as JSON values.
    resumption
        How to resume from earlier commits; None if the folder must hold no journal.
    overwrite
        Replace an existing output file, at the moment of publishing.
    where
        Says where a mini-batch lies, for the table of those that failed.
    labels
        The folder of prepared row labels, which is moved into the job folder; None without labels.
    new_executor, check
        What writes the parts of a data set, and what may end that, as for `OrderedParts`.
    uploads, warn
        What uploads the parts of a data set while the job runs, as for `OrderedParts`, and what is
        called when that fails, or when frames with different columns become lines of one file.

    Raises
    ------
    OutputError
        When the output file exists or its folder cannot be written.
    JobFolderLocked
        When another job has claimed the output file.
    JobChanged
        When the journal was written for a different job.

    """

    def __init__(
        self,
        folder: JobFolder,
        epoch: int,
        spec: OutputSpec,
        target: Path | None,
        fingerprint: dict[str, Any],
        *,
        resumption: Resumption | None = None,
        overwrite: bool = False,
        where: Callable[[MiniBatch], Where] = lambda _: Where(),
        labels: Path | None = None,
        new_executor: Callable[[Path], Executor | None] | None = None,
        check: Callable[[], None] = lambda: None,
        uploads: OpenUploads | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.published: Path | None = None
        """The output file, once it is there."""
        self.published_bytes = 0
        """The size of the output file, in bytes."""
        self.done = False
        """Whether all output is in place: the job is then Completed, whatever happens later."""
        self.complaint = ""
        """The problem, if any, after the output was in place."""
        self.columns_before: tuple[str, ...] | None = None
        """The columns of what `run` has returned in earlier runs, where rows of nulls need them."""
        self.spent_before: dict[str, float] = {}
        """What earlier runs have used by the script's own count."""
        self.useful_before: dict[str, float] = {}
        """The part of it that the commits have used which stand."""
        self.epoch = epoch
        """The number of this driver's epoch in the job folder."""
        self._folder = folder
        self._spec = spec
        self._target = target
        self._commits = CommitTable()
        self._headers = Headers(warn=warn if spec.mixed_columns else None, separator=spec.separator)
        self._header_numbers = HeaderNumbers()
        self._ordered: OrderedText | OrderedParts | None = None
        self._fingerprint = fingerprint
        self._replaces = False
        """Whether an existing output may be replaced."""
        self._earlier: Publication | None = None
        """The published output that has rows of earlier epochs."""
        self._failed = FailedWork(folder, where)
        self._failed_rows = FailedRowsLog(folder, epoch)
        self._labels = labels
        self._new_executor = new_executor
        self._check = check
        self._uploads = uploads
        self._warn = warn
        self._is_new = True
        """Whether a commit is missing from the published file."""
        self._closing = ExitStack()
        has_begun = False
        try:
            with ExitStack() as opening:
                opening.callback(self._closing.close)
                self._begin(fingerprint, resumption, overwrite=overwrite)
                has_begun = True
                self._drop_earlier_labels()
                opening.pop_all()
        except KeyboardInterrupt:
            if not has_begun:  # else the job would count as one whose driver died
                folder.journal(epoch).unlink(missing_ok=True)
            raise

    def recovered(self, mini_batch: MiniBatch) -> Recovered | CarriedOverFailure | None:
        """Return the earlier result of a mini-batch that this run does not run again."""
        row = self._commits.row_of(mini_batch.index, mini_batch.identity)
        if row is None:
            return self._failed.borne(mini_batch.index)
        done = self._commits.values(row)
        made = Recovered(
            done["total"],
            done["succeeded"],
            bool(done["empty"]),
            self._failed_rows.items_of(mini_batch),
        )
        left = self._failed_rows.left(mini_batch.index)
        if left is None:
            return made
        gaps = tuple((gap.start, gap.stop) for gap in left.gaps)
        return made._replace(gaps=gaps, returned=left.returned)

    def settled_before(self) -> Settled:
        """Return what earlier runs have settled of the plan; call it before the first commit."""
        commits, left = self._commits, [*self._failed_rows.numbers_left]
        is_counted = (commits.column("empty") == 0) & ~np.isin(commits.column("index"), left)
        total, succeeded = (commits.column(name)[is_counted] for name in ("total", "succeeded"))
        failed = int(np.maximum(0, total - succeeded).sum())
        borne = self._failed.all_borne
        return Settled(
            int(is_counted.sum()),
            len(borne),
            int(total.sum()) + sum(borne),
            int(succeeded.sum()),
            failed + sum(borne),
            failed - self._failed_rows.count_settled,
        )

    def is_settled(self, mini_batch: MiniBatch) -> bool:
        """Return whether this run needs no data of a mini-batch."""
        found = self.recovered(mini_batch)
        return isinstance(found, CarriedOverFailure) or (found is not None and not found.gaps)

    def commit(self, mini_batches: Sequence[MiniBatch], made: Results) -> None:
        """Commit the results of attempts, one for each of these mini-batches.

        Raise `OutputError` when a result cannot be written, or its columns differ from the others.
        Earlier commits stay.
        """
        is_joined = self._failed_rows.has_left(made.outcomes.column("index"))
        if is_joined and len(mini_batches) > 1:
            for position, one in enumerate(mini_batches):
                self.commit([one], made.only([position]))
            return
        header = self._headers.checked(made.outcomes)
        with reported(self._folder.path):
            if made.unwritten:
                raise OSError(made.unwritten)
            text, typed = self._spools.keep(made)
            spool = made.spool or DRIVER
            commits = Commits.of(mini_batches, made.outcomes, text, typed, header, spool)
            failed_rows = made.outcomes.column("failed_rows")
            if is_joined:
                (outcome,) = made.outcomes
                earlier = Earlier(self._folder, self._spec, self._commits, self._earlier)
                left = self._failed_rows.left(outcome.index)
                gaps = () if left is None else tuple(left.gaps)
                commits, failed = joined(earlier, gaps, commits, outcome, self._spools)
                failed_rows = [failed]
            # First: were the machine lost between them, a commit would lack rows without a word.
            for record in self._failed_rows.records(mini_batches, failed_rows):
                self._journal.add(*record)
            numbered = self._header_numbers.column(commits.header)
            self._journal.add("commits", *commits._replace(header=numbered))
            self._journal.write()
        # Only earlier epochs' commits are ever looked up by identity.
        number = self._commits.add(commits._replace(identity=None), self.epoch)
        if self._ordered is not None:
            self._ordered.add(commits, number)
        self._failed.forget(commits.index)
        self._is_new = True

    def attempt_failed(
        self,
        mini_batch: MiniBatch,
        outcome: Outcome,
        place: Place = NOWHERE,
        *,
        final: bool,
        charged: bool = True,
    ) -> None:
        """Record a failed attempt; with `final`, also that the mini-batch was given up."""
        failed = self._failed.record(mini_batch, outcome, place, final=final, charged=charged)
        self._journal.add(*failed)
        if final and self._ordered is not None:
            self._ordered.skip(outcome.index)

    def note_hidden_gpus(self) -> None:
        """Note for a resume that the script uses no GPU."""
        self._folder.gpus_hidden.touch()

    def note_usage(self, spent: Mapping[str, float]) -> None:
        """Note for a resume what this run has used by the script's own count."""
        self._journal.add("usage", dict(spent))

    def note_columns(self, columns: tuple[str, ...]) -> None:
        """Note for a resume which columns `run` returns."""
        self._journal.add("columns", list(columns))

    def note_size(self, at_most: int) -> None:
        """Note for a resume how many items of a call of `run` fit the memory."""
        with reported(self._folder.path), whole_file(self._folder.fitting_size) as file:
            file.write(str(at_most).encode())

    def sync_if_due(self, now_s: float) -> None:
        """Sync commits about once a second, so that they survive a loss of power."""
        self._syncer.sync_if_due(now_s)

    def publish(self) -> Path | None:
        """Write the output file, and return it; None when the job has none.

        Call this when every mini-batch is settled. A file that is already published is rewritten
        only if its content would change. After an `OutputError` (it cannot be written) or a
        `JournalError` (the spool is damaged, or another driver has taken over), the output file is
        what it was.
        """
        if self._target is None and self._is_followed:  # else it is looked at just before the put
            msg = f"another driver has taken over {self._folder}: the result is that driver's."
            raise JournalError(msg)
        committed = len(self._commits) - self._commits.replaced
        self._journal.add("complete", committed, len(self._failed))
        self._syncer.sync()
        if self._target is not None and self._ordered is not None:
            if self.published is None or self._is_new:
                self._publish(self._ordered, self._target)
            self.complaint = drop_spools(self._folder, self._target, self.epoch)
        self.done = True
        return self.published

    def keep_labels(self, prepared: Path) -> None:
        """Keep row labels that are known only now that all is settled."""
        with reported(self._folder.path):
            drop_labels(self._folder.labels(self.epoch))
            adopt_labels(prepared, self._folder.labels(self.epoch))
        self._journal.add("labels")

    def note_unlabelled(self, rows: int) -> None:
        """Note what is known only now of the labels that a data set lacks."""
        self._journal.add("unlabelled", rows)

    @property
    def failed(self) -> set[int]:
        """The numbers of the mini-batches that have failed, or in which items have."""
        return self._failed.numbers | self._failed_rows.numbers

    def write_failed(self) -> None:
        """Write the tables of what has failed so far; raise `OSError` if that fails.

        Where a newer driver has taken over, they are those of that driver.
        """
        self._journal.write()
        if self._is_followed:
            return
        self._failed.write()
        self._failed_rows.write()

    @property
    def _is_followed(self) -> bool:
        """Whether a newer driver is at work: a network file system may give it our lock."""
        return latest_epoch(self._folder) > self.epoch

    def end(self, result: dict[str, Any]) -> None:
        """Record the job's result."""
        self._journal.add("ended", result)

    def drop_output(self) -> str:
        """Remove the unfinished output; return what is left of it elsewhere, and why."""
        if self._ordered is None:
            return ""
        with suppress(OSError):  # the next driver removes it
            self._ordered.close()
        return self._ordered.complaint

    def close(self) -> None:
        """Write pending records and close the files; journal and spools stay for a resume."""
        try:
            # A full disk, or a file of another kind, was reported, and closing must go on.
            with suppress(OutputError, JobFolderError):
                self._syncer.sync()
        finally:  # after a second Ctrl-C, too: else the claim would stay beside the output
            with suppress(OSError):  # a tail that cannot be cut off fails its checksum
                self._closing.close()

    # ---- opening ----

    def _begin(
        self, fingerprint: dict[str, Any], resumption: Resumption | None, *, overwrite: bool
    ) -> None:
        target, replaces = self._target, overwrite
        if target is not None:
            self._closing.enter_context(claimed_output(target))
            self._tidy_up(target)
        found = None
        if resumption is not None:
            with reported(self._folder.path):
                self._sync_earlier()
            found = self._recover(fingerprint, resumption)
            replaces |= found.may_overwrite
        if target is not None:
            check_output_file(target, overwrite=replaces, is_dataset=self._spec.is_dataset)
            # Kept, since it is looked at again before the output gets its name.
            self._replaces = replaces
        with reported(self._folder.path):
            self._open_files()
        self._journal.add("job", VERSION, fingerprint, overwrite)
        for record in () if found is None else found.records:
            self._journal.add(*record)
        if self._labels is not None:
            self._journal.add("labels")
        if self._spec.unlabelled is not None:
            self._journal.add("unlabelled", self._spec.unlabelled)
        self._syncer.sync()
        sync_folder(self._folder.path)

    def _drop_earlier_labels(self) -> None:
        for epoch in epochs_of(self._folder, self._folder.labels):
            if epoch < self.epoch:
                drop_labels(self._folder.labels(epoch))

    def _tidy_up(self, target: Path) -> None:
        """Remove what earlier drivers have left beside an output."""
        own = self._part_of(target)
        tidy_up(own, target)  # of a driver whose job folder was removed
        for earlier in self._earlier_parts(target):
            tidy_up(earlier, target)
            drop_unfinished(earlier, own)

    def _sync_earlier(self) -> None:
        """Sync what earlier drivers have written: one that was killed has synced only some of it.

        Their commits would otherwise be published, and a loss of power could take back the records
        of some of them, so that the places of all others in the output would be wrong.
        """
        folder = self._folder
        for path_of in (folder.spools, folder.typed_spools, folder.journal):
            for path in (path_of(one) for one in epochs_of(folder, path_of) if one < self.epoch):
                if not path.is_dir():
                    sync_file(path)
                    continue
                for file in path.iterdir():
                    # What is not ours, or cannot be read, is judged by who reads it.
                    with suppress(PermissionError):
                        if file.is_file():
                            sync_file(file)
                sync_folder(path)

    def _open_files(self) -> None:
        """Create the files of this epoch, the journal last: with it the job has begun."""
        folder, epoch = self._folder, self.epoch
        self._spools = Spools(folder.spools(epoch), folder.typed_spools(epoch), self._spec)
        self._closing.callback(self._spools.close)
        if self._labels is not None:
            adopt_labels(self._labels, folder.labels(epoch))
        self._journal = Journal(folder.journal(epoch))
        self._closing.callback(self._journal.close)
        self._syncer = Syncer(folder.path, self._spools, self._journal)
        self._closing.callback(self._syncer.close)
        if self._target is not None:
            self._ordered = self._new_output(self._target)
            self._closing.callback(self._ordered.close)

    def _part_of(self, target: Path, epoch: int | None = None) -> Path:
        return part_of(target, self._folder.path.name, epoch or self.epoch)

    def _earlier_parts(self, target: Path) -> list[Path]:
        """Return the names that earlier drivers have given to an output while they wrote it."""
        epochs = epochs_of(self._folder, self._folder.epoch, self._folder.journal)
        return [self._part_of(target, epoch) for epoch in epochs if epoch < self.epoch]

    def _new_output(self, target: Path) -> OrderedText | OrderedParts:
        part = self._part_of(target)
        if not self._spec.is_dataset:
            header = self._spec.header
            return OrderedText(part, self._rows_of, self._headers, with_header=header)
        # Not at the top: a job with text need not load what makes data sets.
        from daskprs._output.dataset.earlier_parts import EarlierParts
        from daskprs._output.dataset.manifest import made_by
        from daskprs._output.dataset.ordered_parts import OrderedParts
        from daskprs._output.dataset.part_attempt import sweep

        for one in self._earlier_parts(target):
            sweep(attempts_of(one))
        by = made_by(self._folder.path.name, self._fingerprint)
        earlier = None if self._earlier is None else EarlierParts(self._earlier, self._commits)
        return OrderedParts(
            part,
            self._spec,
            self._commits,
            self._rows_of,
            by,
            earlier,
            self._new_executor,
            self._check,
            self._uploads,
            self._warn,
        )

    def _recover(self, fingerprint: dict[str, Any], resumption: Resumption) -> Found:
        found = recover(self._folder, self._spec, fingerprint, self._target, resumption)
        self._commits = found.commits
        self.columns_before = found.columns
        self.spent_before = dict(found.spent)
        self.useful_before = found.commits.usage(np.arange(len(found.commits)))
        self._headers.take_over(found.commits)
        self._failed.take_over(found.given_up, borne_is_left=resumption.extends)
        self._failed_rows.take_over(found.failed_rows, run_again=found.runs_items)
        if found.whole_again:
            self._warn(found.whole_again)
        if found.published is not None:
            self.published = self._target
            self._earlier = found.published
            self._is_new = found.is_new
            self.published_bytes = found.published.size
            drop_spools(self._folder, found.published.target, found.published.epoch)
        return found

    # ---- writing ----

    def _publish(self, ordered: OrderedText | OrderedParts, target: Path) -> None:
        try:
            written = ordered.finish(self._commits)
            # The script, or another program, may have made it meanwhile. Before the record, with
            # which a resume may replace the file that has the name.
            is_dataset = self._spec.is_dataset
            check_output_file(target, overwrite=self._replaces, is_dataset=is_dataset)
            self._journal.add(*written.record(target))
            self._syncer.sync()
            # A network file system may give the lock of a host that was cut off to another driver.
            latest = latest_epoch(self._folder)
            if latest > self.epoch:
                msg = f"another driver has taken over {self._folder}: nothing is published here."
                raise JournalError(msg)
            if latest < self.epoch:
                msg = (
                    f"{self._folder.journal(self.epoch)} was removed while the job was at work: "
                    "nothing is published here. Start the job in a fresh folder."
                )
                raise JournalError(msg)
            with held_back():  # else the file could be there without a record
                ordered.put(target)
                self.published, self.published_bytes = target, written.size
                self._is_new, self.done = False, True
        except OSError as error:
            step = what_to_do(error)
            msg = f"the output cannot be written: {error}. {step[0].upper()}{step[1:]}"
            raise OutputError(msg) from error
        finally:
            with suppress(OSError) if self.done else nullcontext():
                ordered.close()  # the unfinished output, or what was replaced
        if self._spec.partition_by and self._spec.format == "parquet":
            from daskprs._output.rows.part_formats import hard_to_read

            parts: list[PublishedPart] = getattr(written, "parts", [])
            for sentence in hard_to_read(file.name for part in parts for file in part.files):
                self._warn(sentence)
        self._journal.add("published", str(target))
        with suppress(OutputError):  # the checksum shows that it is published
            self._syncer.sync()

    def _rows_of(self, source: int) -> Path:
        """Return the file from which rows are copied."""
        if source == PUBLISHED and self._target is not None:
            return self._target
        return self._commits.spool(source, self._folder.spools)
