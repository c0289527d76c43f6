"""The publisher of what a job has made: its output, and its table of failed mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._core.events import OutputPublished
from daskprs._inputs.files.file_versions import refuse_changed_files
from daskprs._output.journal.journal import reported
from daskprs._report.listeners import report_doing

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from daskprs._core.ledger import Ledger
    from daskprs._job.job_input import JobInput
    from daskprs._job.request import CheckedCall
    from daskprs._output.store import ResultStore
    from daskprs._report.listeners import Listeners


class Publisher:
    """Publishes the output of a job whose mini-batches are all settled."""

    def __init__(self, call: CheckedCall, store: ResultStore, listeners: Listeners) -> None:
        self._call = call
        self._store = store
        self._listeners = listeners

    def publish(self, job_input: JobInput, ledger: Ledger) -> str:
        """Publish the output; return why not, if none of its items succeeded, and else nothing.

        Raise `InputChanged` when a file of the input has changed since it was read, and
        `OutputError` when the output cannot be written.
        """
        call, store, listeners = self._call, self._store, self._listeners
        refuse_changed_files(call.source.files())
        items = ledger.standing().items
        rows = call.options.output_action == "append_row"
        is_empty = items.total > 0 and items.succeeded == 0
        if rows and is_empty and not call.may_be_empty:
            unit = call.source.unit
            if items.total == 1:
                return f"its only {unit} has not succeeded"
            return f"not one of {items.total:,} {unit}s succeeded"
        job_input.finish(store)
        with reported(call.folder.path):  # first: what is Completed has the table that is true
            store.write_failed()
        remote = call.remote
        with self._reported(ledger, "publishing the output"):
            path = store.publish()
        if path is not None:
            listeners.tell(OutputPublished(str(path), store.published_bytes))
        if remote is not None and remote.file is not None and path is not None:
            overwrite = call.options.overwrite
            doing = f"uploading to {remote.file}"
            with self._reported(ledger, doing, lambda: remote.how_far):
                remote.publish(path, call.folder.upload, overwrite=overwrite)
            listeners.tell(OutputPublished(remote.file, store.published_bytes))
        for complaint in (store.complaint, "" if remote is None else remote.complaint):
            if complaint:
                listeners.say("warning", complaint)
        return ""

    def _reported(
        self, ledger: Ledger, doing: str, how_far: Callable[[], str] = lambda: ""
    ) -> AbstractContextManager[None]:
        """Return a context that reports what is done in it, and how far it is."""
        return report_doing(
            self._listeners,
            ledger.standing(),
            self._call.begun_s,
            lambda: f"{doing}: {more}" if (more := how_far()) else doing,
        )

    def write_failed(self) -> None:
        """Write the tables of what failed in a job that has not been Completed, if possible."""
        try:
            self._store.write_failed()
        except OSError as error:
            told = f"the tables of what failed cannot be written: {error}"
            self._listeners.say("warning", told)
