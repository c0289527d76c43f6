"""The store of a job's results: the one writer of spool, journal and output file.

Rows are appended to the spool, then recorded in the journal; first commit wins. The death of any
process loses no commit, since both are handed to the system at once; a loss of power loses the
last second at most, since the spool is synced before the journal.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from daskprs.errors import OutputError
from daskprs.job_lock import held, latest_epoch
from daskprs.output.append_row import checksum_of, publish, write_ordered
from daskprs.output.commits import NO_REGION, Commit, CommitTable
from daskprs.output.journal import Journal
from daskprs.output.recovery import recover
from daskprs.output.spool import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.agent.messages import OutputSpec
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Extent, Outcome
    from daskprs.job_folder import JobFolder

SYNC_EVERY_S = 1.0


class ResultStore:
    """Keeps what a job's attempts made, once for each mini-batch.

    Parameters
    ----------
    folder
        The job folder, locked by this process.
    epoch
        The number of this driver's time in it.
    spec
        Which rows are kept: text, typed, both or none.
    target
        The output file; None when there is none.
    fingerprint
        What the results depend on, as JSON values.
    resume
        Go on with what is committed; without, the folder must hold no journal.
    overwrite
        Replace an existing output file, at the moment of publishing.

    Raises
    ------
    OutputError
        When the output file exists or its folder cannot be written.
    JobChanged
        When the journal was written for something else.

    """

    def __init__(
        self,
        folder: JobFolder,
        epoch: int,
        spec: OutputSpec,
        target: Path | None,
        fingerprint: dict[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._spec = spec
        self._target = target
        self._closing = ExitStack()
        self._commits = CommitTable()
        self._synced_s = 0.0
        self.published: Path | None = None
        """The output file, once it is there."""
        if target is not None:
            self._claim(target)
        try:
            self._open(fingerprint, resume=resume, overwrite=overwrite)
        except BaseException:
            self._closing.close()
            raise

    def recovered(self, mini_batch: MiniBatch) -> Commit | None:
        """Return what an earlier run has committed for a mini-batch."""
        return self._commits.find(mini_batch.identity)

    def commit(self, mini_batch: MiniBatch, outcome: Outcome, payload: memoryview) -> None:
        """Keep what an attempt made: `payload` is its text, then its typed rows.

        Raises
        ------
        OutputError
            When it cannot be written. What was committed before stays committed.

        """
        try:
            text, payload = self._keep(self._text, outcome.text, payload)
            typed, _ = self._keep(self._typed, outcome.typed, payload)
            header = outcome.header if outcome.header != "" else None
            commit = Commit(
                outcome.index,
                outcome.total,
                outcome.succeeded,
                outcome.empty,
                text,
                typed,
                header,
            )
            self._journal.add(["commit", mini_batch.identity, outcome.attempt, *commit])
            self._journal.write()
        except OSError as error:
            raise OutputError(_no_room(self._folder, error)) from error
        self._commits.add(commit, mini_batch.identity)

    def attempt_failed(self, mini_batch: MiniBatch, outcome: Outcome, *, final: bool) -> None:
        """Record a failed attempt, and with `final` that the mini-batch was given up."""
        failure = outcome.failure
        what = None if failure is None else [failure.kind, failure.message[:1000]]
        kind = "given up" if final else "failed"
        self._journal.add(
            [kind, mini_batch.identity, outcome.attempt, outcome.index, outcome.status, what]
        )

    def sync_if_due(self, now_s: float) -> None:
        """Sync about once a second: the spools first, so that the journal never says too much."""
        if now_s - self._synced_s >= SYNC_EVERY_S:
            self._synced_s = now_s
            self._sync()

    def publish(self) -> Path | None:
        """Write the output file, and return it; None when the job has none.

        Raises
        ------
        OutputError
            When it cannot be written, or headers differ. Nothing stands under its name then.

        """
        self._sync()
        target = self._target
        if target is None or self.published is not None:
            return self.published
        if latest_epoch(self._folder) != self._epoch:
            msg = f"another driver has taken over {self._folder}: nothing is published here."
            raise OutputError(msg)
        part = target.with_name(f".{target.name}.{self._folder.path.name}.part")
        size = write_ordered(self._folder, self._commits, part)
        self._journal.add(["publishing", str(target), size, checksum_of(part)])
        self._sync()
        publish(part, target)
        self._journal.add(["published", str(target)])
        self._sync()
        self.published = target
        for epoch in range(1, self._epoch + 1):
            self._folder.spool(epoch).unlink(missing_ok=True)
        return target

    def close(self) -> None:
        """Write what there is, and let go; the journal and the spools stay for a resume."""
        with suppress(OSError):  # a full disk has been told of, and closing must go on
            self._sync()
        self._closing.close()

    # ---- opening ----

    def _claim(self, target: Path) -> None:
        """Claim the output file, so that no other job writes it meanwhile."""
        claim = target.with_name(f".{target.name}.daskprs-claim")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._closing.enter_context(held(claim, f"the output file {target}"))
        except OSError as error:
            msg = f"output_dir: {target.parent} cannot be written: {error}."
            raise OutputError(msg) from error
        self._closing.callback(claim.unlink, missing_ok=True)

    def _open(self, fingerprint: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        if resume:
            found = recover(self._folder, self._spec, fingerprint, self._target)
            self._commits, self.published = found.commits, found.published
        target = self._target
        if target is not None and target.exists() and not (overwrite or self.published):
            msg = (
                f"the output file {target} exists. Use another output_dir or "
                "append_row_file_name, or overwrite=True."
            )
            raise OutputError(msg)
        self._journal = Journal(self._folder.journal(self._epoch))
        self._closing.callback(self._journal.close)
        self._journal.add(["job", fingerprint])
        self._journal.write()
        self._text = self._spool(self._folder.spool(self._epoch), wanted=self._spec.text)
        self._typed = self._spool(self._folder.typed_spool(self._epoch), wanted=self._spec.typed)

    def _spool(self, path: Path, *, wanted: bool) -> Spool | None:
        if not wanted:
            return None
        spool = Spool(path, self._epoch)
        self._closing.callback(spool.close)
        return spool

    # ---- writing ----

    def _keep(
        self, spool: Spool | None, extent: Extent | None, payload: memoryview
    ) -> tuple[Any, memoryview]:
        if spool is None or extent is None:
            return NO_REGION, payload
        here = 0 if extent.file else extent.length
        return spool.append(extent, payload[:here]), payload[here:]

    def _sync(self) -> None:
        try:
            for spool in (self._text, self._typed):
                if spool is not None:
                    spool.sync()
            self._journal.sync()
        except OSError as error:
            raise OutputError(_no_room(self._folder, error)) from error


def _no_room(folder: JobFolder, error: OSError) -> str:
    free = shutil.disk_usage(folder.path).free
    return (
        f"results cannot be written to {folder}: {error} ({free >> 20} MiB are free). What was "
        "committed is kept: make room, and resume the job."
    )
