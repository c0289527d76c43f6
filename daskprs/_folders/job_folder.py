"""The job folder: every path of a job."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs import _plugins
from daskprs._folders.below import Below
from daskprs._system.private_folder import is_private, make_private
from daskprs._system.seal import NO_KEY, SealKey
from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Collection
    from os import PathLike


ROOT = "daskprs-jobs"
"""The folder of job folders, in the working directory, where a site names no other."""

DOOMED = ".daskprs-removed"
"""The end of the name of a job folder that is being removed."""


MARKS = ("job.json", "lock", "logs/")
"""What lies in each job folder from the start on; the names of folders end with a slash."""

SHOWN_CHARACTERS = 50
"""Characters of a script's name that the name of a job folder has: a name has 255 bytes at most."""


def default_path(script: str, job_id: str, root: str | PathLike[str]) -> Path:
    """Return the default folder of a job below the folder of job folders.

    The script is ``score.py``, ``src.score``, or the name of an object: ``main.<locals>.<lambda>``
    is a lambda to people.
    """
    name = script.removesuffix(".py").rpartition("<locals>.")[2]
    name = re.sub(r"[^\w.-]+", "", name)[:SHOWN_CHARACTERS] or "job"
    return Path(root) / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{job_id}"


def is_of_a_job(names: Collection[str]) -> bool:
    """Say whether a folder is that of a job, by the names of what lies in it."""
    return all(mark in names for mark in MARKS)


class JobFolder:
    """Knows every path of a job, whose folder need not exist; no other module spells one.

    The key, and whether the folder is trusted, say how pickles in it are checked.
    """

    output = Below("output")
    """The default output folder of the job."""
    collection = Below("collection.txt")
    """The lazy collection whose rows the job makes: its token, and the id of the call."""
    lock = Below("lock")
    """The lock file, held by the driver that is at work."""
    upload = Below("upload.json")
    """The record of the output's publication under a URL."""
    uploads = Below("uploads")
    """The records of uploads to a store of objects that are not completed yet."""
    snapshot = Below("snapshot")
    """The folder of snapshots of the source directory."""
    source = Below("source")
    """The folder of a copy of the source directory, for a job behind a lazy collection."""
    scratch = Below("scratch")
    """The folder of inputs that were written for the agents."""
    objects = Below("scratch/objects")
    """The objects of the call, for a replay, where mini-batches or rows have failed."""
    cost_plan = Below("cost-plan.npz")
    """The rows of each mini-batch, where they are cut by cost."""
    costs = Below("costs")
    """The folder of the job that asks a function of the script what rows cost."""
    works = Below("work")
    """The folder of the working directories of all agents."""
    dropped = Below("dropped")
    """Folders that are being removed. A rename moves each here first, so each is whole or gone."""
    call = Below("job.json")
    """The saved call of the job, for a resume by its folder."""
    detached = Below("detached.json")
    """The record of a detached job: the cluster of its driver, and the driver's options."""
    cancel = Below("cancel")
    """The request to cancel a detached job; it exists until the next submission."""
    fitting_size = Below("fitting-size")
    """The largest number of rows or files of a call of `run` that fits the memory, as text."""
    gpus_hidden = Below("gpus-hidden")
    """Exists once the first mini-batch has shown that the script uses no GPU."""
    failed = Below("failed.parquet")
    """The mini-batches that failed in the end, with every attempt."""
    failed_rows = Below("failed_rows.parquet")
    """The rows or files without which their mini-batches are committed."""
    report = Below("report.html")
    """The report of the job as a page."""

    logs = Below("logs")
    """The log folder."""
    readme = Below("logs/readme.txt")
    """The overview of the log folder."""
    job_result = Below("logs/job_result.txt")
    """The result; on failure the cause and the first log to read."""
    job_error = Below("logs/job_error.txt")
    """Summary of the script's errors."""
    master_log = Below("logs/sys/master_role.txt")
    """The log of the driver."""
    driver_output = Below("logs/sys/driver.txt")
    """The terminal output of a detached job's driver."""
    own_errors = Below("logs/sys/error")
    """The folder of errors of daskprs itself."""
    attempts = Below("logs/sys/job_report/processed_mini-batches.csv")
    """One row for each attempt."""
    process_summary = Below("logs/sys/job_report/process_summary.csv")
    """One row for each agent process of the last run."""
    node_summary = Below("logs/sys/job_report/node_summary.csv")
    """One row for each node of the last run."""
    progress_table = Below("logs/sys/metrics/progress.csv")
    """The counts over time, for programs."""
    user_logs = Below("logs/user")
    """The folder of what scripts printed and logged."""
    progress_now = Below("logs/sys/metrics/now.json")
    """The present view of the job, as ``daskprs status --json`` gives it; written every second."""
    tracebacks_of_all = Below("logs/user/error")
    """The folder of full tracebacks."""

    salt = Below("salt")
    """The salt by which the job's key differs from those of the user's other jobs."""

    def __init__(
        self, path: str | PathLike[str], key: SealKey = NO_KEY, *, is_trusted: bool = False
    ) -> None:
        self.path = Path(path).absolute()
        self.key = key
        """The key of its rows, where another process has given it: see `folders.rows_seal`."""
        self.is_trusted = is_trusted
        """Whether its pickles are loaded whoever has made them."""

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def doomed(self) -> Path:
        """Return the path of the folder while it is removed, beside its own."""
        return self.path.with_name(f".{self.path.name}{DOOMED}")

    def moved(self, place: str, then: str) -> str:
        """Return where a recorded place is now, which has moved with the folder if it was in it.

        `then` is where the folder was.
        """
        path = Path(place)
        return str(self.path / path.relative_to(then)) if path.is_relative_to(then) else place

    def create(self, *, shared: bool = False) -> str:
        """Make the job folder and its subfolders.

        Only the owner may enter a new folder, unless it is `shared`. A folder that has been made
        stays as it is. Return a warning where others may no longer enter a folder with other files;
        else an empty text. Raise `JobFolderError` when folders cannot be made, or when one that has
        been made is not to be shared.
        """
        warning = ""
        try:
            is_new = not self.logs.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            if is_new and not shared:
                warning = self._make_private()
            for folder in (self.logs, self.scratch):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            msg = f"job_dir: {self} cannot be made: {error}. Use another job_dir."
            raise JobFolderError(msg) from error
        if shared and not is_new and is_private(self.path):
            msg = (
                f"{Option('shared', value=True)}: the job folder {self} was made for its owner "
                f"alone. Open it first: setfacl -Rk {self}; chmod -R go=u-w {self}"
            )
            raise JobFolderError(msg)
        return warning

    def refuse_files_in_the_way(self) -> None:
        """Refuse a folder where no job was, and whose files a job would take for its own.

        Folders of nodes need no such check: their parent belongs to daskprs.
        """
        if self.lock.exists():
            return
        for path in (self.snapshot, self.works, self.dropped, self.scratch):
            if path.exists() and not (path.is_dir() and not any(path.iterdir())):
                msg = (
                    f"job_dir: {path} is there, and no job has made it. A job has a folder of this "
                    "name, and removes it at its end. Use a new or an empty folder as job_dir."
                )
                raise JobFolderError(msg)

    def _make_private(self) -> str:
        try:
            own = (name for plugin in _plugins.own() for name in plugin.in_job_folders)
            return make_private(self.path, tuple(own))
        except OSError as error:
            msg = (
                f"job_dir: {self} cannot be made private: {error}. Leave its permissions as they "
                f"are by {Option('shared', value=True)}, or use another job_dir."
            )
            raise JobFolderError(msg) from error

    def epoch(self, number: int) -> Path:
        """Return the file that claims an epoch: one driver's time in the folder."""
        return self.path / f"epoch.{number}"

    def journal(self, epoch: int) -> Path:
        """Return the journal of an epoch."""
        return self.path / f"journal.{epoch}"

    def spools(self, epoch: int) -> Path:
        """Return the folder of the lines that were made in an epoch, a file for each writer."""
        return self.path / f"spool.{epoch}"

    def typed_spools(self, epoch: int) -> Path:
        """Return the folder of the typed rows that were made in an epoch."""
        return self.path / f"typed.{epoch}"

    def labels(self, epoch: int) -> Path:
        """Return the folder of the row labels that hold from an epoch on."""
        return self.path / f"labels.{epoch}"

    def times_seen(self, epoch: int, host: str) -> Path:
        """Return the table of the times that files of the input have on another host."""
        return self.scratch / f"times.{epoch}.{host}"

    def seen(self, job_id: str) -> Path:
        """Return the file that shows a worker whether it sees this folder."""
        return self.path / f"seen.{job_id}"

    def work(self, node: int, process: str) -> Path:
        """Return the private working directory of an agent."""
        return self.works / str(node) / process

    def progress_overview(self, timestamp: str) -> Path:
        """Return the counts over time, of one day."""
        return self.logs / f"job_progress_overview.{timestamp}.txt"

    def own_error(self, part: str) -> Path:
        """Return the file of the errors of one part of daskprs."""
        return self.own_errors / f"{part}.txt"

    def node_log(self, node: int) -> Path:
        """Return the log of a node: starts, and exits with return codes."""
        return self.logs / "sys" / "node" / str(node) / "_main.txt"

    def process_log(self, node: int, process: str) -> Path:
        """Return the log of an agent: a line for each mini-batch."""
        return self.logs / "sys" / "node" / str(node) / f"{process}.txt"

    def stdout(self, node: int, process: str) -> Path:
        """Return the log of the stdout of an agent and its sub-processes."""
        return self.logs / "user" / "stdout" / str(node) / f"{process}.stdout.txt"

    def stderr(self, node: int, process: str) -> Path:
        """Return the same for stderr; the stacks of timed-out processes are here too."""
        return self.logs / "user" / "stderr" / str(node) / f"{process}.stderr.txt"

    def entry_script_log(self, node: int, process: str) -> Path:
        """Return the log of a script's `EntryScript().logger`."""
        return self.logs / "user" / "entry_script_log" / str(node) / f"{process}.log.txt"

    def tracebacks(self, node: int, process: str) -> Path:
        """Return the full tracebacks of a script."""
        return self.tracebacks_of_all / str(node) / f"{process}.txt"

    def perf(self, node: int) -> Path:
        """Return the folder of what a node and its processes use of the machine."""
        return self.logs / "perf" / str(node)

    def last_minutes(self, node: int, process: str) -> Path:
        """Return the table of the usage of an agent that died, second by second."""
        return self.perf(node) / f"{process}.last_minutes.csv"

    def node_usage(self, node: int) -> Path:
        """Return the table of the usage of a node, over time."""
        return self.perf(node) / "node_resource_usage.csv"

    def disk_usage(self, node: int) -> Path:
        """Return how full the disks of a node are."""
        return self.perf(node) / "node_disk_usage.csv"

    def device_usage(self, node: int) -> Path:
        """Return the table of the usage of each GPU of a node."""
        return self.perf(node) / "node_gpu_usage.csv"

    def process_usage(self, node: int) -> Path:
        """Return the table of the usage of each agent of a node."""
        return self.perf(node) / "processes_resource_usage.csv"

    def processes_of_minute(self, node: int, minute: datetime) -> Path:
        """Return the processes of a node at one time: a folder for each hour."""
        return self.perf(node) / "os" / f"{minute:%Y%m%d%H}" / f"processes_{minute:%M}"

    def profile(self, node: int, process: str) -> Path:
        """Return the profile of `run` in an agent."""
        return self.process_log(node, process).with_suffix(".profile")

    def create_logs(self, node: int) -> None:
        """Make the folders that the agents of a node write logs into."""
        for log in (self.stdout(node, ""), self.stderr(node, "")):
            log.parent.mkdir(parents=True, exist_ok=True)

    def next_process(self, node: int) -> int:
        """Return the first process number of a node that no earlier run of the job has used."""
        numbers = [
            int(digits)
            for log in self.stdout(node, "").parent.glob("process*")
            if (digits := log.name.removeprefix("process").partition(".")[0]).isdecimal()
        ]
        return max(numbers, default=-1) + 1


def for_other_users(folder: JobFolder) -> str:
    """Return the next step for workers of other users, who may not enter a private job folder."""
    if not is_private(folder.path):
        return ""
    return (
        f" Only its owner may enter it: workers that run as another user see one that is made with "
        f"{Option('shared', value=True)} and that they may write to."
    )
