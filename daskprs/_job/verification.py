"""The verification of a job that nobody works on: input, journals and output, against each other.

The input is compared by the size and the time of its files, and with its rows counted anew if that
is asked for. The job has kept no checksum of its input.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from daskprs._core.ending import JobStatus
from daskprs._core.events import Counts
from daskprs._folders.job_lock import latest_epoch, refuse_a_driver
from daskprs._inputs.costs import CostSource
from daskprs._inputs.files.file_versions import is_as_planned, refuse_changed_files
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.included import PATH
from daskprs._inputs.source.input_file import InputFile, is_url
from daskprs._job.request import read_call
from daskprs._job.status import counts_of, refuse_no_job, status_in
from daskprs._options.run_options import RunOptions
from daskprs._output.journal.changes import input_differences
from daskprs._output.journal.commits import digest_of
from daskprs._output.journal.index_mapping import index_mapping
from daskprs._output.proof import Finding, Proof, ranges_of
from daskprs._output.publish.remote import is_remote
from daskprs._report.humanize import counted
from daskprs._system.regular_files import read_json
from daskprs._system.stores import open_store
from daskprs.errors import DaskprsError, InputChanged, JobFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.source.source import Source
    from daskprs._output.journal.history import History

CHANGED = "has another size or modification time than when the job read it"
UNKNOWN = -1
"""In place of the number of items of a mini-batch that failed."""
RESTORE = "Put back what the job read, or know that the rows were made of that."


@dataclass
class Verification:
    """What was compared, and what is not as it was."""

    job: str
    status: str
    mini_batches: Counts
    items: Counts
    """Those of the input: as many as were committed, and as many as failed."""
    output: str | None
    """The path or URL of the output that was compared."""
    read_files: int = 0
    """Files of the job and its output that were read."""
    read_bytes: int = 0
    input: str = ""
    """How the input was compared, in words."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not compared, in sentences."""

    @property
    def is_proved(self) -> bool:
        """Whether all is as it was."""
        return not self.findings

    @property
    def is_complete(self) -> bool:
        """Whether the job has come to its end, so that all of its input is settled."""
        return self.status == JobStatus.COMPLETED

    def record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"proved": self.is_proved, **values}


class RemotePlace:
    """An output under a URL."""

    remedy = "resume the job, which uploads it again"

    def __init__(self, url: str) -> None:
        self.name = url.rstrip("/")
        self._filesystem, self._place = open_store(self.name)
        self._filesystem.invalidate_cache()

    def opened(self, name: str) -> Any:
        """Return a file of it, open."""
        return self._filesystem.open(f"{self._place}/{name}" if name else self._place, "rb")

    def names(self) -> list[str]:
        """Return the names of all files of a data set."""
        return [path[len(self._place) + 1 :] for path in sorted(self._filesystem.find(self._place))]


def verify(folder: JobFolder, *, rereads: bool = False) -> Verification:
    """Compare all that a job has kept with what its journals say.

    Nothing is written, and the script does not run. With `rereads` the input is cut and read again,
    to count the items of each mini-batch.

    Raise `JobFolderError` when no job has begun in the folder, or another version has written its
    journals, and `JobFolderLocked` when a driver is at work in it: it may publish, and remove what
    is being compared.
    """
    refuse_a_driver(folder)
    refuse_no_job(folder)
    epoch = latest_epoch(folder)
    proof = Proof(folder)
    found = _begun(folder, proof)
    proof.check_rows()
    _check_remote(folder, proof, found)
    found.findings += proof.findings
    found.read_files, found.read_bytes = proof.files, proof.bytes
    _check_input(folder, proof.history, found, rereads=rereads)
    refuse_a_driver(folder)
    if latest_epoch(folder) != epoch:
        msg = f"a driver was at work in {folder} meanwhile. Verify the job again."
        raise JobFolderError(msg)
    return found


def _begun(folder: JobFolder, proof: Proof) -> Verification:
    """Return the counts of a job, by all records of its journals that are whole."""
    history, published = proof.history, proof.published
    status = status_in(history)
    mini_batches, items, _ = counts_of(history)
    lost = sum(
        one.items for lost in (history.given_up, history.failed_rows) for one in lost.values()
    )
    items = Counts(items.total, items.total - lost, lost)
    output = None if published is None else str(published.target)
    found = Verification(str(folder), status, mini_batches, items, output)
    then = Counts(*history.ended["items"]).total if history.ended else items.total
    if proof.is_whole and status == JobStatus.COMPLETED and then != items.total:
        what = f"the job ended with {counted(then, 'item')}, and its journals have {items.total:,}"
        found.findings.append(Finding(str(folder), what, "Put the journals back from a copy."))
    for journal in proof.no_journals:
        found.notes.append(
            f"{journal} is not there: its run ended before it had begun, or the journal was removed"
        )
    if proof.torn_bytes:
        found.notes.append(
            f"{proof.torn_bytes:,} bytes at the end of a journal were being written when a driver "
            "died: they committed nothing"
        )
    if status != JobStatus.COMPLETED:
        found.notes.append(
            "the job has not come to its end: how much of the input is left is not known"
        )
    return found


def _check_remote(folder: JobFolder, proof: Proof, found: Verification) -> None:
    """Compare the output under its URL, where the job has one."""
    published, url = proof.published, _url_of(folder, proof.history)
    if published is None or not url:
        return
    if found.status != JobStatus.COMPLETED:
        found.notes.append(f"the output is not known to be uploaded to {url}: resume the job")
        return
    found.output = url
    try:
        place = RemotePlace(url)
    except Exception as error:  # noqa: BLE001 - each store has errors of its own
        what = f"cannot be reached: {error}"
        found.findings.append(Finding(url, what, "Verify the job again when it can be reached."))
    else:
        proof.check_output(published, place)


def _url_of(folder: JobFolder, history: History) -> str:
    """Return the URL of the output of a job; empty if the output is on this machine."""
    url: Any = history.ended and history.ended.get("output_file")
    if not is_remote(url):
        with suppress(OSError, ValueError, AttributeError):
            url = read_json(folder.upload).get("url")
    return url if is_remote(url) else ""


# ---- the input ----


def _check_input(
    folder: JobFolder, history: History, found: Verification, *, rereads: bool
) -> None:
    """Compare the input with what the job has recorded of it."""
    recorded = (history.fingerprint() or {}).get("input")
    if recorded is None:
        found.input = "not compared: nothing was made of it"
        return
    files = files_in(recorded)
    try:
        call = read_call(folder)
    except JobFolderError as error:
        next_step = "Put it back from a copy: a resume by the folder needs it."
        found.findings.append(Finding(str(folder.call), f"cannot be read: {error}", next_step))
        call = {"data": None, "objects": ["named by a file that cannot be read"]}
    if isinstance(files, dict) and not rereads:
        found.findings += changed_files(files)
        found.input = f"{counted(len(files), 'file')}, compared by size and modification time"
        return
    if call["data"] is None:
        found.input = f"not compared: it was {'; '.join(call['objects'])}"
        return
    try:
        with TemporaryDirectory(prefix="daskprs-verify-") as scratch:
            source = _reopened(folder, call, Path(scratch))
            if isinstance(files, dict):
                found.findings += changed_files(files)
            else:
                found.findings += _changes(source, recorded)
            found.input = "its files, compared by size and modification time"
            if rereads:
                settled = _Settled(history, is_complete=found.is_complete)
                found.findings += settled.differences(source)
                items = counted(settled.items, "item")
                found.input = f"{items} in {counted(settled.count, 'mini-batch')}, read again"
    except (DaskprsError, OSError) as error:
        found.input = "not compared: it cannot be read"
        found.findings.append(Finding("the input", f"cannot be read: {error}", RESTORE))


def files_in(recorded: Any) -> dict[str, str] | str | None:
    """Return what a fingerprint says of files: size and version by path, or a digest of many."""
    if not isinstance(recorded, dict):
        return None
    found: Any = recorded.get("files")
    if isinstance(found, (dict, str)):
        return found
    return next((below for one in recorded.values() if (below := files_in(one))), None)


def recorded_files(files: Mapping[str, str]) -> list[InputFile]:
    """Return files as a fingerprint has them."""
    parted = ((path, *one.partition("|")) for path, one in files.items())
    return [
        InputFile(path, None if size == "None" else int(size), version, "")
        for path, size, _, version in parted
    ]


def changed_files(files: dict[str, str]) -> Iterator[Finding]:
    """Yield the files that are gone, or of another size or time."""
    known = recorded_files(files)
    remote = [file for file in known if is_url(file.path)]
    with suppress(InputChanged):
        refuse_changed_files(remote)  # their folders are listed, which takes few requests
        remote = []
    for file in known:
        if is_url(file.path):
            continue
        if not is_as_planned(file.path, file.size_bytes, file.version):
            gone = not Path(file.path).exists()
            yield Finding(file.path, "is gone" if gone else CHANGED, RESTORE)
    for file in remote:
        try:
            refuse_changed_files([file])
        except InputChanged:
            yield Finding(file.path, CHANGED, RESTORE)


def _changes(source: Source, recorded: Any) -> Iterator[Finding]:
    """Yield how the input, listed and cut again, differs from the recorded one."""
    for difference in input_differences(recorded, source.fingerprint()):
        yield Finding("the input", f"is another one: {difference}", RESTORE)


def _reopened(folder: JobFolder, call: dict[str, Any], scratch: Path) -> Source:
    """Return the input of a saved call, opened and prepared as the job did it."""
    options = RunOptions(**call["options"])
    aside = PATH in (options.include_columns or ())
    source = open_source(call["data"], replace(options.reading(), path_aside=aside))
    if isinstance(source, CostSource):
        source.kept = folder.cost_plan
    source.prepare(scratch)
    return source


class _Settled:
    """The mini-batches that a job has settled, to be compared with the input."""

    def __init__(self, history: History, *, is_complete: bool) -> None:
        self.count = self.items = 0
        """How many mini-batches of the input are settled, and how many items these have."""
        commits, rows, given_up = history.commits, history.standing(), history.given_up
        failed = [digest_of(one.identity) for one in given_up.values()]
        self._indexes = np.append(commits.column("index")[rows], np.array([*given_up], np.uint32))
        self._digests = np.append(commits.column("identity")[rows], np.array(failed, np.uint64))
        self._totals = np.append(commits.column("total")[rows], np.full(len(failed), UNKNOWN))
        self._is_complete = is_complete

    def differences(self, source: Source) -> Iterator[Finding]:
        """Cut and read the input, and yield what differs from what was settled."""
        found = index_mapping(self._indexes, self._digests, source.mini_batches())
        gone = np.setdiff1d(self._indexes, found.before)
        new = np.setdiff1d(np.arange(found.of_plan), found.now)
        for numbers, what in (
            (gone, "lacks mini-batches that were settled"),
            (new if self._is_complete else new[:0], "has mini-batches that were not settled"),
        ):
            if len(numbers):
                yield Finding("the input", what, RESTORE, None, ranges_of(numbers))
        totals = dict(zip(self._indexes.tolist(), self._totals.tolist(), strict=True))
        then = dict(zip(found.now.tolist(), found.before.tolist(), strict=True))
        with closing(source.reader()) as reader:
            for one in source.mini_batches():
                if one.index in then:
                    yield from self._recounted(source, reader, one, totals[then[one.index]])

    def _recounted(
        self, source: Source, reader: Any, mini_batch: MiniBatch, total: int
    ) -> Iterator[Finding]:
        """Count the items of a mini-batch anew; those of a failed one may not be readable."""
        self.count += 1
        if total == UNKNOWN or source.unit == "file":
            self.items += mini_batch.items or 0
            return
        what = ""
        try:
            count = len(reader.load(mini_batch))
        except Exception as error:  # noqa: BLE001 - each reader has errors of its own
            what = f"cannot be read: {error}"
        else:
            self.items += count
            if count != total:
                what = f"has {counted(count, 'item')} in it, and {total:,} were committed"
        if what:
            numbers = [(mini_batch.index, mini_batch.index)]
            yield Finding(mini_batch.label or "the input", what, RESTORE, None, numbers, total)
