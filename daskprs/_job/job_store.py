"""The result store of a job, opened for a call: what it has to be the same job by."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daskprs._agent.script.side_inputs import side_inputs_of
from daskprs._folders.row_labels import prepared_labels
from daskprs._output.journal.recovery import RUNS, Resumption
from daskprs._output.store import ResultStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path
    from typing import Any

    from daskprs._job.job_input import JobInput
    from daskprs._job.request import CheckedCall
    from daskprs._report.listeners import Listeners


def open_store(
    call: CheckedCall,
    epoch: int,
    job_input: JobInput,
    listeners: Listeners,
    new_writers: Callable[[Path], Executor | None],
    check: Callable[[], None],
) -> ResultStore:
    """Open the result store of a job whose input is prepared.

    The listeners are told the warnings of the store. `new_writers` makes what writes parts of a
    data set on the job's cluster; None without one. `check` raises an interrupt where the job is to
    be canceled. Raise `OutputError`, `JobChanged` or `JobFolderError` when there is an output
    already, or the folder has another job.
    """
    options, remote = call.options, call.remote
    labels = prepared_labels(call.folder.scratch)
    if remote is not None:
        remote.begin(call.folder.upload, overwrite=options.overwrite)
    records, timeout_s = call.folder.uploads, options.limits().load_timeout_s
    return ResultStore(
        call.folder,
        epoch,
        call.output,
        call.target,
        _fingerprint(call),
        resumption=_resumption(call, job_input),
        overwrite=options.overwrite,
        where=call.source.where,
        labels=labels if labels.exists() else None,
        new_executor=new_writers,
        check=check,
        uploads=None if remote is None else remote.open_uploads(records, timeout_s),
        warn=partial(listeners.say, "warning"),
    )


def _fingerprint(call: CheckedCall) -> dict[str, Any]:
    """Return what makes a job another one if it differs."""
    options, output = call.options, call.output
    return {
        "input": call.source.fingerprint(),
        "script": call.script.fingerprint(),
        "options": {
            **options.of_results(call.digest, call.source.unit),
            **_side_inputs(call),
        },
        "output": {"text": output.text, "typed": output.typed}
        | ({"tabular": True} if output.tabular else {})
        | ({"errors": True} if output.errors else {})
        | (output.layout() if output.is_dataset else {}),
    }


def _side_inputs(call: CheckedCall) -> dict[str, dict[str, str]]:
    """Return the identities of the side inputs; the option has only their paths."""
    known = side_inputs_of(call.options.side_inputs)
    return {"side_inputs": {one.name: one.version for one in known}} if known else {}


def _resumption(call: CheckedCall, job_input: JobInput) -> Resumption | None:
    options = call.options
    if not options.resume:
        return None
    resumption = Resumption(
        call.source.mini_batches,
        RUNS[options.resume],
        options.accept_changes,
        call.script.is_input,
        job_input.known_before,
        isolates=options.limits().isolates,
        comparable=options.comparable,
    )
    failed_before = job_input.failed_before
    return resumption._replace(failed_before=failed_before) if failed_before else resumption
