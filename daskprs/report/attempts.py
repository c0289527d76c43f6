"""``processed_mini-batches.csv``: one row for each attempt, written and read back."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from daskprs.core.events import AttemptEnded, JobEnded, Stood
from daskprs.core.outcomes import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.core.events import Event
    from daskprs.job_folder import JobFolder
    from daskprs.report.lines import LogFiles

COLUMNS = (
    "Mini-batch Id",
    "Picked Count",
    "Node Id",
    "Process",
    "Process Start Time",
    "Total",
    "Succeeded",
    "Failed",
    "Elapsed Seconds",
    "Process Seconds",
    "Run Method Seconds",
    "Status",
    "Error Category",
    "Error Message",
    "Mini-batch Detail",
)
MESSAGE_CHARS = 2_000


class AttemptTable:
    """Writes the table."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._files = files
        self._rows = io.StringIO()
        self._csv = csv.writer(self._rows, lineterminator="\n")
        if not folder.attempts.exists():
            self._csv.writerow(COLUMNS)

    def tell(self, event: Event) -> None:
        """Write an attempt."""
        match event:
            case AttemptEnded():
                self._csv.writerow(_row(event))
            case Stood() | JobEnded():
                self._hand_over()

    def close(self) -> None:
        """Write what is left."""
        self._hand_over()

    def _hand_over(self) -> None:
        if text := self._rows.getvalue():
            self._files.write(self._folder.attempts, text)
            self._rows.seek(0)
            self._rows.truncate()


def _row(event: AttemptEnded) -> tuple[Any, ...]:
    place, mini_batch, outcome = event.place, event.mini_batch, event.outcome
    failure = outcome.failure
    detail = {
        "label": mini_batch.label,
        "partition_key": dict(mini_batch.partition_key),
        "final": event.final,
        "charged": event.charged,
    }
    return (
        outcome.index,
        outcome.attempt,
        place.node,
        place.process,
        datetime.fromtimestamp(outcome.started, UTC).isoformat(timespec="milliseconds"),
        outcome.total,
        outcome.succeeded,
        outcome.failed,
        f"{outcome.elapsed_s:.6f}",
        f"{outcome.cpu_s:.6f}",
        f"{outcome.run_s:.6f}",
        outcome.status.value,
        "" if failure is None else failure.kind,
        "" if failure is None else failure.message[:MESSAGE_CHARS],
        json.dumps(detail, default=str),
    )


def failed_rows(folder: JobFolder) -> Iterator[tuple[int, int, str, str]]:
    """Yield mini-batch, items, error and log of those that were given up, as the table says.

    A mini-batch that an earlier run gave up and a resumed one finished is not among them.
    """
    given_up: dict[int, tuple[int, int, str, str]] = {}
    if not folder.attempts.exists():
        return
    with folder.attempts.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            index = int(row["Mini-batch Id"])
            if row["Status"] == Status.RUN_DONE:
                given_up.pop(index, None)
            elif json.loads(row["Mini-batch Detail"])["final"]:
                error = f"{row['Error Category']}: {row['Error Message']}"
                log = folder.tracebacks(int(row["Node Id"]), row["Process"])
                given_up[index] = (index, int(row["Total"]), error, str(log))
    yield from given_up.values()
