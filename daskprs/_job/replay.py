"""The replay of a failure: a mini-batch of a job runs again, as the job has recorded it.

Nothing in the job folder changes. The replay is a job of one mini-batch in a temporary folder, with
the input, the script, the arguments and the limits of the job, and makes one attempt.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.protocol.messages import INLINE
from daskprs._agent.script.checked_script import CheckedScript, check_script
from daskprs._core.ending import JobStatus
from daskprs._core.outcomes import Failure
from daskprs._core.pieces import NAMED
from daskprs._folders.foreign_folder import refuse_foreign
from daskprs._inputs.source.source import OpenedSource
from daskprs._job.kept_objects import kept_objects
from daskprs._job.one_mini_batch import call_of_one, for_one, numbered, run_one
from daskprs._job.request import check_call, read_call, variables_of_caller
from daskprs._job.script_version import files_of, has_files, snapshots_with
from daskprs._job.status import refuse_no_job, status_in
from daskprs._job.verification import changed_files, files_in
from daskprs._options.run_options import RunOptions
from daskprs._output.failures.attempt import RecordedFailure, recorded_failures
from daskprs._output.journal.history import History
from daskprs._report.humanize import counted
from daskprs.errors import JobFolderError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs._agent.child.debugging import Raised
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Range
    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.source.source import Source
    from daskprs._job.frontend import Surface
    from daskprs._job.one_mini_batch import Ran
    from daskprs._job.request import CheckedCall

NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d[\d,._]*")
"""What differs from run to run in the same error: addresses, process ids, seconds, bytes."""
PLACE = re.compile(r"(?<=killed after # s) in .*", re.DOTALL)
"""Where the script was when its time was over, which is another line each time."""
UNITS = re.compile(r"# (bytes|[kKMG]i?B)\b")
OF_EARLIER_RUNS = ("cost_plan", "gpus_hidden")
"""Files of a job folder with what its runs have found out about its input and its script."""


class Target(NamedTuple):
    """What is to be run again."""

    mini_batch: int
    failure: RecordedFailure | None
    """What the job has recorded of it; None: nothing, or an error before the first mini-batch."""
    start: Failure | None = None
    """The error with which the job ended before any attempt."""
    is_left: bool = False
    """Whether it has failed in the end."""


class Replay(NamedTuple):
    """A call that is ready to be run again, and what is to be told of it."""

    folder: JobFolder
    target: Target
    call: CheckedCall
    notes: list[str]
    """In which way it is not what the job ran, in sentences; filled while it runs."""
    is_complete: bool
    """Whether the job is Completed, all the same."""

    def run(self, surface: Surface, raised: Raised | None = None) -> Ran:
        """Run the mini-batch."""
        ran = run_one(self.call, surface, raised)
        items, outcome = self.call.items, ran.outcome
        if items is not None and outcome is not None and outcome.total < items[1]:
            unit = self.call.source.unit
            self.notes.append(f"the mini-batch has no more than {counted(outcome.total, unit)}")
        return ran

    @property
    def part(self) -> str:
        """What runs of the mini-batch, for people; empty: all of it."""
        if self.call.items is None:
            return ""
        start, stop = self.call.items
        return f", {counted(stop - start, self.call.source.unit)} of it from number {start} on"

    def verdict(self, ran: Ran) -> str:
        """Return in a sentence whether it is the same error as in the job."""
        then, now = self._then, failure_of(ran)
        if now is None:
            if then is None:
                return "no error, as in the job"
            return f"no error. In the job it was: {then}"
        if then is None:
            return "an error, and the job has recorded none for this mini-batch"
        if is_same(then, now, self.folder.path, self.call.folder.path):
            return "the same error as in the job"
        return f"another error than in the job, where it was: {then}"

    @property
    def _then(self) -> Failure | None:
        recorded = self.target.failure
        if recorded is None:
            return self.target.start
        return Failure(recorded.kind or recorded.status, recorded.message)


def failure_of(ran: Ran) -> Failure | None:
    """Return the error of a replay; of a success without some rows, what the script said of one."""
    if ran.failure is not None:
        return ran.failure
    if ran.ending is not None and ran.ending.reason:
        return Failure("", ran.ending.reason)
    failed = None if ran.outcome is None else ran.outcome.failed_rows
    for one in () if failed is None else failed.items:
        return Failure(one.kind or one.status, one.message)
    return None


def is_same(then: Failure, now: Failure, *folders: Path) -> bool:
    """Say whether two errors are the same but for numbers, such as addresses, and folders."""
    return _plain(then, folders) == _plain(now, folders)


def _plain(failure: Failure, folders: tuple[Path, ...]) -> tuple[str, str]:
    message = failure.message
    for folder in folders:
        message = message.replace(str(folder), "…")
    plain = UNITS.sub("# bytes", NUMBERS.sub("#", message))
    return failure.kind, PLACE.sub("", plain).strip()


# ---- what is run again ----


def target_of(
    folder: JobFolder, history: History, number: int | None, items: Range | None = None
) -> Target:
    """Return what is run again: a mini-batch by its number, or the first one that failed.

    Of one that is done but for some items, it is one of those among `items`; the first by default.
    """
    lost: dict[int, str] = {index: one.identity for index, one in history.given_up.items()}
    lost |= {index: one.identity for index, one in history.failed_rows.items()}
    if number is None and lost:
        number = min(lost)
    if number is None:
        error = (history.ended or {}).get("error")
        if not error:
            msg = f"nothing has failed in {folder}. Name a mini-batch by {Option('mini_batch')}."
            raise JobFolderError(msg)
        return Target(0, None, start=Failure(*error))
    found = recorded_failures(folder, number, lost.get(number, ""))
    lacks = history.failed_rows.get(number)
    if lacks is None:
        whole = [one for one in found if one.items is None]
        return Target(number, whole[-1] if whole else None, is_left=number in lost)
    for one in found:
        if one.items is None or one.epoch != lacks.made[0]:
            continue
        if items is None or (items[0] < one.items[1] and one.items[0] < items[1]):
            return Target(number, one, is_left=True)
    return Target(number, None, is_left=True)


def replay(
    folder: JobFolder,
    scratch: Path,
    *,
    mini_batch: int | None = None,
    items: Range | None = None,
    script: str | None = None,
    debugs: bool = False,
    **changes: Any,
) -> Replay:
    """Return the call that runs a mini-batch of a job again.

    Parameters
    ----------
    folder
        The job folder, which stays as it is.
    scratch
        The folder of the replay; it goes when the replay is over.
    mini_batch
        The number of the mini-batch. Default: the first one that failed.
    items
        The rows or files of it that run. Default: those that failed by themselves, or all.
    script
        Another script. Default: the snapshot of the job.
    debugs
        Whether the script works in this process.
    **changes
        Options in place of those of the job.

    Raises
    ------
    JobFolderError
        When there is no such job, or the folder lacks what it was called with.
    OptionError
        When a value of a variable is missing, or the mini-batch is not in the input.

    """
    refuse_no_job(folder)
    call = read_call(folder)
    if not changes.pop("trust", False):
        refuse_foreign(folder, str(script or call["script"] or ""))
    else:
        folder.is_trusted = True
    history = History(folder)
    target = target_of(folder, history, mini_batch, items)
    if items is None and target.failure is not None and target.failure.status != NAMED:
        items = target.failure.items
    objects = kept_objects(folder, call)
    notes: list[str] = []
    recorded = history.fingerprint_of(None if target.failure is None else target.failure.epoch)
    given = changes.pop("environment_variables", None) or {}
    variables = variables_of_caller(folder, call, given, os.environ)
    saved = {**call["options"], **objects.options, **changes}
    if debugs or saved.get("start_method") == INLINE:
        saved["start_method"] = INLINE if debugs else "fork"
    if debugs and saved.get("python") is not None:
        msg = (
            f"{Option('python', str(saved['python']))}: the script runs under another interpreter, "
            "and a debugger works in this one. Leave out "
        )
        raise OptionError(msg, Option("debug", value=True), ".")
    options = for_one(RunOptions(**{**saved, "environment_variables": variables}), scratch)
    checked_script: Any = objects.script
    if script is not None:
        checked_script, root = script, call["source_directory"]
        if root and Path(script).resolve().is_relative_to(root):
            options = options.replace(source_directory=root)
    elif checked_script is None:
        checked_script = _script_of(folder, call, recorded, notes, options, debugs=debugs)
    scratch.mkdir(parents=True)
    for name in OF_EARLIER_RUNS:
        with suppress(FileNotFoundError):
            shutil.copy2(getattr(folder, name), scratch / getattr(folder, name).name)
    checked = check_call(
        call["data"] if objects.source is None else OpenedSource(objects.source),
        checked_script,
        options,
        job_dir=scratch,
        output_dir=None if call["output_dir"] is None else scratch / "output",
        text=call["text"],
        lenient=bool(call.get("lenient")),
        data_folders=map(Path, call.get("data_folders", ())),
        names_output=call.get("names_output", True),
    )
    is_complete = status_in(history) == JobStatus.COMPLETED
    choose = _again(target, recorded, notes)
    return Replay(folder, target, call_of_one(checked, choose, items), notes, is_complete)


def _again(
    target: Target, recorded: Mapping[str, Any], notes: list[str]
) -> Callable[[Source], MiniBatch]:
    """Return the choice of the mini-batch: by its content, else by its number, with a note."""

    def choose(source: Source) -> MiniBatch:
        found = _found(source, target, recorded, notes)
        placed = getattr(source, "computed_again", None)  # by a collection
        if placed is None:
            return found
        again, note = placed(found)
        notes.extend([note] if note else [])
        computed: MiniBatch = again
        return computed

    return choose


def _found(
    source: Source, target: Target, recorded: Mapping[str, Any], notes: list[str]
) -> MiniBatch:
    identity = "" if target.failure is None else target.failure.identity
    if not identity:
        return numbered(target.mini_batch)(source)
    same = next((one for one in source.mini_batches() if one.identity == identity), None)
    if same is not None:
        return same._replace(index=target.mini_batch)
    files = files_in(recorded.get("input"))
    changed = [*changed_files(files)] if isinstance(files, dict) else []
    why = "; ".join(f"{one.where} {one.what}" for one in changed[:3]) or "its content differs"
    item = target.failure.item if target.failure is not None else None
    label = f" ({item.label})" if item is not None and item.label else ""
    told = f"mini-batch {target.mini_batch}{label} is not in the input as the job read it: {why}"
    try:
        other = numbered(target.mini_batch)(source)
    except OptionError:
        other = None
    if other is None or (item is not None and other.label != item.label):
        msg = f"{told}. It cannot be run again. Put back what the job read."
        raise JobFolderError(msg)
    notes.append(f"{told}. What is there now is run")
    return other


# ---- the script ----


def _script_of(
    folder: JobFolder,
    call: Mapping[str, Any],
    recorded: Mapping[str, Any],
    notes: list[str],
    options: RunOptions,
    *,
    debugs: bool,
) -> Any:
    """Return the script of a job: its snapshot, or the original where there is none.

    A debugger gets the original where that is the same: breakpoints name its files.
    """
    given, root = call["script"], call["source_directory"]
    if root is None:
        return given  # an installed module
    files = files_of(recorded)
    original = Path(root)
    is_as_it_was = has_files(original, files)
    snapshots = snapshots_with(folder, files)
    if (debugs and is_as_it_was) or not snapshots:
        if not is_as_it_was:
            gone = "has changed since" if original.exists() else "is gone"
            notes.append(f"the folder has no snapshot of the script, and {original} {gone}")
        return check_script(given, root, compiles_elsewhere=options.python is not None)
    snapshot = snapshots[0]
    place = str(snapshot / Path(given).relative_to(root)) if given.endswith(".py") else given
    script: CheckedScript = check_script(
        place, snapshot, compiles_elsewhere=options.python is not None
    )
    return replace(script, original=original)
