"""The origin of a row of the output: the attempt, the input and the script that it came from.

Everything is read from the job folder: its journals and logs. Neither the input nor the script is
opened, and nothing is written.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.mini_batch import Where
from daskprs._inputs.files.source import identity_of
from daskprs._inputs.source.input_file import is_url, name_of
from daskprs._job.request import read_call
from daskprs._job.script_version import files_of, has_files, snapshots_with
from daskprs._job.status import refuse_no_job
from daskprs._job.verification import changed_files, files_in, recorded_files
from daskprs._output.dataset.manifest import made_by
from daskprs._output.journal.commit_record import commit_record
from daskprs._output.journal.history import History
from daskprs._output.row_places import place_of_row
from daskprs._report.recorded_attempts import process_of, recorded_attempts
from daskprs.errors import JobFolderError, JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._core.pieces import Range
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commit_record import CommitRecord
    from daskprs._report.recorded_attempts import RecordedAttempt

BYTES = re.compile(r"\|(\d+)-(\d+)")
ROW_GROUP = re.compile(r"\|(\d+)\|(\d+)-(\d+)")
ROWS = re.compile(r"[^|]+:(\d+)-(\d+)")
ONE_FILE = re.compile(r"(?P<path>.*?)\|(?:\d+|None)\|[^|]*(?P<rest>.*)", re.DOTALL)
"""Forms of the identity of a mini-batch, as sources make it."""


class AttemptOf(NamedTuple):
    """An attempt that returned rows of a mini-batch; None for what the logs do not have."""

    run: int
    """1, and one more for each resume."""
    mini_batch: int
    """The number of the mini-batch in that run."""
    attempt: int
    items: list[Range] | None
    """The rows or files of the mini-batch that ran; None: all that no later attempt ran again."""
    status: str | None = None
    started: str | None = None
    elapsed_s: float | None = None
    run_s: float | None = None
    node: int | None = None
    process: str | None = None
    host: str | None = None
    pid: int | None = None
    log: Path | None = None


class InputOf(NamedTuple):
    """Where the items of a mini-batch lay."""

    label: str
    items: int
    """Their number."""
    unit: str
    """``file``, or else ``item``."""
    paths: tuple[str, ...] = ()
    row_group: int | None = None
    rows: tuple[int, int] | None = None
    bytes: tuple[int, int] | None = None
    partition_key: Mapping[str, Any] | None = None
    item: int | None = None
    """The number, in the mini-batch, of the row or file that the row was made of, if `run` returned
    as many rows as it was given, and in their order."""


class ScriptOf(NamedTuple):
    """The version of the script."""

    name: str
    version: str
    """A digest of its files; the manifest of a data set has the same."""
    files: Mapping[str, str]
    """The digest of each file."""
    place: Path | None
    """Where a folder with the same files is: that of the script, or a snapshot."""


@dataclass
class Origin:
    """What a row came from."""

    output: Path
    file: str
    """The file of a data set with the row; empty: the output is one file."""
    row: int
    """The number that was asked for."""
    mini_batch: int
    row_of_mini_batch: int | None
    rows_of_mini_batch: int
    input: InputOf
    attempts: list[AttemptOf]
    """The attempt that the rows of the mini-batch are of. Where some of its items were run again
    later, there are several, the last one first."""
    script: ScriptOf
    notes: list[str] = field(default_factory=list)
    """What is not as it was, or not known, in clauses."""


def origin(folder: JobFolder, row: int, file: str | None = None) -> Origin:
    """Return what a row of a job's output came from; the job folder stays as it is.

    Rows are counted from 0, without the header: in one `file` of a data set, or else in all files,
    in input order. Raise `JobFolderError` when there is no such job, or no output of it whose rows
    could be told apart, and `OptionError` when there is no such row or file.
    """
    refuse_no_job(folder)
    history = History(folder)
    place = place_of_row(folder, history, row, file)
    values = history.commits.values(place.commit)
    epoch, recorded = values["epoch"], int(history.recorded()[place.commit])
    records = _records(folder, epoch, recorded)
    attempts, label, key = _attempts(folder, records)
    fingerprint = history.fingerprint_of(epoch)
    notes: list[str] = []
    total = values["total"]
    item = place.row if place.rows == total else None
    of_input = _input(fingerprint.get("input"), records[0].identity, label, total, notes)
    of_input = of_input._replace(partition_key=key, item=item)
    if attempts[0].process is None:
        notes.append(f"{folder.attempts} lacks the attempt, so its process and times are unknown")
    mini_batch = values["index"]
    if mini_batch != recorded:
        notes.append(f"logs of run {epoch} call the mini-batch {recorded}, by the input then")
    failed = history.failed_rows.get(mini_batch)
    if failed is not None and failed.made == (epoch, recorded):
        notes.append(f"{failed.items:,} of its items have failed, and are in {folder.failed_rows}")
    return Origin(
        place.published.target,
        place.file,
        row,
        mini_batch,
        place.row,
        place.rows,
        of_input,
        attempts,
        _script(folder, fingerprint, notes),
        notes,
    )


# ---- attempts ----


def _records(folder: JobFolder, epoch: int, index: int) -> list[CommitRecord]:
    """Return the record of a commit, and of those whose rows it has taken over."""
    found: list[CommitRecord] = []
    following: tuple[int, int] | None = (epoch, index)
    while following is not None:
        one = commit_record(folder, *following)
        if one is None:
            msg = f"{folder.journal(following[0])} lacks the commit of mini-batch {following[1]}."
            raise JournalError(msg)
        found.append(one)
        following = one.replaced
    return found


def _attempts(
    folder: JobFolder, records: list[CommitRecord]
) -> tuple[list[AttemptOf], str, Mapping[str, Any] | None]:
    """Return the attempts of commits, and how the last one of them names its mini-batch."""
    attempts = []
    label, key = "", None
    earlier = [*records[1:], None]
    for record, before in zip(records, earlier, strict=True):
        one = AttemptOf(
            record.epoch, record.index, record.attempt, None if before is None else before.failed
        )
        logged = _logged(folder, record)
        if logged is not None:
            label = label or logged.detail.get("label", "")
            key = key or logged.detail.get("partition_key")
            host, pid = process_of(folder, logged, record.index) or (None, None)
            one = one._replace(
                status=logged.status,
                started=logged.started,
                elapsed_s=logged.elapsed_s,
                run_s=logged.run_s,
                node=logged.node,
                process=logged.process,
                host=host,
                pid=pid,
                log=folder.process_log(logged.node, logged.process),
            )
        attempts.append(one)
    return attempts, label, key


def _logged(folder: JobFolder, record: CommitRecord) -> RecordedAttempt | None:
    found: list[RecordedAttempt] = [
        one
        for one in recorded_attempts(folder, record.index)
        if (one.run, one.attempt) == (record.epoch, record.attempt) and one.has_process
    ]
    return found[-1] if found else None


# ---- the input ----


def _input(recorded: Any, identity: str, label: str, items: int, notes: list[str]) -> InputOf:
    """Return where a mini-batch lay, by its identity and the files that the job has recorded."""
    files = files_in(recorded)
    known = files if isinstance(files, dict) else {}
    paths, rest = _paths(known, identity, label, items)
    changed = {path: known[path] for path in paths if path in known and not is_url(path)}
    notes += [f"{one.where} {one.what}" for one in changed_files(changed)]
    where = Where(paths, *_ranges(rest if paths else identity))
    if not paths and files is not None:
        notes.append("the folder does not say which files these are: see daskprs plan")
    unit = "file" if isinstance(recorded, dict) and recorded.get("kind") == "files" else "item"
    return InputOf(label or ", ".join(map(name_of, paths)), items, unit, *where)


def _paths(
    files: Mapping[str, str], identity: str, label: str, items: int
) -> tuple[tuple[str, ...], str]:
    """Return the files of a mini-batch, and what its identity says besides of its one file."""
    for bar in re.finditer(r"\|", identity):
        path = identity[: bar.start()]
        whole = f"{path}|{files.get(path)}"
        if path in files and identity.startswith(whole):
            return (path,), identity[len(whole) :]
    listed = recorded_files(files)
    for first, file in enumerate(listed):
        some = listed[first : first + items]
        if label.startswith(file.name) and identity_of(some) == identity:
            return tuple(one.path for one in some), ""
    if files:
        return tuple(one.path for one in listed if one.identity in identity), ""
    found = ONE_FILE.fullmatch(identity)
    if found is not None and label.startswith(name_of(found["path"])):
        return (found["path"],), found["rest"]
    return (), ""


def _ranges(text: str) -> tuple[int | None, Range | None, Range | None]:
    """Return the row group, the rows and the bytes that the end of an identity names."""
    if found := ROW_GROUP.fullmatch(text):
        group, first, end = map(int, found.groups())
        return group, (first, end), None
    if found := BYTES.fullmatch(text):
        first, end = map(int, found.groups())
        return None, None, (first, end)
    if found := ROWS.fullmatch(text):
        first, end = map(int, found.groups())
        return None, (first, end), None
    return None, None, None


# ---- the script ----


def _script(folder: JobFolder, fingerprint: dict[str, Any], notes: list[str]) -> ScriptOf:
    """Return the version of the script of a run, and a folder that has the same files."""
    recorded = fingerprint.get("script", {})
    files, place, given = files_of(fingerprint), None, None
    with suppress(JobFolderError):  # the call was removed, or another version has written it
        given = read_call(folder)["source_directory"]
    if files:
        here = [Path(given)] if given is not None and has_files(Path(given), files) else []
        place = next(iter([*here, *snapshots_with(folder, files)]), None)
        if place is None:
            notes.append("no folder has this version of the script any more")
    version = made_by(folder.path.name, fingerprint)["script"]
    return ScriptOf(str(recorded.get("name", "")), version, files, place)
