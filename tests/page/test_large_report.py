"""The report of a million attempts, in bounded memory, and a page that does not grow with them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import AgentChanged, JobStarted, MiniBatchesDone, Place
from daskprs._core.lease import AgentReady, AgentStarted
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.journal import VERSION, Journal
from daskprs._report.attempts import AttemptLogs
from daskprs._report.job_logs import DriverLog
from daskprs._report.log_files import LogFiles
from tests.support.job_events import STARTED, attempt

if TYPE_CHECKING:
    from pathlib import Path

ATTEMPTS, TOGETHER = 1_000_000, 100
PLACES = [Place(node, f"process{n:03d}", "host", n) for node in range(8) for n in range(16)]
MOST_BYTES, MOST_PAGE_BYTES = 500 << 20, 100_000
REPORT = """
import json, resource, sys
from daskprs._folders.job_folder import JobFolder
from daskprs._job.report import report_of, write_report
path = write_report(JobFolder(sys.argv[1]))
contents = report_of(JobFolder(sys.argv[1]))
attempts = contents.figures.table.attempts
print(json.dumps({
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    "page": path.stat().st_size,
    "journal": contents.standing.mini_batches,
    "done": int(attempts.is_done.sum()),
    "failed": contents.attempts_failed,
}))
"""


def _fill(folder: JobFolder) -> int:
    """Write what a job with a million mini-batches leaves; return how many of them failed."""
    folder.create()
    folder.epoch(1).touch()
    files, journal = LogFiles(), Journal(folder.journal(1))
    logs, random, failed = AttemptLogs(folder, files), np.random.default_rng(1), 0
    DriverLog(folder, files).tell(JobStarted("a", "s.py", "row", STARTED, None, False, {}))
    journal.add("job", VERSION, {"input": {}, "output": {"text": False, "typed": False}}, False)
    for place in PLACES:
        logs.tell(AgentChanged(place, AgentStarted(place.process, place.pid, ())))
        logs.tell(AgentChanged(place, AgentReady(place.process, 2.0)))
    for first in range(0, ATTEMPTS, TOGETHER):
        place = PLACES[first // TOGETHER % len(PLACES)]
        bad, *good = range(first, first + TOGETHER)
        if first % 1_000:
            good = [bad, *good]
        else:
            logs.tell(attempt(bad, Failure("ValueError", f"row {bad}"), final=True, place=place))
            item = {"label": "", "items": 1, "paths": [], "row_group": None, "rows": None}
            item |= {"bytes": None, "partition_key": []}
            made = [1, "RUN_EXCEPTION", "ValueError", "", "", True, STARTED, 1.0, 1.0]
            journal.add("given up", f"x:{bad}", bad, [*made, 0, "process000", "h", 1, 1], item)
            failed += 1
        seconds = random.lognormal(0.3, 0.7, len(good))
        outcomes = [
            Outcome(index, 1, Status.RUN_DONE, 1, 1, STARTED + first / 50, run_s + 0.1, run_s, 0.1)
            for index, run_s in zip(good, seconds.tolist(), strict=True)
        ]
        batches = [MiniBatch(index, None, "", label=f"rows {index}-{index + 1}") for index in good]
        logs.tell(MiniBatchesDone(place, batches, ColumnBatch(outcomes)))
        ones, names = [1] * len(good), [f"x:{index}" for index in good]
        journal.add("commits", names, ones, good, ones, ones, [0] * len(good), *[None] * 3, "0-a")
        files.flush()
    journal.write()
    journal.close()
    return failed


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_report_of_a_million_attempts_is_small_and_right(tmp_path: Path) -> None:
    """Its counts are those of the journal, of which each attempt is one."""
    folder = JobFolder(tmp_path / "job")
    failed = _fill(folder)
    words = [sys.executable, "-c", REPORT, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["journal"] == [ATTEMPTS, ATTEMPTS - failed, failed]
    assert (told["done"], told["failed"]) == (ATTEMPTS - failed, failed)
    assert told["page"] < MOST_PAGE_BYTES
    assert told["peak"] < MOST_BYTES
