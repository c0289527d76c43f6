"""The handle of a job: in a thread of this process, of another process, or detached."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import logging
import sys
import threading
import time
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.supervision.pool import close_pools
from daskprs._core.ending import JobStatus
from daskprs._core.events import Counts
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun, holder, latest_epoch
from daskprs._job import detached
from daskprs._job.control import JobControl
from daskprs._job.frontend import arguments_to_resume
from daskprs._job.job import Job
from daskprs._job.request import read_call
from daskprs._job.result import RUNNING
from daskprs._job.status import state_of
from daskprs._options.client_rules import current_client
from daskprs._report.html_table import table_of
from daskprs._report.progress_bar import display_for
from daskprs._system.file_lock import held
from daskprs._system.scarcity import explain
from daskprs.errors import (
    AgentError,
    FramesCut,
    ParallelRunCanceled,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import ExitStack
    from os import PathLike
    from pathlib import Path

    import pandas as pd

    from daskprs._job.frontend import Surface
    from daskprs._job.request import CheckedCall
    from daskprs._job.result import ParallelRunResult
    from daskprs._report.progress_bar import Display

__all__ = ["ParallelRun", "RunProgress"]

LOOK_EVERY_S = 0.25
EXIT_S = 30.0
"""Seconds in which the jobs of an ending program are canceled."""
SHARE_OF_TIME = 0.2
"""Largest share of the time that `iter_batches` takes to look for rows."""
_log = logging.getLogger(__name__)


class RunProgress(NamedTuple):
    """The progress of a job.

    Attributes
    ----------
    mini_batches : Counts
        Mini-batches that have succeeded or failed in the end: `total`, `succeeded` and `failed`.
    items : Counts
        The same in rows (tables) or files.
    planned : int or None
        Number of all mini-batches of the job; None while it is unknown.
    running : int or None
        Number of mini-batches that processes work on; None for a job of another process that does
        not run.

    """

    mini_batches: Counts = Counts()
    items: Counts = Counts()
    planned: int | None = None
    running: int | None = None


class ParallelRun:
    """A job that runs or has ended.

    `daskprs.start` returns one. `ParallelRun.of` returns one for any job folder. All methods may
    be called from any thread. ``await run`` returns the result in a coroutine, as `result` does
    elsewhere; it raises `asyncio.CancelledError` for a job that was canceled. The job goes on when
    the task that awaits it is canceled.

    A job that `start` has begun without ``detach=True`` lives in this process: when the program
    ends before the job, the job is canceled, and a warning in the log says how to go on.
    """

    def __init__(self, job: _OwnJob | _OtherJob) -> None:
        self._job = job

    @classmethod
    def of(cls, job_dir: str | PathLike[str]) -> ParallelRun:
        """Return the handle of the job in a folder, whichever process runs it.

        Parameters
        ----------
        job_dir
            The job folder.

        Raises
        ------
        JobFolderError
            When the folder holds no job.

        """
        folder = JobFolder(job_dir)
        for own in list(_own):
            if own.folder.path == folder.path:
                return cls(own)
        read_call(folder)
        return cls(_OtherJob(folder))

    @classmethod
    def begun(
        cls, call: CheckedCall, ahead: ExitStack, surface: Surface | None = None
    ) -> ParallelRun:
        """Start a job in a thread, and return its handle.

        `ahead` holds what was started for the job before; it is closed when the job is over. The
        `surface` words the next steps.
        """
        # Dask takes the thread that imports it for the main thread: not that of the job.
        from daskprs._cluster.connect import leave_pool

        leave_pool()
        if call.folder.lock.exists():
            with held(call.folder.lock, f"the job folder {call.folder}"):
                pass  # else only the result would say that it is in use
        return cls(_OwnJob(call, ahead, surface))

    @property
    def job_dir(self) -> Path:
        """The job folder."""
        return self._job.folder.path

    @property
    def status(self) -> str:
        """``"Running"``, ``"Completed"``, ``"Failed"``, ``"Canceled"`` or ``"Interrupted"``.

        ``"Died"`` is an unfinished job of another process, whose driver has gone.
        """
        return self._job.status

    @property
    def progress(self) -> RunProgress:
        """The progress so far, as a `RunProgress`."""
        return self._job.progress

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the job, and return whether the job has ended.

        Ctrl-C ends the waiting, not the job.

        Parameters
        ----------
        timeout_s
            Seconds to wait. Default: no limit.

        Raises
        ------
        JobFolderError
            When the driver of another process has gone without recording an end.
        UsageError
            When the call would block the event loop that the job needs.

        """
        with FramesCut():
            return self._job.wait(timeout_s)

    def result(self, timeout_s: float | None = None) -> ParallelRunResult:
        """Wait for the end of the job, and return its result or raise it.

        Parameters
        ----------
        timeout_s
            Seconds to wait. Default: no limit.

        Raises
        ------
        ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `parallel_run`, and all that it raises before the first mini-batch.
        TimeoutError
            When the job is still running.

        """
        with FramesCut():
            if not self._job.wait(timeout_s):
                raise detached.still_running(self._job.folder, timeout_s)
            return self._job.result()

    def cancel(self) -> None:
        """Ask the job to end, as Ctrl-C does, and return at once; committed results are kept.

        A job whose output is being published completes.

        Raises
        ------
        JobFolderError
            When the job is another process's, and not detached.

        """
        self._job.cancel()

    def iter_batches(self) -> Iterator[pd.DataFrame | str]:
        """Yield the committed rows of each mini-batch, in input order, while the job runs.

        A mini-batch without rows yields nothing, and a mini-batch that runs delays those behind
        it. Rows are compared with their checksums. The end is that of the job: a Failed or
        Canceled one raises its error after the last rows in order.

        Yields
        ------
        pandas.DataFrame or str
            A frame, with rows numbered from 0, where rows are kept with their types (no
            `output_dir`, or ``keep_rows=True``); else the lines of the output file, without the
            header.

        Raises
        ------
        OptionError
            When the job keeps no rows (``output_action="summary_only"``).
        ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
            As by `result`.

        """
        from daskprs._output.committed_rows import CommittedRows

        rows = CommittedRows(self._job.folder, self._job.epochs_before)
        pause_s, has_ended = 0.0, False
        while not has_ended:
            with FramesCut():
                has_ended = self._job.wait(pause_s)
            began_s = time.monotonic()
            new = rows.new(is_complete=has_ended and self._job.is_complete)
            pause_s = max(LOOK_EVERY_S, (time.monotonic() - began_s) / SHARE_OF_TIME)
            yield from new
        with FramesCut():
            self._job.result()

    def __await__(self) -> Generator[Any, None, ParallelRunResult]:
        """Return the result in a coroutine."""
        return self._awaited().__await__()

    async def _awaited(self) -> ParallelRunResult:
        await self._job.over()
        try:
            with FramesCut():
                return self._job.result()
        except ParallelRunCanceled as error:
            # A KeyboardInterrupt in a task would end the event loop.
            raise asyncio.CancelledError(str(error)) from error

    def __repr__(self) -> str:
        """Return the status and the folder."""
        return f"<daskprs run {self.status}: {self.job_dir}>"

    def _repr_html_(self) -> str:
        """Return status, progress and folders as a table, for notebooks."""
        job, progress = self._job, self.progress
        done, planned = progress.mini_batches, progress.planned
        of_all = "" if planned is None else f" of {planned:,}"
        failed = f", {done.failed:,} failed" if done.failed else ""
        running = f", {progress.running:,} running" if progress.running else ""
        rows = [
            ("mini-batches", f"{done.succeeded:,}{of_all} succeeded{failed}{running}"),
            ("logs", str(job.folder.logs)),
            ("job", str(job.folder)),
        ]
        return table_of(f"daskprs run {self.status}", rows)


class _OwnJob:
    """A job in a thread of this process."""

    def __init__(self, call: CheckedCall, ahead: ExitStack, surface: Surface | None) -> None:
        self.folder = call.folder
        self.epochs_before = latest_epoch(call.folder)
        """Number of drivers that have worked in the folder before this one."""
        self._job_id = call.job_id
        self._client = current_client() if call.client is None else call.client
        self._control = JobControl()
        self._result: ParallelRunResult | None = None
        self._error: BaseException | None = None
        self._over: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._over.set_running_or_notify_cancel()  # no waiter can cancel it
        job = Job(call, surface, self._control, _display_of(call))
        work = partial(self._work, job, ahead)
        within = contextvars.copy_context()  # the current client is a variable of it
        self._thread = threading.Thread(
            target=within.run, args=(work,), name="daskprs-run", daemon=True
        )
        _own.add(self)
        try:
            self._thread.start()
        except RuntimeError as error:
            _own.discard(self)
            msg = f"the job cannot be started: {error}. {explain(error)}"
            raise AgentError(msg.rstrip()) from error

    def _work(self, job: Job, ahead: ExitStack) -> None:
        try:
            with ahead:
                self._result = job.run()
        except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
            self._error = error
        _own.discard(self)
        self._over.set_result(None)

    @property
    def status(self) -> str:
        if not self._over.done():
            return RUNNING
        result = getattr(self._error, "result", None) or self._result
        return JobStatus.FAILED.value if result is None else str(result.status)

    @property
    def is_complete(self) -> bool:
        return self._result is not None

    @property
    def progress(self) -> RunProgress:
        standing = self._control.standing
        if standing is None:
            return RunProgress(running=0)
        _, succeeded, failed = standing.mini_batches
        done = Counts(succeeded + failed, succeeded, failed)
        return RunProgress(done, standing.items, standing.planned, standing.running)

    def wait(self, timeout_s: float | None) -> bool:
        if not self._over.done() and getattr(self._client, "asynchronous", False):
            msg = (
                "this call blocks the event loop of its thread, and the job needs that loop. Write "
                "await run, or make the call in another thread: await asyncio.to_thread(run.wait)."
            )
            raise UsageError(msg)
        return self.join(timeout_s)

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end, and for the end of the thread."""
        concurrent.futures.wait([self._over], timeout_s)
        if not self._over.done():
            return False
        self._thread.join()
        return True

    async def over(self) -> None:
        await asyncio.wrap_future(self._over)

    def result(self) -> ParallelRunResult:
        if self._result is None:
            error = self._error or AssertionError()
            # Of a copy, the job does not keep the frames of who asks, and the files that they use.
            raise copy(error) if hasattr(error, "result") else error
        return self._result

    def cancel(self) -> None:
        self._control.cancel()

    def end_with_program(self, until_s: float) -> None:
        """Wait for the end of a job that was canceled, and say what became of the job."""
        if self.join(max(0.0, until_s - time.monotonic())):
            if self._error is not None:
                _log.warning("The program has ended before its job. %s", self._error)
            return
        close_pools(self._job_id)
        _log.warning(
            "The program has ended before its job in %s. The job did not end within %g s; its "
            "processes are killed. To go on, with the same script and input: %s",
            *(self.folder, EXIT_S, arguments_to_resume(self.folder.path)),
        )


class _OtherJob:
    """A job of another process, or a detached one, as its folder shows it."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        detachment = detached.Detachment.read(folder) if folder.detached.exists() else None
        self.epochs_before = 0 if detachment is None else detachment.epochs_before
        self._lookout = detached.Lookout(folder, detachment)
        self._result: ParallelRunResult | None = None

    @property
    def status(self) -> str:
        if latest_epoch(self.folder) <= self.epochs_before or not has_begun(self.folder):
            return RUNNING  # it was submitted, or its input is prepared
        return str(state_of(self.folder).status)

    @property
    def is_complete(self) -> bool:
        return self._result is not None and self._result.status == JobStatus.COMPLETED

    @property
    def progress(self) -> RunProgress:
        if not has_begun(self.folder):
            return RunProgress()
        state = state_of(self.folder)
        running = None if state.now is None else state.now.standing.running
        return RunProgress(state.mini_batches, state.items, state.planned, running)

    def wait(self, timeout_s: float | None) -> bool:
        self._result = self._result or self._lookout.wait(timeout_s)
        return self._result is not None

    async def over(self) -> None:
        while not await asyncio.to_thread(self.wait, LOOK_EVERY_S):
            pass

    def result(self) -> ParallelRunResult:
        if self._result is None:
            raise AssertionError
        return detached.told(self._result, self.folder)

    def cancel(self) -> None:
        if self.folder.detached.exists() or holder(self.folder) is not None:
            detached.cancel(self.folder.path)


def _display_of(call: CheckedCall) -> Display | None:
    """Return what shows a job, with its name beside others; None where nothing is to be shown.

    The cell that starts it may end before the thread of the job shows anything, and has no output
    then.
    """
    is_shown = call.options.progress is not False or call.options.show_output
    return display_for(sys.stderr, call.folder, call.folder.path.name) if is_shown else None


_own: set[_OwnJob] = set()
"""The jobs of this process that have not ended."""


def _end_own() -> None:
    """Cancel the jobs of a program that ends: nothing can wait for them any more."""
    until_s = time.monotonic() + EXIT_S
    jobs = list(_own)
    for job in jobs:
        job.cancel()
    for job in jobs:
        job.end_with_program(until_s)


# The functions of atexit are called too late: no thread pool takes work any more.
getattr(threading, "_register_atexit", atexit.register)(_end_own)
