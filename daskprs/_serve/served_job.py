"""One job of the service: a folder from which any process can read the job's whole state.

The job's process is `daskprs._serve.job_process`. It needs nothing from the service, which may stop
and start meanwhile.

::

    <folder>/request.json     the accepted request
    <folder>/ticket.<turn>    its place in the queue, and the size of driver.txt before this turn;
                              each resume is another turn
    <folder>/process.<turn>   the pid of the job's process, which locks it while it lives
    <folder>/cancel.<turn>    a caller asked to end it
    <folder>/ended.<turn>     how its process ended, and the mark of the job folder then
    <folder>/driver.txt       what its process wrote
    <folder>/job/             the job folder
    <folder>/output/          its output, unless the caller said where
    <folder>/fetched/         files from the web that are its input
    <folder>/home/            the home of its user, if that is another one
    <folder>/daskprs-results/ the results of a pipeline's steps, for a resume

Where jobs run as another user, the last four belong to that user, and all else to the service. The
job's process keeps the rights of the service. It starts the job as a process of the user, waits for
it, and ends what it leaves behind. The user can enter the folder as long as the job runs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from daskprs._core.ending import EXIT_CODES
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun, latest_epoch
from daskprs._serve.web_input import WebFile  # noqa: TC001 - pydantic reads the types
from daskprs._system.atomic_file import sync_folder, whole_file
from daskprs._system.child_process import ChildProcess
from daskprs._system.disk_space import FULL
from daskprs._system.file_lock import holder_of, lock_now
from daskprs._system.regular_files import open_unlinked, opened, read_json, read_regular
from daskprs.azure._pipeline_folder import RECORD, PipelineFolder
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._job.status import JobState
    from daskprs._serve.job_user import JobUser

FIRST_FREE_FD = 3
"""The lowest descriptor that is not a standard stream."""
ALONE = {"DASK_DASKPRS__REPORT": "never"}
"""Variable by which a job starts no process that would outlive it: the service knows its own."""
PATIENCE_S = 60.0
"""Seconds after a cancel before a second cancel kills the job's process."""
TOLD_BYTES = 4000
NO_ROOM = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, *FULL}
"""Temporary errors: the system has no room for another process, descriptor or file."""
MOST_NUMBER = 10**15
"""No ticket has a higher number: a job that was forged must not use up the numbers."""
MOST_MARK = 1 << 63
"""No mark is higher: Python makes no text of a number with thousands of digits."""
NUMBER_BYTES = 64
"""Upper bound for the size of a file that holds one number."""
_TICKET = re.compile(r"ticket\.([1-9][0-9]{0,8})")
LABELS = {"displayName", "experimentName", "description"}
READ_ONE_PART_OF = 20
"""Spend at most 1/READ_ONE_PART_OF of the time on reading the same journal again."""
QUEUED, RUNNING, CANCEL_REQUESTED = "Queued", "Running", "CancelRequested"
COMPLETED, FAILED, CANCELED = "Completed", "Failed", "Canceled"
INTERRUPTED = "Interrupted"
LIVE = {QUEUED, RUNNING, CANCEL_REQUESTED}
STATUS_OF_CODE = {code: str(status) for status, code in EXIT_CODES.items()}


class SentRequest(NamedTuple):
    """The identity of a request that a client may send several times: each gives the same job."""

    caller: str
    id: str
    """The client's own name for the request."""
    digest: str
    """The checksum of the request's content."""


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
    tags: dict[str, str]
    places: dict[str, bool]
    """The places that the caller named for output, and whether each is a file."""
    web: list[WebFile]
    """The files that are fetched before the job starts."""
    request: SentRequest | None = None


_REQUEST = TypeAdapter(RequestedJob)


class ServedStatus(NamedTuple):
    """The status of a job, by its Azure name."""

    status: str
    died: bool = False
    """Whether the process ended without recording an exit code; the job can be resumed."""
    reason: str = ""
    """Why the job failed, if a process went on with it that is not of the service."""


class ServedJob:
    """A job folder of the service, which exists, and the request in it."""

    def __init__(self, folder: Path, asked: RequestedJob) -> None:
        self.folder = folder
        self.asked = asked
        self.job = JobFolder(folder / "job")
        self._reading = threading.Lock()
        """Held while the job folder is read, so that only one request waits for it."""
        self._state: JobState | None = None
        self._look_again_s = 0.0
        self._whole_turn: int | None = None
        """The turn at whose end the state was read."""
        self._end: tuple[int, ServedStatus | None, int | None] = 0, None, None
        """The last turn whose end is known, its status, and the mark of the job folder then."""
        self.turn = max(
            (int(found[1]) for path in folder.iterdir() if (found := _TICKET.fullmatch(path.name))),
            default=0,
        )

    @classmethod
    def create(cls, folder: Path, asked: RequestedJob, number: int) -> ServedJob:
        """Make a job that waits for its turn; the job is on disk when this returns."""
        folder.mkdir(parents=True, mode=0o700)
        try:
            job = cls(folder, asked)
            job.queue(number)
            with whole_file(folder / "request.json") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(asked._asdict()).encode())
            sync_folder(folder.parent)
        except BaseException:  # what is not accepted must not run after a restart
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return job

    @classmethod
    def read(cls, folder: Path) -> ServedJob | None:
        """Return the job in a folder; None if none was accepted or the folder is half removed."""
        try:
            asked = _REQUEST.validate_json(read_regular(folder / "request.json"))
            job = cls(folder, asked)
            is_own = asked.name == folder.name and asked.labels.keys() <= LABELS
            is_whole = is_own and 0 < job.number < MOST_NUMBER
        except (OSError, ValueError, RecursionError, JobFolderError):
            return None
        return job if is_whole else None

    def queue(self, number: int) -> None:
        """Queue another turn, behind all jobs with a lower number."""
        ticket = self.folder / f"ticket.{self.turn + 1}"
        said_bytes = 0
        with suppress(FileNotFoundError):
            said_bytes = self.driver_output.lstat().st_size
        try:
            with whole_file(ticket) as file:
                file.write(f"{number} {said_bytes}".encode())
        except BaseException:  # what is not accepted must not run after a restart
            with suppress(OSError):
                ticket.unlink(missing_ok=True)
            raise
        self.turn += 1
        self._look_again_s = 0.0

    @property
    def number(self) -> int:
        """The job's place in the queue."""
        return self._ticket()[0]

    def _ticket(self) -> tuple[int, int]:
        """Return the numbers in the ticket of this turn."""
        number, said_bytes = read_regular(self._of_turn("ticket"), NUMBER_BYTES).split(b" ")
        return int(number), int(said_bytes)

    @property
    def driver_output(self) -> Path:
        """The file with the output of the job's process, over all turns."""
        return self.folder / "driver.txt"

    @property
    def run(self) -> PipelineFolder | None:
        """The folder of the run of a pipeline; None before it has begun, and for a model."""
        path = self.job.path / self.asked.name
        return PipelineFolder(path) if os.path.exists(path / RECORD) else None  # noqa: PTH110 - no error of the system may fail a request

    # ---- status ----

    @property
    def end(self) -> ServedStatus | None:
        """The status of this turn if it is known to have ended."""
        turn, status, mark = self._end
        return status if turn == self.turn and not self._went_on(mark) else None

    def own_status(self) -> ServedStatus | None:
        """Return the status; None if only the job folder shows how the process ended."""
        turn = self.turn
        if self.is_alive():  # first: a process records its end before it releases the lock
            return ServedStatus(RUNNING if self.is_wanted() else CANCEL_REQUESTED)
        code, mark = self._ended()
        if self._went_on(mark) or (code is None and self._was_started()):
            return self._of_others()
        if code is not None:
            status = ServedStatus(STATUS_OF_CODE.get(code, FAILED))
        elif self.is_wanted():  # the job folder shows an earlier turn
            return ServedStatus(QUEUED)
        else:
            status = ServedStatus(CANCELED)
        self._end = turn, status, mark
        return status

    def _mark(self) -> int | None:
        """Return a number of the job folder, which another one takes the place of in each run.

        It is the newest epoch, or the time of the record of a pipeline's run; None if the folder
        cannot be read, as where a script has spoiled it: the end of the job counts all the same.
        """
        try:
            return latest_epoch(self.job) if self.run is None else self._recorded_ns()
        except (OSError, JobFolderError):
            return None

    def _recorded_ns(self) -> int:
        return (self.job.path / self.asked.name / RECORD).stat().st_mtime_ns

    def _went_on(self, mark: int | None) -> bool:
        """Say whether a process has gone on with the job since the mark, as ``daskprs resume``.

        This is asked under the lock of the queue: no folder is read.
        """
        if mark is None:
            return False
        if self.run is None:
            begun = self.job.epoch(mark + 1), self.job.journal(mark + 1)
            return any(map(os.path.exists, begun))
        with suppress(OSError):
            return self._recorded_ns() != mark
        return False

    def _of_others(self) -> ServedStatus | None:
        """Return the status while a process works in the job folder that is not of the service."""
        with suppress(OSError, JobFolderError):
            if holder_of((self.run or self.job).lock) is not None:
                return ServedStatus(RUNNING)
        return None

    def end_in_folder(self) -> ServedStatus:
        """Return how the job ended by its job folder.

        This is for a process that recorded no exit code, and for one that was not of the service.
        The job is Running to whoever asks while the folder is read. A script can make a journal of
        any length, and must not have all threads of the service wait for it.
        """
        if not self._reading.acquire(blocking=False):
            return ServedStatus(RUNNING)
        try:
            known = self.end
            if known is None:
                turn, mark, code = self.turn, self._mark(), self.exit_code()
                status, reason = self._recorded()
                if status == RUNNING:  # by a process that is not of the service
                    return ServedStatus(RUNNING)
                is_of_others = code is not None
                if status in {COMPLETED, FAILED, INTERRUPTED} or (
                    status == CANCELED and is_of_others
                ):
                    known = ServedStatus(status, reason=reason if is_of_others else "")
                elif self.is_wanted():
                    known = ServedStatus(FAILED, died=True)
                else:
                    known = ServedStatus(CANCELED)
                self._end = turn, known, mark
            return known
        finally:
            self._reading.release()

    def is_alive(self) -> bool:
        """Say whether the job's process lives, by a lock that the kernel frees at its end."""
        try:
            return holder_of(self._of_turn("process")) is not None
        except (FileNotFoundError, JobFolderError):
            return False

    def exit_code(self) -> int | None:
        """Return the exit code of the job's process; None when it has not recorded any."""
        return self._ended()[0]

    def _ended(self) -> tuple[int | None, int | None]:
        """Return the exit code of the job's process, and the mark of the job folder then."""
        try:
            record = read_json(self._of_turn("ended"))
            code, mark = int(record["exit_code"]), record.get("mark")
        except (FileNotFoundError, ArithmeticError, ValueError, LookupError, TypeError):
            return None, None  # it is not there, or a script wrote it
        except JobFolderError:
            return None, None
        return code, mark if isinstance(mark, int) and 0 <= mark < MOST_MARK else None

    def job_state(self, *, is_over: bool) -> JobState | None:
        """Return the state in the job folder; None while no job has begun in it.

        A journal of a million mini-batches takes seconds to read, so frequent requests receive the
        last state read, for a time in proportion. So do requests that come while it is read. The
        journal of an ended job is read once, and None is returned until then: earlier counts are
        not those of its end.
        """
        turn = self._end[0] if is_over else None  # another one may have been queued meanwhile
        if self._reading.acquire(blocking=False):
            try:
                if is_over:
                    if self._whole_turn != turn:
                        self._state, self._whole_turn = self._read_state(), turn
                elif time.monotonic() >= self._look_again_s:
                    self._state = self._read_state()
            finally:
                self._reading.release()
        return self._state if self._whole_turn == turn or not is_over else None

    def _recorded(self) -> tuple[str, str]:
        """Return the status in the job folder and its reason; empty if there is none."""
        run = self.run
        if run is None:
            state = self._read_state()
            return ("", "") if state is None else (state.status, state.reason)
        from daskprs.azure._pipeline_status import PipelineOnDisk

        with suppress(JobFolderError):
            if (found := PipelineOnDisk(run.path).state()) is not None:
                return found.status, ""
        return "", ""

    def _read_state(self) -> JobState | None:
        from daskprs._job.status import state_of

        self._whole_turn = None
        begun_s = time.thread_time()
        try:
            return state_of(self.job)
        except (JobFolderError, RecursionError):
            return None
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            return None  # a script has left something else there, such as a link to itself
        finally:
            took_s = time.thread_time() - begun_s
            self._look_again_s = time.monotonic() + READ_ONE_PART_OF * took_s

    def last_words(self) -> str:
        """Return the end of the output of the job's process in this turn."""
        try:
            begin = self._ticket()[1]
            with open_unlinked(self.driver_output) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TOLD_BYTES, min(begin, size)))
                return file.read(TOLD_BYTES).decode(errors="replace").strip()
        except (OSError, ValueError, JobFolderError):
            return ""

    def last_change_s(self) -> float:
        """Return when a file of this job, or of its job folder, was last changed.

        By the time of the file's record, which a job's script cannot set.
        """
        changes = [self.folder.stat().st_ctime]
        for folder in (self.folder, self.job.path):
            with suppress(OSError), os.scandir(folder) as entries:
                changes += [one.stat(follow_symlinks=False).st_ctime for one in entries]
        return max(changes)

    def _was_started(self) -> bool:
        """Say whether a process was started: a blank process file means that none was."""
        path = self._of_turn("process")
        try:
            return bool(read_regular(path, NUMBER_BYTES).strip())
        except FileNotFoundError:
            return False
        except JobFolderError:  # a script has replaced it
            return path.lstat().st_size > 0

    # ---- actions ----

    def start(self, user: JobUser | None = None, known: Sequence[int] = ()) -> ChildProcess:
        """Start the job's process, which holds its lock from its first moment: it inherits it.

        The job runs as `user`, if one is given; the `known` users are those of earlier turns.
        """
        if user is not None:
            self._open_to(user, known)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = opened(self._of_turn("process"), os.O_RDWR | os.O_CREAT, 0o600)
        # A service that was started without standard streams gets the descriptor of one of them:
        # there, the lock would take the place of the job's stdout, say.
        lock = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        os.close(fd)
        try:
            try:
                lock_now(lock)
            except BlockingIOError as error:
                msg = "a process that an earlier turn of this job has left holds its lock"
                raise JobFolderError(msg) from error
            os.pwrite(lock, b" " * NUMBER_BYTES, 0)  # on a full disk no process is started
            program = [sys.executable, "-P", "-m", "daskprs._serve.job_process"]
            program += [str(self.folder), str(self.turn), str(lock)]
            program += [] if user is None else [json.dumps(user)]
            with os.fdopen(opened(self.driver_output, append, 0o600), "ab") as output:
                process = ChildProcess(program, output, env=os.environ | ALONE, pass_fds=[lock])
            with suppress(OSError):  # the process writes it, too
                os.pwrite(lock, str(process.pid).encode(), 0)
        finally:
            os.close(lock)
        return process

    def _open_to(self, user: JobUser, known: Sequence[int]) -> None:
        """Give a user the folders that a job writes to, and the way there."""
        folders = [self.job.path, self.home, PipelineFolder(self.job.path).results]
        own_output = self.folder / "output"
        folders += [own_output] if self.asked.output_dir == str(own_output) else []
        for folder in folders:
            user.take(folder, known)
        os.chown(self.folder, -1, user.gid)
        self.folder.chmod(0o710)

    def close(self) -> None:
        """Let no other user enter the folder of a job that does not run."""
        with suppress(FileNotFoundError):
            self.folder.chmod(0o700)

    @property
    def home(self) -> Path:
        """The home of the job's user."""
        return self.folder / "home"

    @property
    def owner(self) -> int | None:
        """The number of the user as whom the job runs or ran last; None before its first turn."""
        try:
            return self.home.stat().st_uid
        except FileNotFoundError:
            return None

    @property
    def words(self) -> Sequence[str]:
        """The Python module that the process of this turn runs, and its arguments.

        This reads the job folder, so only the job's own process calls it.
        """
        if self.turn > 1 and self.run is not None:
            return [*self.asked.words, "--resume"]
        if self.turn > 1 and has_begun(self.job):
            _, command, deployment, *_ = (*self.asked.words, "", "", "")
            more = ["--deployment", deployment] if command == "invoke" else []
            return ["daskprs", "resume", str(self.job), *more]
        return self.asked.words

    def write_end(self, exit_code: int) -> None:
        """Record the exit code of the job's process."""
        with whole_file(self._of_turn("ended")) as file:
            record = {"exit_code": exit_code, "at": time.time(), "mark": self._mark()}
            file.write(json.dumps(record).encode())

    def cancel(self) -> None:
        """End the job, and keep its finished work.

        The cancel file is written first, so that a process that has not yet recorded its pid finds
        it.
        """
        # The process of a job of another user does that itself: it has to outlive the job.
        kills = self.is_overdue() and self.owner is None
        if self.is_wanted():
            self.cancel_file.touch()
        with suppress(OSError, ValueError, OverflowError, JobFolderError):
            number = read_regular(self._of_turn("process"), NUMBER_BYTES)
            pidfd = os.pidfd_open(int(number))
            try:
                if self._is_held_by(int(number)):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL if kills else signal.SIGTERM)
            finally:
                os.close(pidfd)

    def _is_held_by(self, pid: int) -> bool:
        """Say whether a process is that of the job: it holds the lock, and so has its file open.

        The number in the file proves nothing: the script may have written it, or another process
        may have the number by now.
        """
        lock = self._of_turn("process").stat()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if os.path.samestat(fd.stat(), lock):
                    return self.is_alive()
        return False

    def is_overdue(self) -> bool:
        """Say whether a cancel had no effect for `PATIENCE_S`, and another one kills the job."""
        try:
            return time.time() - self.cancel_file.stat().st_mtime > PATIENCE_S
        except FileNotFoundError:
            return False

    def is_wanted(self) -> bool:
        """Say whether the job was not canceled."""
        return not self.cancel_file.exists()

    @property
    def cancel_file(self) -> Path:
        """The file that exists once this turn of the job is canceled."""
        return self._of_turn("cancel")

    def _of_turn(self, what: str) -> Path:
        return self.folder / f"{what}.{self.turn}"


def is_remnant(folder: Path) -> bool:
    """Say whether a folder is what a crash has left of a job before the job was accepted."""
    return all(
        path.name.endswith(".part") or _TICKET.fullmatch(path.name) for path in folder.iterdir()
    )
