"""The Dask task that carries the driver of a detached job, as a process beside its worker.

When the task's worker goes, Dask runs the task again elsewhere, and the driver resumes the job
there. A worker that does not see the job folder passes the task to another worker.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distributed import Reschedule, fire_and_forget, get_worker
from distributed.core import Status

from daskprs._cluster.own_tasks import unannotated
from daskprs._cluster.thread_pool import leave_the_threads
from daskprs._cluster.worker_answers import answers_of
from daskprs._core.ending import EXIT_CANCELED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from daskprs._core.outcomes import signal_of
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import holder
from daskprs._system.batch_system import SLURM
from daskprs._system.child_process import ChildProcess, bound
from daskprs._system.interrupts import cancelled_by
from daskprs._system.regular_files import append_regular, read_regular
from daskprs.errors import DaskprsError, JobFolderError

if TYPE_CHECKING:
    from distributed import Client, Worker

    from daskprs._system.hidden_values import HiddenValues

DRIVER = "daskprs._cli.driver_process"
LOOK_EVERY_S = 0.25
HAND_ON_S = 1.0
"""Seconds that a worker without the job folder waits before it passes the task on."""
ENDS = (0, EXIT_USAGE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_CANCELED)
"""Exit codes of a driver that has reported why it ended; any other code is a death."""
DEATHS_BORNE = 5
STAYING = (Status.running, Status.paused)


def carry(job_dir: str, task: str, unwritten: HiddenValues) -> int:
    """Run the driver, again after a death, and return its exit code.

    The driver reads from its stdin what is `unwritten`.
    """
    worker = get_worker()
    # The leases of the carried job may need this very thread.
    leave_the_threads()
    folder = JobFolder(job_dir)
    if not folder.detached.exists():
        time.sleep(HAND_ON_S)
        raise Reschedule
    for _ in range(DEATHS_BORNE):
        code = _drive(folder, worker, task, unwritten.get("told", "").encode())
        if code in ENDS:
            return code
        with append_regular(folder.driver_output) as output:
            output.write(
                f"daskprs: the driver ended with {code}{signal_of(code)}. It is started again.\n"
            )
    msg = f"the driver of {folder} has died {DEATHS_BORNE} times on {worker.address}"
    raise DaskprsError(msg)


def submit_driver(client: Client, folder: JobFolder, task: str, unwritten: HiddenValues) -> None:
    """Submit the task, independently of this client, with what the job folder does not keep."""
    with unannotated():
        fire_and_forget(client.submit(carry, str(folder), task, unwritten, key=task, pure=False))


def carries(client: Client, task: str) -> bool:
    """Say whether the scheduler still knows the task."""
    return bool(client.run_on_scheduler(_knows, task=task))


def who_sees(client: Client, folder: JobFolder) -> list[str]:
    """Return the addresses of the workers that see the job folder."""
    path, identity = str(folder.detached), read_regular(folder.detached)
    seen, _ = answers_of(client, _sees, path, identity)
    return [worker for worker, sees in seen.items() if sees]


def _sees(path: str, content: bytes) -> bool:
    try:
        return read_regular(Path(path)) == content
    except (OSError, JobFolderError):
        return False


def _knows(task: str, dask_scheduler: object = None) -> bool:
    return task in dask_scheduler.tasks  # type: ignore[attr-defined]


def _drive(folder: JobFolder, worker: Worker, task: str, told: bytes) -> int:
    """Run one driver; it ends with this worker, and with the task."""
    folder.driver_output.parent.mkdir(parents=True, exist_ok=True)
    # The driver goes on elsewhere when the batch job of this worker ends.
    variables = {**os.environ, **cancelled_by(folder.cancel)}
    variables.pop(SLURM, None)
    with append_regular(folder.driver_output) as output:
        # This thread stays while the driver runs, as `bound` demands.
        command = bound(DRIVER, "detached", str(folder))
        driver = ChildProcess(command, output, told=told, env=variables)
    try:
        is_canceled = False
        while (code := driver.poll()) is None:
            if worker.status not in STAYING or not _is_wanted(worker, task):
                raise Reschedule
            if not is_canceled and folder.cancel.exists() and holder(folder) is not None:
                is_canceled = True
                driver.cancel()
            time.sleep(LOOK_EVERY_S)
    finally:
        driver.kill()
    return code


def _is_wanted(worker: Worker, task: str) -> bool:
    state = worker.state.tasks.get(task)
    return state is not None and state.state in ("executing", "long-running")
