"""The logs of attempts and agents: ``processed_mini-batches.csv``, and one for each process."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, assert_never

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import AgentChanged, AttemptFailed, JobStarted, MiniBatchesDone
from daskprs._core.lease import AgentExited, AgentNoted, AgentReady, AgentStarted, InitFailed
from daskprs._core.outcomes import PRINTED_SOMEWHERE, Printed, Status, failed_items, signal_of
from daskprs._core.spending import plain
from daskprs._folders.job_lock import begun_epochs
from daskprs._report.evidence import NO_PROCESS, evidence
from daskprs._report.humanize import MB, Stamps
from daskprs._report.log_files import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._core.events import Event, Place
    from daskprs._core.lease import AgentEvent
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure, Outcome
    from daskprs._core.spending import Amounts
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.log_files import LogFile, LogFiles

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
AGAIN = '""again"": true, '
_string = json.encoder.encode_basestring_ascii
_encode = json.JSONEncoder(default=str).encode


class AttemptLogs(LogWriter):
    """Writes a row of the table and a line in the log of the process for each attempt.

    A starting or ending agent gets a line in ``sys/node/<node>/_main.txt``. An attempt costs
    microseconds, since a job may have a million of them.
    """

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._files = files
        self._table = files.file(folder.attempts, ",".join(COLUMNS) + "\n")
        self._logs: dict[Place, LogFile] = {}
        self._table_stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._stamps = Stamps()
        self._run = _last_run(folder)

    def tell(self, event: Event) -> None:
        """Write attempts, and changes of agents."""
        match event:
            case JobStarted():
                self._run = _last_run(self._folder)
            case MiniBatchesDone(place, mini_batches, outcomes):
                end = f",,{self._detail(final=True, charged=True)}"
                printed, usage = outcomes.column("printed"), outcomes.column("usage")
                details = [
                    self._label_and_error(place, *one)
                    for one in zip(mini_batches, printed, usage, strict=True)
                ]
                self._write(place, outcomes, end, details)
            case AttemptFailed(place, mini_batch, outcome, final, charged, again):
                how = self._detail(final=final, charged=charged, again=again)
                end = f"{_error(outcome.failure)},{how}"
                more = outcome.printed, outcome.usage, outcome.failure
                detail = self._label_and_error(place, mini_batch, *more)
                self._write(place, ColumnBatch([outcome]), end, [detail], again=again)
            case AgentChanged(place, change):
                log = self._files.file(self._folder.node_log(place.node))
                log.write(f"{self._stamps.at(time.time())}|{sentence_about(change)}\n")
                if isinstance(change, AgentExited):
                    self._logs.pop(place, None)

    def _write(
        self,
        place: Place,
        outcomes: ColumnBatch[Outcome],
        end: str,
        details: Sequence[str],
        *,
        again: bool = False,
    ) -> None:
        # Exactly, since it tells which attempt has logged a line (`LogStream`).
        where, stamp = f"{place.node},{place.process or NO_PROCESS}", self._table_stamps.exactly_at
        who, log_stamp = f"{place.host}|{place.pid}", self._stamps.at
        rows, lines = [], []
        for cells, detail in zip(_cells(outcomes), details, strict=True):
            index, attempt, started, total, done, failed, *seconds, status, peak = cells
            elapsed_s, cpu_s, run_s, load_s = seconds
            rows.append(
                f"{index},{attempt},{where},{stamp(started)},{total},{done},{failed},"
                f'{elapsed_s},{cpu_s},{run_s},{status},{end}""loading_seconds"": {load_s}, '
                f'""peak_memory_mb"": {peak}, '
                f'{detail}}}"\n'
            )
            lines.append(
                f"{log_stamp(started)}|{who}|mini-batch {index}|attempt {attempt}|{status}|"
                f"total {total}|succeeded {done}|failed {failed}|"
                f"elapsed {elapsed_s}|cpu {cpu_s}|run {run_s}|peak MB {peak}\n"
            )
        self._table.write("".join(rows))
        if not again:
            self._log_of(place).write("".join(lines))

    def _log_of(self, place: Place) -> LogFile:
        log = self._logs.get(place)
        if log is None:
            path = self._folder.process_log(place.node, place.process or NO_PROCESS)
            log = self._logs[place] = self._files.file(path)
        return log

    def _detail(self, *, final: bool, charged: bool, again: bool = False) -> str:
        """Return the beginning of the last cell, which is the same for many rows."""
        return (
            f'"{{""run"": {self._run}, ""final"": {"true" if final else "false"}, '
            f'""charged"": {"true" if charged else "false"}, '
            f"{AGAIN if again else ''}"
        )

    def _label_and_error(
        self,
        place: Place,
        mini_batch: MiniBatch,
        printed: Printed | None,
        usage: Amounts | None = None,
        failure: Failure | None = None,
    ) -> str:
        """Return the rest of the last cell: the label, the output, what it used, and the error."""
        label = f'"label": {_string(mini_batch.label)}'.replace('"', '""')
        more: dict[str, Any] = {}
        if mini_batch.partition_key:
            more["partition_key"] = dict(mini_batch.partition_key)
        if usage is not None:
            more["usage"] = {name: plain(amount) for name, amount in usage}
        if printed == PRINTED_SOMEWHERE:
            more |= dict.fromkeys(Printed._fields)
        elif printed is not None:
            more |= {name: part for name, part in printed._asdict().items() if part[0] < part[1]}
        if failure is not None:
            log = evidence(failure, place, self._folder).log
            more["error"] = str(failure._replace(message=failure.message[:MESSAGE_CHARS]))
            more["log"] = str(log.relative_to(self._folder.logs))
        return label + (f", {_encode(more)[1:-1]}".replace('"', '""') if more else "")


def _cells(
    outcomes: ColumnBatch[Outcome],
) -> Iterator[tuple[int, int, float, int, int, int, str, str, str, str, str, str]]:
    """Return index, attempt, start, items, seconds with six places, status and peak of attempts.

    Items: total, succeeded, failed. Seconds: elapsed, of the processor, in `run`, loading. The peak
    is the highest memory in MB, ``null`` where it is unknown.
    """
    totals, succeeded = outcomes.column("total"), outcomes.column("succeeded")
    statuses = outcomes.column("status")
    return zip(
        outcomes.column("index"),
        outcomes.column("attempt"),
        outcomes.column("started"),
        totals,
        succeeded,
        _failed(statuses, totals, succeeded),
        _seconds(outcomes.column("elapsed_s")),
        _seconds(outcomes.column("cpu_s")),
        _seconds(outcomes.column("run_s")),
        _seconds(outcomes.column("load_s")),
        [status.value for status in statuses],
        [f"{peak / MB:.1f}" if peak else "null" for peak in outcomes.column("peak_bytes")],
        strict=True,
    )


def _failed(
    statuses: Sequence[Status], totals: Sequence[int], succeeded: Sequence[int]
) -> list[int]:
    items = zip(totals, succeeded, strict=True)
    if statuses.count(Status.RUN_DONE) == len(statuses):  # nearly always, and much quicker
        return [total - done if total > done else 0 for total, done in items]
    return list(map(failed_items, statuses, totals, succeeded))


def _seconds(column: Sequence[float]) -> list[str]:
    return [f"{seconds:.6f}" for seconds in column]


def _error(failure: Failure | None) -> str:
    """Return the error on one line, so that a torn row can be distinguished from a whole one."""
    if failure is None:
        return ","
    return f"{_quoted(_one_line(failure.kind))},{_quoted(_one_line(failure.message))}"


def _one_line(text: str) -> str:
    return " ".join(text[:MESSAGE_CHARS].split())


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _last_run(folder: JobFolder) -> int:
    """Return the epoch of the last run; a run without a journal was rejected before it began."""
    return max(begun_epochs(folder), default=0)


def sentence_about(change: AgentEvent) -> str:
    """Return a sentence about a change of an agent process."""
    match change:
        case AgentStarted(process, pid, apart):
            alone = f", imports itself: {', '.join(apart)}" if apart else ""
            return f"{process} started, pid {pid}{alone}"
        case AgentReady(process, elapsed_s):
            return f"{process} ready after {elapsed_s:.3f} s"
        case InitFailed(process, failure, elapsed_s):
            return f"{process} failed in import or init() after {elapsed_s:.3f} s: {failure}"
        case AgentNoted(process, text):
            return f"{process}: {text}"
        case AgentExited(process, returncode, reason, _, warning):
            exits = f"{process} exits with returncode {returncode}"
            # A death begins with these words already; a timeout and an orderly end do not.
            text = (
                reason if reason.startswith(exits) else f"{exits}{signal_of(returncode)}: {reason}"
            )
            return text if warning is None else f"{text}; {warning}"
        case _:
            assert_never(change)
