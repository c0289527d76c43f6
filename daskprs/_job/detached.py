"""Detached jobs, whose driver the cluster carries: submit, wait and cancel from anywhere.

Any process that sees the job folder can read the job's state; the submitting process may end.
"""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.ending import JobStatus
from daskprs._folders.job_folder import JobFolder, for_other_users
from daskprs._folders.job_lock import has_begun, holder, latest_epoch
from daskprs._folders.rows_seal import clusters_key, make_salt, rows_key, variables_key
from daskprs._job.inline_call import refuse_inline
from daskprs._job.job_end import JobEnd, result_of
from daskprs._job.request import keep_call
from daskprs._job.result import RUNNING
from daskprs._job.status import state_of
from daskprs._job.way_on import way_elsewhere
from daskprs._options.run_options import TABLE
from daskprs._report.humanize import counted
from daskprs._system.atomic_file import write_json
from daskprs._system.file_lock import held
from daskprs._system.hidden_values import HiddenValues
from daskprs._system.private_folder import is_made_private, not_entered
from daskprs._system.regular_files import read_json, read_regular
from daskprs._system.user_key import keyed_digest
from daskprs.errors import (
    FramesCut,
    JobFolderError,
    JobFolderLocked,
    Option,
    OptionError,
    worded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from distributed import Client

    from daskprs._job.request import CheckedCall
    from daskprs._job.result import ParallelRunResult


class Detachment(NamedTuple):
    """The record of a driver that a cluster carries."""

    address: str
    """Address of the scheduler."""
    task: str
    """The key of the Dask task that carries the driver."""
    epochs_before: int
    """Number of drivers that had worked in the folder before this one was submitted."""
    options: dict[str, Any]
    """Options of this run that a saved call does not contain."""
    seal: list[str] | None = None
    """The digest of the address by a key of the user who has submitted the job."""

    @classmethod
    def read(cls, folder: JobFolder) -> Detachment:
        """Return the record of a job folder, in which a detached job was submitted."""
        try:
            return cls(**read_json(folder.detached))
        except FileNotFoundError:
            raise JobFolderError(_not_detached(folder)) from None
        except PermissionError:
            raise not_entered(folder.path) from None
        except (OSError, ValueError, TypeError) as error:
            msg = f"{folder.detached} cannot be read: {error}. Submit the job again."
            raise JobFolderError(msg) from error


LOOK_EVERY_S = 0.25
GAP_S = 10.0
"""Seconds without a driver at work after which `attach` asks the cluster for the driver's task."""
_log = logging.getLogger(__name__)
NOT_KEPT = tuple(name for name, row in TABLE.items() if row.is_of_one_run)


def submit(call: CheckedCall, *, survive: bool = True) -> ParallelRunResult:
    """Hand the driver of a job to its cluster, and return the result of a running job.

    With `survive`, the job must survive the death of the worker that carries the driver, so that
    several workers must see the job folder.
    """
    refuse_inline(call.options, "and a detached job has a driver of its own. Leave detach out")
    if objects := call.kept["objects"]:
        msg = (
            "a detached job has its driver on the cluster, which cannot be given "
            f"{'; '.join(objects)}. Give paths as data, and a file as script."
        )
        raise OptionError(msg)
    from daskprs._cluster.driver_task import submit_driver

    with _cluster(call.client) as client:
        call.folder.refuse_files_in_the_way()
        if closed := call.folder.create(shared=call.options.shared):
            _log.warning(worded(closed))
        with held(call.folder.lock, f"the job folder {call.folder}"):
            _refuse_another(client, call.folder)
            make_salt(call.folder)
            keep_call(call.folder, call.kept)
            call.folder.cancel.unlink(missing_ok=True)
            changed = call.options.changed()
            detachment = Detachment(
                client.scheduler.address,
                task=f"daskprs-{call.job_id}-driver",
                epochs_before=latest_epoch(call.folder),
                options={name: changed[name] for name in NOT_KEPT if name in changed},
                seal=keyed_digest(client.scheduler.address, clusters_key()),
            )
            write_json(call.folder.detached, detachment._asdict())
            _check_seen(client, call.folder, survive=survive)
            submit_driver(client, call.folder, detachment.task, _unwritten(call))
    return result_of(call, RUNNING)


def _refuse_another(client: Client, folder: JobFolder) -> None:
    """Refuse a folder of a detached job whose driver this cluster has yet to start."""
    from daskprs._cluster.driver_task import carries

    try:
        earlier = Detachment.read(folder)
    except JobFolderError:  # none was submitted, or its record is damaged: it is written anew
        return
    has_started = latest_epoch(folder) > earlier.epochs_before
    if not has_started and carries(client, earlier.task):
        msg = (
            f"a detached job was submitted in {folder}, and its cluster still carries it. Wait for "
            f"it by `daskprs attach {folder}`, or use another {Option('job_dir')}."
        )
        raise JobFolderLocked(msg)


def _unwritten(call: CheckedCall) -> HiddenValues:
    """Return what the driver needs of a call and no file has: it travels with the driver's task."""
    told: dict[str, Any] = {"rows_key": rows_key(call.folder).hex()}
    if variables := call.options.environment_variables:
        told |= {"variables": variables, "key": variables_key(call.folder).hex()}
    return HiddenValues(told=json.dumps(told))


def attach(
    job_dir: str | PathLike[str],
    timeout_s: float | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> ParallelRunResult:
    """Wait for the end of a detached job, and return its result or raise it.

    Parameters
    ----------
    job_dir
        The job folder.
    timeout_s
        Seconds to wait. Default: no limit.
    meanwhile
        A function to call several times a second, and once at the end.

    Raises
    ------
    ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
        As by `parallel_run`, when it is waited for.
    JobFolderError
        When the cluster no longer carries a driver and the job has recorded no end.
    TimeoutError
        When the job is still running.

    """
    folder = JobFolder(job_dir)
    lookout = Lookout(folder, Detachment.read(folder))
    result = lookout.wait(timeout_s, meanwhile or (lambda: None))
    if result is None:
        raise still_running(folder, timeout_s)
    with FramesCut():
        return told(result, folder)


def cancel(job_dir: str | PathLike[str]) -> None:
    """Ask a detached job to end, as Ctrl-C does; its committed results are kept.

    Raises
    ------
    JobFolderError
        When no detached job was submitted in the folder. The error names the process of a running
        job that is not detached.

    """
    folder = JobFolder(job_dir)
    Detachment.read(folder)
    folder.cancel.touch()


def _not_detached(folder: JobFolder) -> str:
    driver = holder(folder)
    if driver is None:
        return f"no detached job was submitted in {folder}: it has no {folder.detached.name}."
    if folder.collection.exists():
        return (
            f"the job in {folder} belongs to a lazy collection, and a worker of Dask drives it "
            f"({driver}). Interrupt the program that computes the collection: the worker's process "
            "serves others, too."
        )
    return (
        f"the job in {folder} is not detached, so that only its own process can cancel it: "
        f"{driver}. Send that process a SIGINT, as Ctrl-C or kill -INT does."
    )


class Lookout:
    """Looks into a job folder for the end of a job that is detached, or another process's."""

    def __init__(self, folder: JobFolder, detachment: Detachment | None) -> None:
        self._folder = folder
        self._detachment = detachment
        self._seen_s = time.monotonic()

    @classmethod
    def of(cls, folder: JobFolder) -> Lookout:
        """Return the lookout for the job in a folder."""
        return cls(folder, Detachment.read(folder) if folder.detached.exists() else None)

    def look(self) -> ParallelRunResult | None:
        """Return the recorded result; None while a driver is at work, or is to come.

        Raise `JobFolderError` when the driver has gone and recorded no result.
        """
        if self._detachment is None:
            return self._result_of_process()
        result = _ended(self._folder, self._detachment)
        if result is None:
            now = time.monotonic()
            if holder(self._folder) is not None:
                self._seen_s = now
            elif now > self._seen_s + GAP_S:
                _check_carried(self._folder, self._detachment)
                self._seen_s = now
        return result

    def wait(
        self, timeout_s: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> ParallelRunResult | None:
        """Return the recorded result; None if the seconds are over before.

        `meanwhile` is called several times a second, and once at the end.
        """
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while (result := self.look()) is None and (left_s := until_s - time.monotonic()) > 0:
            meanwhile()
            time.sleep(min(LOOK_EVERY_S, left_s))
        meanwhile()
        return result

    def _result_of_process(self) -> ParallelRunResult | None:
        if holder(self._folder) is not None:
            return None
        state = state_of(self._folder)
        if state.result is None and state.holder is None:
            way = way_elsewhere(self._folder) or f"daskprs resume {self._folder}"
            msg = (
                f"the job in {self._folder} has recorded no end, and its driver has gone. To go "
                f"on: {way}"
            )
            raise JobFolderError(msg)
        return state.result


def still_running(folder: JobFolder, timeout_s: float | None) -> TimeoutError:
    """Return the error of a job that takes longer than its waiter waits."""
    return TimeoutError(f"the job in {folder} is still running after {timeout_s} s.")


@contextmanager
def _cluster(given: Client | str | None) -> Iterator[Client]:
    """Yield a client of a cluster that outlives this process."""
    from daskprs._cluster.connect import connected, current_client

    if given is None and current_client() is None:
        msg = (
            "a detached job is driven on a cluster, and none is named. Give its address by "
            f"{Option('client')}."
        )
        raise OptionError(msg)
    with connected(given, threads=0) as client:
        if client.scheduler.address.startswith("inproc:"):
            msg = (
                "a detached job needs a cluster that lasts: this one ends with the process that "
                "it is in."
            )
            raise OptionError(msg)
        yield client


def _check_seen(client: Client, folder: JobFolder, *, survive: bool) -> None:
    from daskprs._cluster.driver_task import who_sees

    seen = who_sees(client, folder)
    if len(seen) >= (2 if survive else 1):
        return
    folder.detached.unlink()
    reached = f"the job folder {folder} can be reached by {counted(len(seen), 'worker')}"
    msg = f"a detached job: {reached} of the cluster"
    if seen:
        msg += (
            f", so that the job would die with that one. Put {Option('job_dir')} on a file system "
            f"that several see, or take the risk by {Option('survive', value=False)}."
        )
    else:
        msg += f". Put {Option('job_dir')} on a file system that the workers share."
    msg += for_other_users(folder)
    raise OptionError(msg)


def _ended(folder: JobFolder, detachment: Detachment) -> ParallelRunResult | None:
    """Return the result recorded by the submitted driver or a later one; None without one."""
    if latest_epoch(folder) <= detachment.epochs_before or holder(folder) is not None:
        return None
    return state_of(folder).result if has_begun(folder) else None


def _check_carried(folder: JobFolder, detachment: Detachment) -> None:
    """Refuse to wait for a driver that will never start."""
    why = _why_no_driver(folder, detachment)
    if why and _ended(folder, detachment) is None:
        msg = (
            f"the job in {folder} has recorded no end, and {why}. See {folder.driver_output}; go "
            f"on with it by: daskprs resume {folder}"
        )
        raise JobFolderError(msg)


def _why_no_driver(folder: JobFolder, detachment: Detachment) -> str:
    """Return why no driver is to be expected; an empty text if the cluster carries one."""
    from daskprs._cluster.connect import connected
    from daskprs._cluster.driver_task import carries

    # A scheduler answers with pickles: whoever wrote the address could run code in this process.
    is_own = detachment.seal == keyed_digest(detachment.address, clusters_key())
    if not is_own and not is_made_private(folder.path):
        return (
            f"its cluster, {detachment.address}, is not asked: another user may have named it, and "
            "its answers can run code"
        )
    try:
        with connected(detachment.address, threads=0) as client:
            is_carried = carries(client, detachment.task)
    except (OSError, OptionError) as error:
        return f"its cluster cannot be reached ({error})"
    return "" if is_carried else "its cluster does not know it any more"


def told(result: ParallelRunResult, folder: JobFolder) -> ParallelRunResult:
    """Return the result of a Completed job, and raise that of another one."""
    is_complete = result.status == JobStatus.COMPLETED
    message = "" if is_complete else read_regular(folder.job_result).decode(errors="replace")
    return JobEnd(result, message).told()
