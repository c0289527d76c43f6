"""The job behind a lazy collection: run by the first task that needs it, read by all others."""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._cluster.connect import outside_pool
from daskprs._cluster.task_host import (
    blind_workers,
    client_of_task,
    ended_with_task,
    warn_caller,
)
from daskprs._core.ending import JobStatus
from daskprs._folders.job_folder import JobFolder, for_other_users
from daskprs._folders.job_lock import has_begun, holder
from daskprs._folders.rows_seal import make_salt
from daskprs._inputs.collections.partition_table import TABLE, PartitionTable
from daskprs._job.frontend import Surface
from daskprs._job.parallel_run import ParallelRun
from daskprs._job.request import check_call
from daskprs._job.status import state_of
from daskprs._lazy.task_agents import TaskEnded
from daskprs._options.time_rules import NEVER
from daskprs._output.kept_rows import KeptPart, KeptRows
from daskprs._report.humanize import counted
from daskprs._system.atomic_file import whole_file
from daskprs._system.file_lock import held
from daskprs._system.seal import NO_KEY, SealKey
from daskprs.errors import (
    JobFolderError,
    JobFolderLocked,
    Option,
    OptionError,
    ParallelRunCanceled,
    worded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._folders.row_labels import Numbers
    from daskprs._job.request import CheckedCall
    from daskprs._lazy.result_form import ResultForm
    from daskprs._options.run_options import RunOptions

_log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5
"""Seconds between looks at a job folder in which another driver is at work."""


def _again(job_dir: Path, accept: str = "", **_: Any) -> str:
    """Return the next step after a job behind a collection has failed.

    There is none with a changed script: a collection of another script is another one.
    """
    if accept:
        return ""
    # Python's form of the option: no front end words this message later.
    given = str(Option("job_dir", str(job_dir)))
    return f"compute the collection again, or make the same call with {given}: only the rest runs"


LAZY = Surface(resume=_again)


@dataclass(frozen=True, eq=False)
class JobCall:
    """The data, the script and the options for the task of a job."""

    token: str
    """A digest of data, script and options. It names files and functions, not what they give."""
    call_id: str
    """An id of this call alone, which calls with the same token do not share."""
    data: Any
    script: CheckedScript
    archive: bytes
    """The files that the script imports from."""
    options: RunOptions
    job_dir: str
    count: int
    """Number of partitions of the result."""
    has_partitions: bool
    """Whether they are those of the data, which is a collection."""
    key: bytes | None = field(default=None, repr=False)
    """The key of the job, for digests of the values of environment variables."""
    rows_key: SealKey = NO_KEY
    """The key of the job's rows."""

    @property
    def folder(self) -> JobFolder:
        """The job folder."""
        return JobFolder(self.job_dir, self.rows_key)

    def __dask_tokenize__(self) -> str:
        """Return the id of this call, by which Dask tells it from others."""
        return self.call_id

    def checked(self, folder: JobFolder, client: Any, *, resumes: bool) -> CheckedCall:
        """Return the call of a job in its folder, on a cluster."""
        script = self.script
        if script.root is not None:
            copy = script.unpacked(self.archive, folder.source)
            script = replace(script, root=copy, original=script.root)
        # Where workers of several users share a folder, any of them goes on with the job.
        trust = resumes and self.options.shared
        options = self.options.replace(resume=resumes, trust=trust, progress=False)
        call = check_call(
            self.data,
            script,
            options,
            client=client,
            job_dir=folder.path,
            key=self.key,
            rows_key=self.rows_key,
        )
        return replace(call, may_be_empty=True)


class FinishedJob(NamedTuple):
    """A Completed job, as the tasks that read its rows find it."""

    job_dir: str
    bounds: Numbers
    """The first mini-batch of each partition of the result, and the end."""
    key: SealKey = NO_KEY
    """The key of the rows."""


def run_job(call: JobCall) -> FinishedJob:
    """Run the job behind a collection, unless it is Completed (a Dask task).

    A driver that is at work in the folder is waited for. A job that was interrupted, or has failed,
    is resumed; so is one with more failures than this call allows.

    Raise `OptionError` when workers do not see the job folder, `JobFolderError` when the folder has
    the rows of another call, and `ParallelRunFailed` when the job fails.
    """
    folder = call.folder
    with outside_pool():
        _claim(folder, call)
        if not _is_complete(folder, call.options):
            _refuse_unseen(folder)
        while not _is_complete(folder, call.options):
            if holder(folder) is not None:
                time.sleep(LOOK_EVERY_S)
                continue
            resumes = has_begun(folder)
            try:
                _run(call, folder, resumes=resumes)
                break
            except JobFolderLocked:
                time.sleep(LOOK_EVERY_S)
            except JobFolderError:
                if resumes or not has_begun(folder):
                    raise  # else another driver has begun the job meanwhile
    return FinishedJob(str(folder), _bounds(folder, call), call.rows_key)


def _run(call: JobCall, folder: JobFolder, *, resumes: bool) -> None:
    """Run the job, and cancel it if the task of this thread is cancelled."""
    run: ParallelRun | None = None
    is_cancelled = False

    def end() -> None:
        nonlocal is_cancelled
        is_cancelled = True
        if run is not None:
            run.cancel()

    try:
        with ended_with_task(end):
            checked = call.checked(folder, client_of_task(), resumes=resumes)
            # The batch job may be that of this worker: the task goes on elsewhere, and its job too.
            checked = replace(checked, options=checked.options.replace(deadline=NEVER))
            run = ParallelRun.begun(checked, ExitStack(), LAZY)
            if is_cancelled:
                run.cancel()
            failed = run.result().mini_batches.failed
            if failed:
                warn_caller(
                    f"map_batches: {counted(failed, 'mini-batch')} failed in the "
                    f"end, and the rows of the collection lack theirs. See {folder.failed}."
                )
    except ParallelRunCanceled as error:
        raise TaskEnded(str(error)) from error


def _claim(folder: JobFolder, call: JobCall) -> None:
    """Note whose rows the folder has; refuse one with other rows, and warn of those of a past call.

    The note is written under the lock of drivers, so that two calls do not take one new folder.
    """
    folder.refuse_files_in_the_way()
    if closed := folder.create(shared=call.options.shared):
        _log.warning(worded(closed))
    make_salt(folder, call.token)
    while not (folder.collection.exists() or has_begun(folder)):
        try:
            with held(folder.lock, f"the job folder {folder}"):
                if not (folder.collection.exists() or has_begun(folder)):
                    with whole_file(folder.collection) as file:
                        file.write(f"{call.token}\n{call.call_id}\n".encode())
        except JobFolderLocked:
            time.sleep(LOOK_EVERY_S)
    claim = folder.collection.read_text() if folder.collection.exists() else ""
    token, _, call_id = claim.partition("\n")
    if token != call.token:
        msg = (
            f"map_batches: the job folder {folder} has the rows of other data, of another script, "
            f"or of other options. Name another one by {Option('job_dir')}, or remove this one."
        )
        raise JobFolderError(msg)
    if call_id.strip() != call.call_id and has_begun(folder):
        made = datetime.fromtimestamp(folder.collection.stat().st_mtime, UTC)
        warn_caller(
            f"map_batches: the job folder {folder} has rows of an earlier call, of "
            f"{made:%Y-%m-%d %H:%M:%S} UTC, which are used as they are, even if the data has "
            "changed since. For new rows, remove that folder or leave out job_dir."
        )


def _is_complete(folder: JobFolder, options: RunOptions) -> bool:
    """Say whether all rows are there, but those of failures that the options allow."""
    if not has_begun(folder) or holder(folder) is not None:
        return False
    state = state_of(folder)
    if state.status != JobStatus.COMPLETED or state.result is None:
        return False
    mini_batches, items = state.result.mini_batches, state.result.items
    failed, most = mini_batches.failed, options.limits().allowed_failed_count
    return (
        (most == -1 or failed <= most)
        and 100 * failed <= options.allowed_failed_percent * mini_batches.total
        and (options.error_threshold == -1 or items.failed <= options.error_threshold)
    )


def _refuse_unseen(folder: JobFolder) -> None:
    blind = blind_workers(folder.seen(f"lazy.{secrets.token_hex(4)}"))
    if blind:
        msg = (
            f"map_batches: {', '.join(blind)} cannot see the job folder {folder}, where tasks read "
            f"the rows of the collection. Name a folder that all workers share by "
            f"{Option('job_dir')}, or run partitions in tasks of their own by "
            f"{Option('committed', value=False)}.{for_other_users(folder)}"
        )
        raise OptionError(msg)


def _bounds(folder: JobFolder, call: JobCall) -> Numbers:
    """Return which mini-batches each partition of the result has.

    Those of a partition of a collection, as the job has cut it; else an even share of all, for a
    Bag of paths, too.
    """
    if call.has_partitions:
        cuts = PartitionTable(folder.scratch / TABLE, {}).before
        if cuts:
            if len(cuts) < call.count:
                msg = f"{folder} has lost the cuts of partitions: remove it, and compute again."
                raise JobFolderError(msg)
            return np.cumsum([0, *(len(list(cuts[number].slices())) for number in sorted(cuts))])
    last = KeptRows.of(folder).stop
    return np.arange(call.count + 1) * last // call.count


def read_part(
    job: FinishedJob, result: ResultForm, number: int, columns: Sequence[Any] | None = None
) -> Any:
    """Return a partition of the rows that a job has committed (a Dask task).

    The `result` is what the collection announces. The columns are taken of frames; None: all.
    """
    part = KeptPart(*job.bounds[number : number + 2].tolist())
    with closing(KeptRows.of(JobFolder(job.job_dir, job.key)).pieces(part)) as pieces:
        return result.partition(pieces, number, columns)
