"""What an earlier driver left in a job folder: its commits, as far as their bytes are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.errors import JobChanged
from daskprs.job_lock import latest_epoch
from daskprs.output.append_row import checksum_of
from daskprs.output.commits import Commit, CommitTable, Region
from daskprs.output.journal import records
from daskprs.output.spool import intact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.agent.messages import OutputSpec
    from daskprs.job_folder import JobFolder


class Found(NamedTuple):
    """What can be told from the journals."""

    commits: CommitTable
    published: Path | None
    """The output file, where it was published and is unchanged."""


def recover(
    folder: JobFolder, spec: OutputSpec, fingerprint: dict[str, Any], target: Path | None
) -> Found:
    """Read the journals of all epochs, and check every byte that they promise.

    A commit whose bytes are not there, or not the ones that were committed, is dropped: its
    mini-batch runs again. Once the output was published its rows are in the published file; that
    is settled by its checksum, not by its existence.

    Raises
    ------
    JobChanged
        When a journal was written for other inputs, another script or other options.

    """
    journals = _journals(folder)
    published = _published(journals, target)
    commits, seen = CommitTable(), set[int]()
    for path in journals:
        for record in records(path):
            match record:
                case ["job", written]:
                    _compare(written, fingerprint)
                case ["commit", str(identity), _, *row]:
                    commit = _commit(row)
                    text = published is not None or _text_is_there(folder, spec, commit)
                    if commit.index not in seen and text and _typed_is_there(folder, spec, commit):
                        seen.add(commit.index)
                        commits.add(commit, identity)
    return Found(commits, published)


def _text_is_there(folder: JobFolder, spec: OutputSpec, commit: Commit) -> bool:
    return not spec.text or intact(folder.spool(commit.text.epoch), commit.text)


def _typed_is_there(folder: JobFolder, spec: OutputSpec, commit: Commit) -> bool:
    return not spec.typed or intact(folder.typed_spool(commit.typed.epoch), commit.typed)


def committed(folder: JobFolder) -> CommitTable:
    """Return the commits of a job as its journals tell them, the first of each mini-batch."""
    commits, seen = CommitTable(), set[int]()
    for path in _journals(folder):
        for record in records(path):
            match record:
                case ["commit", str(identity), _, int(index), *row] if index not in seen:
                    seen.add(index)
                    commits.add(_commit([index, *row]), identity)
    return commits


def _journals(folder: JobFolder) -> list[Path]:
    paths = (folder.journal(epoch) for epoch in range(1, latest_epoch(folder) + 1))
    return [path for path in paths if path.exists()]


def _commit(row: list[Any]) -> Commit:
    index, total, succeeded, empty, text, typed, header = row
    return Commit(index, total, succeeded, empty, Region(*text), Region(*typed), header)


def _published(journals: list[Path], target: Path | None) -> Path | None:
    """Return the output file if some epoch finished it, whether or not it lived to say so."""
    if target is None or not target.exists():
        return None
    size = target.stat().st_size
    for path in journals:
        for record in records(path):
            match record:
                case ["publishing", str(name), int(length), int(checksum)] if (
                    Path(name) == target and length == size and checksum == checksum_of(target)
                ):
                    return target
    return None


def _compare(written: dict[str, Any], now: dict[str, Any]) -> None:
    changed = list(_differences(written, now, ""))
    if changed:
        msg = (
            "the journal of this job was written for something else. What differs: "
            + "; ".join(changed[:5])
            + ". Use another job_dir, or put things back as they were."
        )
        raise JobChanged(msg)


def _differences(written: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(now, dict):
        for name in sorted({*written, *now}):
            yield from _differences(written.get(name), now.get(name), f"{where}.{name}".strip("."))
    elif written != now:
        yield f"{where} was {_short(written)} and is {_short(now)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # noqa: PLR2004 - a line
