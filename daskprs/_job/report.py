"""The report of a job: made from its folder alone, at any time, on any machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from daskprs._core.spending import plain
from daskprs._job.frontend import Surface, command_to_resume
from daskprs._job.request import read_call
from daskprs._job.result import RUNNING
from daskprs._job.status import DIED, state_of
from daskprs._job.way_on import way_on, way_on_mended
from daskprs._page.contents import Contents, Standing
from daskprs._page.figures import RecordedFigures
from daskprs._page.html_page import page_of
from daskprs._report.humanize import counted, duration
from daskprs._report.progress_text import now_text
from daskprs._system.atomic_file import write_text
from daskprs._system.stores import plain_address
from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._job.status import JobState


def report_of(folder: JobFolder) -> Contents:
    """Return what there is to be said of a job; reject a folder in which none has begun."""
    state = state_of(folder)
    figures = RecordedFigures.of(folder, is_running=state.status == RUNNING)
    return Contents.of(folder, _standing(folder, state, figures), figures)


def write_report(folder: JobFolder, path: Path | None = None) -> Path:
    """Write the page of a job into its folder, or elsewhere, and return its path."""
    path, contents = path or folder.report, report_of(folder)
    try:
        write_page(contents, path)
    except OSError as error:  # such as a folder of another user, or a disk that is read-only
        msg = (
            f"{path} cannot be written: {error.strerror}. Write the page elsewhere by "
            f"{Option('output')}, or show the report here by {Option('text')}."
        )
        raise JobFolderError(msg) from error
    return path


def write_page(contents: Contents, path: Path) -> None:
    """Write what there is to be said of a job as a page."""
    write_text(path, page_of(contents), durable=False)


def _standing(folder: JobFolder, state: JobState, figures: RecordedFigures) -> Standing:
    result = state.result
    return Standing(
        state.status,
        _verdict(state, figures),
        state.mini_batches,
        state.planned,
        state.items,
        state.not_returned,
        state.unit,
        tuple(_recorded(state)),
        () if result is None else result.advice,
        _input(folder),
        _way_on(folder, state),
        shlex.join(["daskprs", "replay", str(folder)]),
        state.error,
    )


def _verdict(state: JobState, figures: RecordedFigures) -> str:
    """Return the state of a job in a sentence or two."""
    counts = state.mini_batches
    done = counted(counts.succeeded, "mini-batch")
    if state.planned is not None:
        done = f"{counts.succeeded:,} of {state.planned:,} mini-batches"
    done += f" {'is' if counts.succeeded == 1 else 'are'} done"
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    took = duration(figures.work.length_s)
    if state.status == RUNNING:
        now = "" if state.now is None else now_text(state.now)
        return f"It has run for {took}: {done}{failed}.{now and f' Now: {now}.'}"
    if state.status == DIED:
        return (
            f"Its driver has gone without an end, after {took}: it was killed, or its machine was "
            f"lost. {done}{failed}; they are kept."
        )
    if state.status == JobStatus.COMPLETED:
        lost = state.items.failed - state.not_returned
        left_out = f" {counted(lost, 'item')} failed, which its limits allow." if lost else ""
        return f"All that was asked for is done, in {took}.{left_out}"
    reason = figures.record.reason.rstrip(".") or "it has said no reason"
    return f"{reason[:1].upper()}{reason[1:]}. After {took}, {done}{failed}."


def _input(folder: JobFolder) -> str:
    """Return where the input of a job is: its first place, and the number of all."""
    try:
        data = read_call(folder)["data"]
    except (JobFolderError, KeyError):  # it was made by another version
        data = None
    places = [*map(str, data)] if isinstance(data, list) else [str(data)] if data else []
    if not places:
        return "the memory of its caller"
    return plain_address(places[0]) + (f" and {len(places) - 1:,} more" if len(places) > 1 else "")


def _recorded(state: JobState) -> Iterator[tuple[str, str]]:
    result = state.result
    if result is None:
        return
    if result.renewals:
        yield "processes renewed", f"{result.renewals:,}"
    if result.throttled:
        yield "refused by an endpoint", f"{result.throttled:,}"
    if result.left_out:
        yield "left out", ", ".join(result.left_out)
    for name, amount in result.usage.spent.items():
        useful = result.usage.useful.get(name, 0)
        more = "" if useful == amount else f", {plain(round(useful, 6)):,} of them useful"
        yield name, f"{plain(round(amount, 6)):,}{more}"


def _way_on(folder: JobFolder, state: JobState) -> str:
    if state.status == RUNNING:
        return ""
    if state.status == JobStatus.COMPLETED:
        failed = folder.failed.exists() or folder.failed_rows.exists()
        return way_on_mended(folder, "daskprs", None, is_complete=True) if failed else ""
    return way_on(folder, Surface(resume=command_to_resume), state.again)
