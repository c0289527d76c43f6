"""The end of a job in a few lines: on failure the cause first, then the logs to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.core.ending import JobStatus
from daskprs.report.humanize import duration

if TYPE_CHECKING:
    from daskprs.core.ending import Ending, Errors
    from daskprs.core.events import Counts, JobEnded, Progress
    from daskprs.core.outcomes import Failure
    from daskprs.folders.job_folder import JobFolder


def end_message(ended: JobEnded, folder: JobFolder) -> str:
    """Return the text of ``job_result.txt`` and of the errors that carry a result."""
    ending, standing = ended.ending, ended.standing
    lines = []
    errors = ending.errors
    if ending.failure is not None:
        lines.append(str(ending.failure))
    if errors is not None and errors.final.counts.total() > 1:
        lines.append(f"Errors of the mini-batches that failed: {errors.final}.")
    if ending.reason:
        lines.append(f"The job is {ending.status}: {ending.reason.rstrip('.')}.")
    else:
        lines.append(f"The job is {ending.status}.")
    lines.append(
        f"Mini-batches: {_of(_all(standing))}. Items: {_of(standing.items)}. "
        f"Time: {duration(ended.elapsed_s)}."
    )
    if errors is not None:
        lines += _others(errors, ending.failure)
    if ended.output:
        of_before = "" if ending.status is JobStatus.COMPLETED else " of an earlier run, unchanged"
        lines.append(f"Output{of_before}: {ended.output}")
    of_script = ending.failure is not None and not ending.of_changed_input
    if of_script or standing.mini_batches.failed:
        lines.append(f"Errors and tracebacks: {folder.job_error}, {folder.tracebacks_of_all}")
    if standing.mini_batches.failed:
        lines.append(f"What failed, with every attempt: {folder.failed}")
    if standing.left_out:
        bad = ", ".join(standing.left_out)
        lines.append(
            f"Everything failed there that worked elsewhere: {bad}. See {folder.master_log}"
        )
    if ending.status is not JobStatus.COMPLETED:
        lines.append(f"Logs: {folder.logs}")
        lines.append(f"Nothing was published. {_to_go_on(ending)}: {ended.go_on_by}")
    return "\n".join(lines)


def _to_go_on(ending: Ending) -> str:
    if not ending.of_changed_input:
        return "To go on, with the same script and input"
    return (
        "To go on with the input of now, where every mini-batch of a file that has changed runs "
        "again and the others are kept"
    )


def _others(errors: Errors, headline: Failure | None) -> list[str]:
    """Return a line for each kind of error that did not fail a mini-batch."""
    titles = {
        "Waiting for another attempt": errors.pending,
        "Mended by a retry": errors.mended,
        "Processes that did not come up": errors.starts,
    }
    return [
        f"{title}: {kinds}; first: {str(kinds.first).splitlines()[0]}"
        for title, kinds in titles.items()
        if kinds.first is not None and kinds.first != headline
    ]


def _all(standing: Progress) -> Counts:
    """Return the counts of mini-batches, with the total of the whole plan where it is known."""
    counts = standing.mini_batches
    if standing.plan_complete or standing.expected is None:
        return counts
    return counts._replace(total=max(counts.total, standing.expected))


def _of(counts: Counts) -> str:
    text = f"{counts.succeeded:,} of {counts.total:,} succeeded"
    return f"{text}, {counts.failed:,} failed" if counts.failed else text
