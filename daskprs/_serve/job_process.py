"""The process of a job of the service: ``python -m daskprs._serve.job_process FOLDER TURN LOCK``.

It fetches the files of the job, runs the job, in itself or as another user, and records its end.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._core.ending import EXIT_CANCELED, EXIT_FAILED
from daskprs._serve.job_user import JobUser
from daskprs._serve.served_job import ServedJob
from daskprs._serve.web_input import FetchError
from daskprs._system.interrupts import cancelled_by
from daskprs._system.linux import adopt_orphans
from daskprs._system.standard_streams import to_stderr
from daskprs._system.supervised_process import end_all

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(folder: str, turn: str, lock: str, user: str | None = None) -> int:
    """Run a job in this process, or as another user below it, and record its exit code."""
    os.set_inheritable(int(lock), False)  # no child inherits the lock
    os.pwrite(int(lock), str(os.getpid()).encode(), 0)
    os.chdir(folder)
    job = ServedJob.read(Path(folder))
    if job is None or job.turn != int(turn):
        return EXIT_FAILED
    os.environ.update(cancelled_by(job.cancel_file))
    if not job.is_wanted():
        code: int | None = EXIT_CANCELED
    elif not _fetched(job):
        code = EXIT_FAILED
    elif user is None:
        code = _exit_code_of(job.words)
    else:
        code = _exit_code_as(JobUser(*json.loads(user)), job)
    if code is None:  # it was killed, so the job died without an end
        return EXIT_FAILED
    job.write_end(code)
    return code


def _fetched(job: ServedJob) -> bool:
    """Fetch the files of a job, and say whether all are there."""
    for file in job.asked.web:
        try:
            file.fetch()
        except (FetchError, OSError) as error:
            to_stderr(f"daskprs: {file.shown} cannot be fetched: {error}.")
            return False
    return True


def _exit_code_as(user: JobUser, job: ServedJob) -> int | None:
    """Run a job as another user, and return its exit code; None if a signal has killed it."""
    adopt_orphans()
    child: subprocess.Popen[bytes] | None = None

    def pass_on(*_: object) -> None:
        if child is not None:
            child.send_signal(signal.SIGKILL if job.is_overdue() else signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    program = [sys.executable, "-P", "-m", *job.words]
    options = user.options(user.environment(os.environ, job.home), job.job.path)
    child = subprocess.Popen(program, stdin=subprocess.DEVNULL, **options)  # noqa: S603 - our own, or the operator's
    if not job.is_wanted():  # the signal may have come before there was a child
        child.terminate()
    code = child.wait()
    end_all()
    return code if code >= 0 else None


def _exit_code_of(words: Sequence[str]) -> int:
    """Run a module, as ``python -m`` does, and return its exit code."""
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        to_stderr(f"{end.code}")
        return 1
    except KeyboardInterrupt:
        return EXIT_CANCELED
    except BaseException:  # noqa: BLE001 - any error is shown, and has an exit code
        to_stderr(traceback.format_exc().rstrip())
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
