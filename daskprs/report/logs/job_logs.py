"""The first and the last file for a reader of the log folder: the contents, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.core.events import JobEnded, JobStarted
from daskprs.report.logs.end_message import end_message
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from daskprs.core.events import Event
    from daskprs.folders.job_folder import JobFolder

README = """\
What is where in this job folder. Nodes are numbered 0, 1, …; on each of them its agent processes
are process000, process001, …: a process that ended is followed by one with a new number.

logs/job_result.txt                     how the job ended; on failure the cause and where to look
logs/job_error.txt                      the script's errors, each kind once, with counts
logs/job_progress_overview.<day>.txt    counts over time
logs/user/stdout/<node>/<process>.stdout.txt
logs/user/stderr/<node>/<process>.stderr.txt
                                        what the script, and whatever it started, printed
logs/user/entry_script_log/<node>/<process>.log.txt
                                        what it wrote by EntryScript().logger
logs/user/error/<node>/<process>.txt    full tracebacks
logs/sys/master_role.txt                what the driver did: time|level|pid|thread|message
logs/sys/node/<node>/_main.txt          starts and ends of agent processes
logs/sys/node/<node>/<process>.txt      one line for each attempt at a mini-batch
logs/sys/job_report/processed_mini-batches.csv
                                        the same as a table, of all runs of this job
logs/sys/job_report/process_summary.csv, node_summary.csv
                                        sums for each process and each node of the last run
logs/sys/metrics/progress.csv           counts over time, for programs
logs/sys/error/                         errors of daskprs itself
journal.*, spool.*, typed.*             what is committed: a resume needs it
output/                                 the output, unless the job was given an output_dir
"""


class JobLogs:
    """Writes ``readme.txt`` and ``job_result.txt``."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder

    def tell(self, event: Event) -> None:
        """Write the file of the start or of the end."""
        match event:
            case JobStarted():
                self._folder.readme.write_text(README, encoding="utf-8")
                self._folder.job_result.unlink(missing_ok=True)  # of the run that this one resumes
            case JobEnded():
                with whole_file(self._folder.job_result) as file:
                    text = f"{end_message(event, self._folder)}\n"
                    file.write(text.encode(errors="backslashreplace"))

    def close(self) -> None:
        """Do nothing: the event of the end has written its file."""
