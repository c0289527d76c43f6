"""The logs of a job as one stream in the order of time, while they grow or afterwards.

Most logs have a time in each line. What a script prints has none: the table of attempts says which
bytes of it are of which attempt, and when that began. Files are open only while a piece of them is
read, since a job may have thousands.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.outcomes import Status
from daskprs._report.recorded_attempts import attempt_in
from daskprs._system.log_cap import LIMIT_BYTES, gap_in
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.recorded_attempts import RecordedAttempt

PIECE_BYTES = 64 << 10
"""Bytes of each log that are held at a time: a job may have thousands of logs."""
MOST_HELD = 100
"""Entries of a log of attempts that are put in order at a time, for the same reason."""
STAMP = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[.,](\d{3}(?:\d{3})?)\|")
MILLISECONDS_LONG = len("2026-01-01 00:00:00.000")
OF_MINI_BATCH = re.compile(r"\bmini-batch (\d+)\b")
ELAPSED = re.compile(r"\|elapsed ([\d.]+)")
MARKED = re.compile(r"\[(\d+)\] ")
DRIVER = "driver"


class LogEntry(NamedTuple):
    """A line of a log, or several that belong together, such as a traceback."""

    time: str
    """UTC, to the millisecond; of printed text, when its attempt began."""
    who: str
    """``driver``, ``node 0``, or a process with its node: ``0/process001``."""
    what: str
    """The kind of the log."""
    text: str
    mini_batch: int | None = None
    """The mini-batch that it is about, if it is about one."""
    is_failed: bool = False
    """Whether it belongs to an attempt that failed, or to an `init` that did."""


class AttemptSpan(NamedTuple):
    """Which part of the logs of a process an attempt has written."""

    started: str
    ended: str
    mini_batch: int
    is_failed: bool
    stdout: tuple[int, int] | None
    stderr: tuple[int, int] | None


class Wanted(NamedTuple):
    """Which entries of the logs are shown; all that are given have to fit."""

    failed: bool = False
    mini_batch: int | None = None
    process: str | None = None
    """``process001``, also with its node: ``0/process001``."""
    text: str | None = None

    @property
    def needs_attempts(self) -> bool:
        """Whether the attempt of printed text has to be known."""
        return self.failed or self.mini_batch is not None

    def fits(self, entry: LogEntry) -> bool:
        """Say whether an entry is shown."""
        is_of_it = self.process in (None, entry.who, entry.who.rpartition("/")[2])
        return (
            is_of_it
            and (entry.is_failed or not self.failed)
            and self.mini_batch in (None, entry.mini_batch)
            and (self.text is None or self.text in entry.text)
        )


class LogStream:
    """All logs of a job, each wanted entry once."""

    def __init__(self, folder: JobFolder, wanted: Wanted = Wanted()) -> None:  # noqa: B008 - immutable
        self._folder = folder
        self._wanted = wanted
        self._spans = AttemptSpans(folder)
        self._sources: dict[Path, TimedLog | PrintedLog] = {}

    def new(self, *, is_last: bool) -> Iterator[LogEntry]:
        """Yield what has come since the last call, in the order of time.

        With `is_last`, also the ends of logs that no line feed and no attempt have finished.
        """
        for path in self._paths():
            if path not in self._sources:
                self._sources[path] = self._source(path)
        self._spans.read_on()
        each = [source.new(is_last=is_last) for source in self._sources.values()]
        for entry in heapq.merge(*each, key=lambda entry: entry.time):
            if self._wanted.fits(entry):
                yield entry

    def processes(self) -> list[str]:
        """Return the processes that have a log, with their nodes."""
        user, system = self._folder.logs / "user", self._folder.logs / "sys" / "node"
        logs = [*user.glob("std*/*/*.txt"), *system.glob("*/process*.txt")]
        return sorted({_who(path) for path in logs})

    def _paths(self) -> Iterator[Path]:
        logs = self._folder.logs
        if self._folder.master_log.exists():
            yield self._folder.master_log
        for form in (
            "sys/node/*/*.txt",
            "user/stdout/*/*.txt",
            "user/stderr/*/*.txt",
            "user/entry_script_log/*/*.txt",
            "user/error/*/*.txt",
        ):
            yield from sorted(logs.glob(form))

    def _source(self, path: Path) -> TimedLog | PrintedLog:
        kind = path.parent.parent.name
        if kind in ("stdout", "stderr"):
            return PrintedLog(path, kind, self._spans, holds_back=self._wanted.needs_attempts)
        if kind == "entry_script_log":
            return LoggerLog(path, self._spans)
        if path.name == "_main.txt":
            return TimedLog(path, f"node {path.parent.name}", "log")
        if kind == "node":
            return AttemptLog(path, _who(path), "attempt")
        if kind == "error":
            return TracebackLog(path, _who(path), "error")
        return TimedLog(path, DRIVER, "log")


class GrowingFile:
    """Reads the lines of a file piece by piece, from where it was read up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0

    def lines(self, *, is_last: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the place and the text of each new line; with `is_last`, one without an end too."""
        while piece := self._piece(is_last=is_last):
            *whole, last = piece.split(b"\n")
            for line in [*(one + b"\n" for one in whole), *([last] if last else [])]:
                at, self.at = self.at, self.at + len(line)
                yield at, line.rstrip(b"\r\n").strip(b"\0")

    def _piece(self, *, is_last: bool) -> bytes:
        try:
            with open_regular(self.path) as file:
                file.seek(self.at)
                piece = file.read(PIECE_BYTES)
        except FileNotFoundError:
            return b""
        whole = piece[: piece.rfind(b"\n") + 1]
        return piece if not whole and (is_last or len(piece) == PIECE_BYTES) else whole


class TimedLog:
    """A log whose entries begin with a time; lines without one go on with an entry."""

    def __init__(self, path: Path, who: str, what: str) -> None:
        self._file = GrowingFile(path)
        self._who = who
        self._what = what
        self._time = ""
        """As exactly as the log has it."""

    def new(self, *, is_last: bool) -> Iterator[LogEntry]:
        """Yield the new entries; with `is_last`, also what may still grow."""
        entry: list[bytes] = []
        for _, line in self._file.lines(is_last=is_last):
            stamp = STAMP.match(line)
            if stamp is not None:
                yield from self._whole(entry)
                self._time = f"{stamp[1].decode()}.{stamp[2].decode()}"
                entry = [line[stamp.end() :]]
            else:
                entry.append(line)
        yield from self._whole(entry)

    def _whole(self, lines: list[bytes]) -> Iterator[LogEntry]:
        text = b"\n".join(lines).decode(errors="replace").rstrip()
        if text:
            yield self._entry(text)

    def _entry(self, text: str) -> LogEntry:
        found = OF_MINI_BATCH.search(text.partition("\n")[0])
        number = None if found is None else int(found[1])
        return LogEntry(_shown(self._time), self._who, self._what, text, number)


class AttemptLog(TimedLog):
    """The log of the attempts of a process: their times are those of their beginnings."""

    def new(self, *, is_last: bool) -> Iterator[LogEntry]:
        """Yield the new entries by the ends of attempts: failures are written after successes."""
        held: list[tuple[str, int, LogEntry]] = []
        for number, entry in enumerate(super().new(is_last=is_last)):
            heapq.heappush(held, (entry.time, number, entry))
            if len(held) > MOST_HELD:
                yield heapq.heappop(held)[2]
        yield from (entry for _, _, entry in sorted(held))

    def _entry(self, text: str) -> LogEntry:
        text = text.split("|", 2)[-1]  # behind host and process id
        entry = super()._entry(text)
        elapsed = ELAPSED.search(text)
        ended = entry.time if elapsed is None else _shown(_later(entry.time, float(elapsed[1])))
        is_failed = f"|{Status.RUN_DONE}|" not in text
        return entry._replace(time=ended, text=text.replace("|", ", "), is_failed=is_failed)


class TracebackLog(TimedLog):
    """The tracebacks of a process."""

    def _entry(self, text: str) -> LogEntry:
        return super()._entry(text)._replace(is_failed=True)


class LoggerLog(TimedLog):
    """What a script has written by the logger of `EntryScript`."""

    def __init__(self, path: Path, spans: AttemptSpans) -> None:
        super().__init__(path, _who(path), "logger")
        self._spans = spans

    def _entry(self, text: str) -> LogEntry:
        entry = LogEntry(_shown(self._time), self._who, self._what, text)
        marked = MARKED.match(text.split("|", 2)[-1])  # behind level and process id
        span = self._spans.at(self._who, self._time, marked and int(marked[1]))
        return entry if span is None else _of_attempt(entry, span)


class PrintedLog:
    """What a process has printed, with the times of its attempts."""

    def __init__(self, path: Path, stream: str, spans: AttemptSpans, *, holds_back: bool) -> None:
        self._file = GrowingFile(path)
        self._who = _who(path)
        self._stream = stream
        self._spans = spans
        self._holds_back = holds_back
        """Whether text waits until its attempt is known."""
        self._time = ""

    def new(self, *, is_last: bool) -> Iterator[LogEntry]:
        """Yield the new lines; what was printed before the first attempt has its time, at most."""
        parts = [
            (part, span)
            for span in self._spans.of(self._who)
            if (part := span.stdout if self._stream == "stdout" else span.stderr) is not None
        ]
        parts.sort(key=lambda one: one[0])
        known = max((part[1] for part, _ in parts), default=0)
        lost, added = self._gap()
        half = LIMIT_BYTES // 2
        before = self._file.at
        for at, line in self._file.lines(is_last=is_last):
            offset = at if at <= half or not lost else at - added + lost
            if not is_last and offset + max(1, len(line)) > known and self._holds_back:
                self._file.at = before
                return
            before = self._file.at
            for place, piece, of_piece in _cut(line, offset, parts):
                text = piece.decode(errors="replace").rstrip()
                entry = LogEntry("", self._who, self._stream, text)
                span = of_piece or self._marked(text)
                if span is not None:
                    entry = _of_attempt(entry, span)
                    self._time = max(self._time, _shown(span.started))
                elif not is_last and place >= known:
                    self._time = max(self._time, _now())
                elif not self._time:
                    self._time = self._spans.begun(self._who)
                if text:
                    yield entry._replace(time=self._time)

    def _gap(self) -> tuple[int, int]:
        try:
            return gap_in(self._file.path, LIMIT_BYTES)
        except FileNotFoundError:
            return 0, 0

    def _marked(self, text: str) -> AttemptSpan | None:
        """Return the attempt that a line names: of a process that has several at a time.

        Of several attempts at its mini-batch there, it may be any: it is shown as that of a
        failed one if there is one.
        """
        found = MARKED.match(text)
        if found is None:
            return None
        spans = self._spans.of_mini_batch(self._who, int(found[1]))
        return next((one for one in spans if one.is_failed), spans[-1] if spans else None)


def _cut(
    line: bytes, offset: int, parts: list[tuple[tuple[int, int], AttemptSpan]]
) -> Iterator[tuple[int, bytes, AttemptSpan | None]]:
    """Yield the parts of a line with their places: an attempt may end without a line feed."""
    end = offset + max(1, len(line))
    at = bisect_right(parts, offset, key=lambda one: one[0][1])
    while offset < end:
        (begin, beyond), span = parts[at] if at < len(parts) else ((end, end), None)
        is_of_it = begin <= offset
        until = min(end, beyond if is_of_it else begin)
        text, line = line[: until - offset], line[until - offset :]
        yield offset, text, span if is_of_it else None
        offset, at = until, at + is_of_it


class AttemptSpans:
    """The attempts of each process that have left something in its logs, from their table."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._table = GrowingFile(folder.attempts)
        self._of: dict[str, list[AttemptSpan]] = {}
        self._of_mini_batch: dict[tuple[str, int], list[AttemptSpan]] = {}
        self._begun: dict[str, str] = {}

    def read_on(self) -> None:
        """Read what the table has got since the last call."""
        changed = set()
        for _, line in self._table.lines(is_last=False):
            one = attempt_in(line)
            if one is None:
                continue
            who, detail = f"{one.node}/{one.process}", one.detail
            started = one.started.replace("T", " ").partition("+")[0]
            self._begun[who] = min(_shown(started), self._begun.get(who, _shown(started)))
            is_failed = one.status != Status.RUN_DONE
            # A job may have a million attempts: those that left nothing are of no use here.
            if is_failed or "stdout" in detail or "stderr" in detail or self._has_logger(one):
                # Tables of earlier versions have the start to the millisecond.
                more_s = 0.001 if len(started) == MILLISECONDS_LONG else 0.0
                ended = _later(started, one.elapsed_s + more_s)
                parts = _part(detail.get("stdout")), _part(detail.get("stderr"))
                span = AttemptSpan(started, ended, one.mini_batch, is_failed, *parts)
                self._of.setdefault(who, []).append(span)
                self._of_mini_batch.setdefault((who, one.mini_batch), []).append(span)
                changed.add(who)
        for who in changed:
            self._of[who].sort(key=lambda span: span.started)

    def _has_logger(self, one: RecordedAttempt) -> bool:
        return self._folder.entry_script_log(one.node, one.process).exists()

    def of(self, who: str) -> list[AttemptSpan]:
        """Return the attempts of a process, the earliest first."""
        return self._of.get(who, [])

    def of_mini_batch(self, who: str, number: int) -> list[AttemptSpan]:
        """Return the attempts of a process at a mini-batch."""
        return self._of_mini_batch.get((who, number), [])

    def begun(self, who: str) -> str:
        """Return when the first attempt of a process began; now if there is none."""
        return self._begun.get(who) or _now()

    def at(self, who: str, time: str, marked: int | None) -> AttemptSpan | None:
        """Return the attempt that a process made at a time.

        Of several at a time, it is the one at the mini-batch that the entry is marked with.
        """
        if marked is not None:
            for span in self.of_mini_batch(who, marked):
                if span.started <= time <= span.ended:
                    return span
        spans = self.of(who)
        place = bisect_right(spans, time, key=lambda span: span.started)
        found = spans[place - 1] if place else None
        return found if found is not None and time <= found.ended else None


def _part(found: list[int] | None) -> tuple[int, int] | None:
    return None if found is None else (found[0], found[1])


def _of_attempt(entry: LogEntry, span: AttemptSpan) -> LogEntry:
    return entry._replace(mini_batch=span.mini_batch, is_failed=span.is_failed)


def _who(path: Path) -> str:
    """Return the process of a log, with its node."""
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def _later(time: str, seconds: float) -> str:
    then = datetime.fromisoformat(time) + timedelta(seconds=seconds)
    return then.isoformat(" ", "microseconds")


def _shown(time: str) -> str:
    """Return a time to the millisecond, which all logs have: ties stay in the order of logs."""
    return time[:MILLISECONDS_LONG]


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
