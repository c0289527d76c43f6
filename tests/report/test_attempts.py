"""``processed_mini-batches.csv``: a row for each attempt, which can always be read back."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import MiniBatchesDone, Place
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._report.attempts import AttemptLogs
from daskprs._report.humanize import Stamps
from daskprs._report.log_files import LogFiles
from tests.support.job_events import HERE, attempt
from tests.support.job_runs import new_run

if TYPE_CHECKING:
    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder

CONTRACT = (
    "Mini-batch Id,Picked Count,Node Id,Process,Process Start Time,Total,Succeeded,Failed,"
    "Elapsed Seconds,Process Seconds,Run Method Seconds,Status,Error Category,Error Message,"
    "Mini-batch Detail"
)
TEXTS = st.text(st.sampled_from("ab,;\"'\n\r\t\\{}é\U0001f600\x00"), max_size=12)


def write(folder: JobFolder, *events: Event) -> None:
    """Write a table as one driver does."""
    files = LogFiles()
    table = AttemptLogs(folder, files)
    for event in events:
        table.tell(event)
    files.close()


def rows_of(folder: JobFolder) -> list[dict[str, str]]:
    """Return the rows of the table."""
    with folder.attempts.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_columns_are_those_of_the_contract(folder: JobFolder) -> None:
    """In its order, and what stands under them."""
    write(folder, attempt(7, attempt=2, partition_key=(("year", 2024), ("who", None))))
    header, row = folder.attempts.read_text().splitlines()
    assert header == CONTRACT
    cells = next(csv.reader([row]))
    assert cells[:-1] == [
        *("7", "2", "0", "process000", "2027-01-15T08:00:00.250000+00:00", "2", "2", "0"),
        *("0.500000", "0.125000", "0.250000", "RUN_DONE", "", ""),
    ]
    assert json.loads(cells[-1]) == {
        "label": "rows 7-8",
        "loading_seconds": 0.0,
        "partition_key": {"year": 2024, "who": None},
        "final": True,
        "charged": True,
        "run": 1,
        "peak_memory_mb": 300.0,
    }


def test_the_log_of_a_process_says_the_same(folder: JobFolder) -> None:
    """Both are written from what was formatted once, of groups in which some items failed too."""
    files = LogFiles()
    logs = AttemptLogs(folder, files)
    done = [
        Outcome(index, 1, Status.RUN_DONE, 3, succeeded, 1.8e9, index / 8, index / 16, index / 32)
        for index, succeeded in enumerate([3, 1, 5])
    ]
    lost = done[0]._replace(index=9, status=Status.PROCESS_DIED, succeeded=0)
    for group in (done, done[::-1], [lost, done[1]]):
        mini_batches = [MiniBatch(outcome.index, None, "") for outcome in group]
        logs.tell(MiniBatchesDone(HERE, mini_batches, ColumnBatch(group)))
    files.close()
    lines = folder.process_log(HERE.node, HERE.process).read_text().splitlines()
    told = [[cell.rpartition(" ")[2] for cell in line.split("|")[3:]] for line in lines]
    columns = ("Mini-batch Id", "Picked Count", "Status", "Total", "Succeeded", "Failed")
    seconds = ("Elapsed Seconds", "Process Seconds", "Run Method Seconds")
    rows = rows_of(folder)
    assert told == [[*(row[column] for column in columns + seconds), "null"] for row in rows]
    assert [row["Failed"] for row in rows] == ["0", "2", "0", "0", "2", "0", "3", "2"]


@given(st.floats(1.7e9, 2.2e9))
def test_a_start_is_exact_to_the_microsecond(seconds: float) -> None:
    """Also where it is rounded up to the next second."""
    stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
    for each in (seconds, int(seconds), int(seconds) + 0.9999998):
        then = datetime.fromtimestamp(each, UTC)
        assert stamps.exactly_at(each) == then.isoformat(timespec="microseconds")


def test_pandas_reads_it(folder: JobFolder) -> None:
    """Failures and successes, with numbers as numbers."""
    failure = Failure("ValueError", 'no, "this"\nwill not do')
    write(folder, attempt(0, failure), attempt(0, attempt=2))
    table = pd.read_csv(folder.attempts)
    assert list(table["Picked Count"]) == [1, 2]
    assert list(table["Status"]) == ["RUN_EXCEPTION", "RUN_DONE"]
    assert table["Error Message"][0] == 'no, "this" will not do'


@given(kind=TEXTS.filter(bool), message=TEXTS, label=TEXTS)
def test_whatever_a_message_holds_a_row_is_one_line(
    folder: JobFolder, kind: str, message: str, label: str
) -> None:
    """So that a torn one can be told from a whole one; the message comes back as it was."""
    folder.attempts.unlink(missing_ok=True)
    failure = Failure(kind, message)
    write(folder, attempt(3, failure, final=True, label=label), attempt(4))
    assert folder.attempts.read_bytes().count(b"\n") == 3
    row = rows_of(folder)[0]
    detail = json.loads(row["Mini-batch Detail"])
    assert (row["Mini-batch Id"], detail["label"], row["Total"]) == ("3", label, "2")
    assert detail["error"] == (f"{kind}: {message}" if message else kind)


def test_the_log_of_an_attempt_is_the_one_with_the_most_to_say(folder: JobFolder) -> None:
    """The traceback, what a dead process wrote to stderr, or what there is without a process."""
    died = Failure("PROCESS_DIED", "it did")
    write(
        folder,
        attempt(1, Failure("ValueError", "bad", "Traceback"), final=True),
        attempt(3, died, final=True, status=Status.PROCESS_DIED),
        attempt(4, died, final=True, place=Place(0, ""), status=Status.NODE_LOST),
    )
    details = [json.loads(row["Mini-batch Detail"]) for row in rows_of(folder)]
    assert [folder.logs / detail["log"] for detail in details] == [
        folder.tracebacks(0, HERE.process),
        folder.stderr(0, HERE.process),
        folder.tracebacks(0, "no_process"),
    ]


def test_attempts_are_told_apart_by_the_run_that_made_them(folder: JobFolder) -> None:
    """The table holds both runs; the epoch of a driver that was refused is none."""
    failure = Failure("ValueError", "bad")
    write(folder, *(attempt(index, failure, final=True) for index in (1, 2)))
    folder.epoch(2).touch()
    new_run(folder, 3)
    write(folder, attempt(1), attempt(2, failure, final=True))
    runs = [json.loads(row["Mini-batch Detail"])["run"] for row in rows_of(folder)]
    assert runs == [1, 1, 3, 3]


def test_a_table_that_a_crash_has_torn_goes_on(folder: JobFolder) -> None:
    """Wherever it was cut, the rows before and those of the next run can be read."""
    failure = Failure("ValueError", 'a "quoted", message')
    write(folder, attempt(1, failure, final=True), attempt(2, failure, final=True))
    whole = folder.attempts.read_bytes()
    first_row_ends = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for length in range(first_row_ends, len(whole), 7):
        folder.attempts.write_bytes(whole[:length])
        assert rows_of(folder)[0]["Mini-batch Id"] == "1"
        write(folder, attempt(3, failure, final=True))
        rows = rows_of(folder)
        assert (rows[0]["Mini-batch Id"], rows[-1]["Mini-batch Id"]) == ("1", "3")
