"""A driver as a process: ``python -m daskprs._cli.driver_process KIND PATH PARENT``.

KIND is ``detached`` for the detached job in the folder PATH, or the name of a plugin's driver. The
process ends with its parent, and otherwise with an exit code of the command line. Its stdin has, as
JSON, what no file has: values of environment variables, and the keys of the job.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daskprs import _plugins
from daskprs._cli.exit_codes import CODES, every_end, show
from daskprs._folders.job_folder import JobFolder
from daskprs._job.flags import flagged
from daskprs._job.frontend import Surface, command_to_resume
from daskprs._system.linux import die_with_parent
from daskprs._system.regular_files import read_regular
from daskprs._system.seal import SealKey
from daskprs._system.standard_streams import provide_streams
from daskprs.errors import (
    JobFolderError,
    JobFolderLocked,
    ParallelRunCanceled,
    ParallelRunFailed,
    ParallelRunInterrupted,
)

if TYPE_CHECKING:
    from daskprs._job.result import ParallelRunResult

PREDECESSOR_S = 120.0
"""Seconds to wait for a driver that is cut off from the cluster, and still holds the folder."""
AGAIN_S = 1.0


def drive_detached(path: str, told: dict[str, Any]) -> ParallelRunResult:
    """Resume the job in a folder; wait while another driver still holds the folder."""
    from daskprs._job.detached import Detachment
    from daskprs._job.job import Job
    from daskprs._job.request import check_kept_call

    folder = JobFolder(path, SealKey(bytes.fromhex(told.get("rows_key", ""))))
    detachment = Detachment.read(folder)
    until = time.monotonic() + PREDECESSOR_S
    while True:
        call = check_kept_call(
            folder,
            client=detachment.address,
            key=bytes.fromhex(told.get("key", "")) or None,
            environment_variables=told.get("variables"),
            # Whoever submitted the job, maybe another user than that of the worker, has checked it.
            **{"resume": True, **detachment.options, "trust": True},
        )
        try:
            return Job(call, Surface(flagged, command_to_resume)).run()
        except JobFolderLocked:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def is_recorded(folder: JobFolder, end: BaseException) -> bool:
    """Say whether a folder has this end of its job, and not that of an earlier run."""
    with suppress(OSError, JobFolderError):
        return read_regular(folder.job_result).decode(errors="replace") == f"{end}\n"
    return False


if __name__ == "__main__":
    kind, path, parent = sys.argv[1:]
    die_with_parent(int(parent))
    provide_streams()
    with every_end():
        drive = drive_detached if kind == "detached" else _plugins.own_part("drivers", kind)
        try:
            result = drive(path, json.loads(sys.stdin.buffer.read() or b"{}"))
        except (ParallelRunFailed, ParallelRunInterrupted, ParallelRunCanceled) as end:
            if kind != "detached" or not is_recorded(JobFolder(path), end):
                raise
            sys.exit(CODES[type(end)])
        if kind != "detached":  # its end is in the folder, and `attach` shows it
            show(result)
