"""The driver of a detached job, as a process.

Run as ``python -m daskprs.cli.detached_driver FOLDER PARENT``.

It goes on with the job in the folder, however far that is, and ends with the exit code of the
command line.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from daskprs.cli.exit_codes import every_end, show
from daskprs.cli.options import flagged
from daskprs.errors import JobFolderLocked
from daskprs.folders.job_folder import JobFolder
from daskprs.job.detached import Detachment
from daskprs.job.frontend import Surface, command_to_resume
from daskprs.job.job import Job
from daskprs.job.request import check_kept_call
from daskprs.system.linux import die_with_parent

if TYPE_CHECKING:
    from daskprs.job.result import ParallelRunResult

PREDECESSOR_S = 120.0
"""Seconds that a predecessor without a connection to the cluster may hold the folder."""
AGAIN_S = 1.0


def drive(folder: JobFolder) -> ParallelRunResult:
    """Go on with the job; wait while another driver still holds its folder."""
    detachment = Detachment.read(folder)
    until = time.monotonic() + PREDECESSOR_S
    while True:
        call = check_kept_call(
            folder, client=detachment.address, **{"resume": True, **detachment.options}
        )
        try:
            return Job(call, Surface(flagged, command_to_resume)).run()
        except JobFolderLocked:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    with every_end():
        show(drive(JobFolder(sys.argv[1])))
