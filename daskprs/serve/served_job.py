"""One job of the service: a folder from which any process can read the job's whole state.

The job's process is ``python -m daskprs.serve.served_job FOLDER TURN LOCK``. The process needs
nothing from the service, which may stop and start meanwhile.

::

    <folder>/request.json     the accepted request
    <folder>/ticket.<turn>    its place in the queue; each resume is another turn
    <folder>/process.<turn>   the pid of the job's process, which locks it while it lives
    <folder>/cancel.<turn>    a caller asked to end it
    <folder>/ended.<turn>     how its process ended
    <folder>/driver.txt       what its process wrote
    <folder>/job/             the job folder
    <folder>/output/          its output, unless the caller said where
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import runpy
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.ending import EXIT_CANCELED, EXIT_FAILED
from daskprs.errors import JobFolderError
from daskprs.folders.job_folder import JobFolder
from daskprs.folders.job_lock import has_begun
from daskprs.system.atomic_file import whole_file
from daskprs.system.child_process import ChildProcess
from daskprs.system.file_lock import holder_of
from daskprs.system.regular_files import open_regular, opened, read_json, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daskprs.job.status import JobState

FIRST_FREE_FD = 3
"""The lowest descriptor that is not a standard stream."""
PATIENCE_S = 60.0
"""Seconds after a cancel before a second cancel kills the job's process."""
TOLD_BYTES = 4000
NUMBER_BYTES = 64
"""Upper bound for the size of a file that holds one number."""
_TICKET = re.compile(r"ticket\.([1-9][0-9]{0,8})")
READ_ONE_PART_OF = 20
"""Spend at most 1/READ_ONE_PART_OF of the time on reading the same journal again."""
QUEUED, RUNNING, CANCEL_REQUESTED = "Queued", "Running", "CancelRequested"
COMPLETED, FAILED, CANCELED = "Completed", "Failed", "Canceled"
LIVE = {QUEUED, RUNNING, CANCEL_REQUESTED}
STATUS_OF_CODE = {0: COMPLETED, EXIT_CANCELED: CANCELED}


class RequestedJob(NamedTuple):
    """The request of a caller."""

    name: str
    deployment: str
    created: str
    """The time of the request, in UTC."""
    caller: str
    """The name of the token."""
    inputs: dict[str, dict[str, str]]
    outputs: dict[str, dict[str, str]]
    overrides: dict[str, Any]
    words: list[str]
    """The Python module that the job's process runs, and its arguments."""
    output_dir: str
    labels: dict[str, str]
    """Labels for people, without effect on the job."""


class ServedStatus(NamedTuple):
    """The status of a job, by its Azure name."""

    status: str
    died: bool = False
    """Whether the process ended without recording an exit code; the job can be resumed."""


class ServedJob:
    """A job folder of the service, which exists, and the request in it."""

    def __init__(self, folder: Path, asked: RequestedJob) -> None:
        self.folder = folder
        self.asked = asked
        self.job = JobFolder(folder / "job")
        self._reading = threading.Lock()
        """Held while the job folder is read, so that two requests do not read it twice."""
        self._state: JobState | None = None
        self._look_again_s = 0.0
        self._end: tuple[int, ServedStatus | None] = 0, None
        """The last turn whose end is known, and its status."""
        self.turn = max(
            (int(found[1]) for path in folder.iterdir() if (found := _TICKET.fullmatch(path.name))),
            default=0,
        )

    @classmethod
    def create(cls, folder: Path, asked: RequestedJob, number: int) -> ServedJob:
        """Make a job that waits for its turn; the job is on disk when this returns."""
        folder.mkdir(parents=True, mode=0o700)
        job = cls(folder, asked)
        job.queue(number)
        with whole_file(folder / "request.json") as file:
            file.write(json.dumps(asked._asdict()).encode())
        return job

    @classmethod
    def read(cls, folder: Path) -> ServedJob | None:
        """Return the job in a folder; None if none was accepted or the folder is half removed."""
        try:
            job = cls(folder, RequestedJob(**read_json(folder / "request.json")))
            is_whole = job.number > 0
        except (OSError, ValueError, TypeError, JobFolderError):
            return None
        return job if is_whole else None

    def queue(self, number: int) -> None:
        """Queue another turn, behind all jobs with a lower number."""
        with whole_file(self.folder / f"ticket.{self.turn + 1}") as file:
            file.write(str(number).encode())
        self.turn += 1
        self._look_again_s = 0.0

    @property
    def number(self) -> int:
        """The job's place in the queue."""
        return int(read_regular(self._of_turn("ticket"), NUMBER_BYTES))

    @property
    def driver_output(self) -> Path:
        """The file with the output of the job's process, over all turns."""
        return self.folder / "driver.txt"

    # ---- status ----

    def status(self) -> ServedStatus:
        """Return the status of this job; read the job folder only when needed."""
        return self.end or self.own_status() or self.end_in_folder()

    @property
    def end(self) -> ServedStatus | None:
        """The status of this turn if it is known to have ended."""
        turn, status = self._end
        return status if turn == self.turn else None

    def own_status(self) -> ServedStatus | None:
        """Return the status; None if only the job folder shows how the process ended."""
        turn = self.turn
        if self.is_alive():  # first: a process records its end before it releases the lock
            return ServedStatus(RUNNING if self.is_wanted() else CANCEL_REQUESTED)
        code = self.exit_code()
        if code is not None:
            status = ServedStatus(STATUS_OF_CODE.get(code, FAILED))
        elif self._was_started():
            return None
        elif self.is_wanted():  # the job folder shows an earlier turn
            return ServedStatus(QUEUED)
        else:
            status = ServedStatus(CANCELED)
        self._end = turn, status
        return status

    def end_in_folder(self) -> ServedStatus:
        """Return how the job ended by its job folder, for a process that recorded no exit code."""
        with self._reading:
            known = self.end
            if known is None:
                turn, state = self.turn, self._read_state()
                if state is not None and state.status in {COMPLETED, FAILED}:
                    known = ServedStatus(state.status)
                elif self.is_wanted():
                    known = ServedStatus(FAILED, died=True)
                else:
                    known = ServedStatus(CANCELED)
                self._end = turn, known
            return known

    def is_alive(self) -> bool:
        """Say whether the job's process lives, by a lock that the kernel frees at its end."""
        try:
            return holder_of(self._of_turn("process")) is not None
        except (FileNotFoundError, JobFolderError):
            return False

    def exit_code(self) -> int | None:
        """Return the exit code of the job's process; None when it has not recorded any."""
        try:
            return int(read_json(self._of_turn("ended"))["exit_code"])
        except (FileNotFoundError, ValueError, KeyError, TypeError, JobFolderError):
            return None

    def job_state(self, *, is_over: bool) -> JobState | None:
        """Return the state in the job folder; None while no job has begun in it.

        A journal of a million mini-batches takes seconds to read, so frequent requests receive the
        last state read, for a time in proportion. The journal of an ended job is read once.
        """
        with self._reading:
            if is_over and self._look_again_s != math.inf:
                self._state, self._look_again_s = self._read_state(), math.inf
            elif time.monotonic() >= self._look_again_s:
                self._state = self._read_state()
            return self._state

    def _read_state(self) -> JobState | None:
        from daskprs.job.status import state_of

        begun_s = time.thread_time()
        try:
            return state_of(self.job)
        except JobFolderError:
            return None
        finally:
            took_s = time.thread_time() - begun_s
            self._look_again_s = time.monotonic() + READ_ONE_PART_OF * took_s

    def last_words(self) -> str:
        """Return the end of the output of the job's process."""
        try:
            with open_regular(self.driver_output) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TOLD_BYTES))
                return file.read(TOLD_BYTES).decode(errors="replace").strip()
        except (OSError, JobFolderError):
            return ""

    def _was_started(self) -> bool:
        """Say whether a process was started: an empty process file means that none was."""
        try:
            return self._of_turn("process").stat().st_size > 0
        except FileNotFoundError:
            return False

    # ---- actions ----

    def start(self, environment: Mapping[str, str]) -> ChildProcess:
        """Start the job's process, which holds its lock from its first moment: it inherits it."""
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = opened(self._of_turn("process"), os.O_RDWR | os.O_CREAT, 0o600)
        lock = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        os.close(fd)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            program = [sys.executable, "-P", "-m", "daskprs.serve.served_job"]
            program += [str(self.folder), str(self.turn), str(lock)]
            with os.fdopen(opened(self.driver_output, append, 0o600), "ab") as output:
                process = ChildProcess(program, output, env=environment, pass_fds=[lock])
            os.pwrite(lock, str(process.pid).encode(), 0)  # the process writes it, too
        finally:
            os.close(lock)
        return process

    @property
    def words(self) -> Sequence[str]:
        """The Python module that the process of this turn runs, and its arguments.

        This reads the job folder, so only the job's own process calls it.
        """
        if self.turn > 1 and has_begun(self.job):
            _, command, deployment, *_ = (*self.asked.words, "", "", "")
            more = ["--deployment", deployment] if command == "invoke" else []
            return ["daskprs", "resume", str(self.job), *more]
        return self.asked.words

    def write_end(self, exit_code: int) -> None:
        """Record the exit code of the job's process."""
        with whole_file(self._of_turn("ended")) as file:
            file.write(json.dumps({"exit_code": exit_code, "at": time.time()}).encode())

    def cancel(self) -> None:
        """End the job, and keep its finished work.

        The cancel file is written first, so that a process that has not yet recorded its pid finds
        it.
        """
        wish = self._of_turn("cancel")
        again = wish.exists() and time.time() - wish.stat().st_mtime > PATIENCE_S
        if not wish.exists():
            wish.touch()
        with suppress(OSError, ValueError, OverflowError, JobFolderError):
            number = read_regular(self._of_turn("process"), NUMBER_BYTES)
            pidfd = os.pidfd_open(int(number))
            try:
                if self.is_alive():  # otherwise another process may have the pid by now
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL if again else signal.SIGTERM)
            finally:
                os.close(pidfd)

    def is_wanted(self) -> bool:
        """Say whether the job was not canceled."""
        return not self._of_turn("cancel").exists()

    def _of_turn(self, what: str) -> Path:
        return self.folder / f"{what}.{self.turn}"


def run(folder: str, turn: str, lock: str) -> int:
    """Run a job in this process, and record its exit code."""
    os.set_inheritable(int(lock), False)  # no child inherits the lock
    os.pwrite(int(lock), str(os.getpid()).encode(), 0)
    os.chdir(folder)
    job = ServedJob.read(Path(folder))
    if job is None or job.turn != int(turn):
        return EXIT_FAILED
    code = _exit_code_of(job.words) if job.is_wanted() else EXIT_CANCELED
    job.write_end(code)
    return code


def _exit_code_of(words: Sequence[str]) -> int:
    """Run a module, as ``python -m`` does, and return its exit code."""
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except KeyboardInterrupt:
        return EXIT_CANCELED
    except BaseException:  # noqa: BLE001 - any error is shown, and has an exit code
        traceback.print_exc()
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
