"""The command ``clean``: old job folders are removed."""

from __future__ import annotations

import re
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskprs._cli.as_json import JSON, json_value, show_json
from daskprs._cli.exit_codes import echo, echo_result, every_end
from daskprs._cli.options import CONTEXT
from daskprs._core.ending import EXIT_FAILED
from daskprs._report.humanize import amount, counted, duration
from daskprs._system.standard_streams import to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._job.cleaning import JobOnDisk

AFTER_CLEAN = """\b
Examples:
  daskprs clean --older-than 7d --dry-run
  daskprs clean /scratch/jobs --older-than 12h --status Completed --status Canceled

\b
Exit codes:
  0    what is old is removed, or with --dry-run shown
  42   a folder cannot be removed: the reason is shown
  2    ROOT cannot be listed, or an option cannot be used
"""
STATUSES = ("Completed", "Failed", "Canceled", "Interrupted", "Died")
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    found = _AGE.fullmatch(text.strip())
    if found is None:
        message = f"{text!r}: write a number and a unit, such as 90m, 12h, 7d or 2w"
        raise click.BadParameter(message)
    return float(found[1]) * UNITS_S[found[2]]


@click.command("clean", context_settings=CONTEXT, epilog=AFTER_CLEAN)
@click.argument("root", required=False)
@click.option(
    "--older-than",
    "older_than_s",
    required=True,
    metavar="AGE",
    callback=_seconds,
    help="Age since the last change in the folder: 90m, 12h, 7d, 2w.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    default=("Completed",),
    show_default=True,
    help="What the job is; may be given more than once. A job that is not Completed loses what a "
    "resume would go on with.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@JSON
def clean(
    root: str | None,
    *,
    older_than_s: float,
    statuses: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove old job folders directly below ROOT, with the output in them.

    The folder of a pipeline goes or stays as a whole. ROOT is by default ./daskprs-jobs, or the
    job-root of Dask's config. A folder in which a driver is at work stays, and so do other folders
    and files, links, and all outside of ROOT.
    """
    with every_end():
        from daskprs._job.cleaning import Cleaning
        from daskprs._options.site_defaults import job_root

        place = (Path(root) if root else job_root()).absolute()
        cleaning = Cleaning(place, older_than_s, statuses)
        jobs = []
        for job in chain([] if dry_run else cleaning.go_on(), cleaning.found()):
            done = job
            if not (job.stays or dry_run):
                done = job._replace(stays=cleaning.remove(job))
            jobs.append(done)
            if not as_json:
                _show(done, dry_run=dry_run)
        if as_json:
            show_json([json_value(job) | {"removed": not (job.stays or dry_run)} for job in jobs])
        else:
            _show_sums(jobs, len(cleaning.others), dry_run=dry_run)
        if any(_has_failed(job) for job in jobs):
            sys.exit(EXIT_FAILED)


def _has_failed(job: JobOnDisk) -> bool:
    """Return whether a folder should have been removed, and was not."""
    return bool(job.stays) and job.size_bytes is not None


def _show(job: JobOnDisk, *, dry_run: bool) -> None:
    """Show the fate of a folder, unless it stays as a matter of course."""
    if _has_failed(job) or " " in job.stays:
        to_stderr(f"stays         {job.job_dir}: {job.stays}")
        return
    if job.stays:
        return
    verb = "would remove" if dry_run else "removed"
    size = amount(job.size_bytes or 0)
    of = "" if job.steps is None else f"pipeline of {counted(job.steps, 'step')}, "
    say = _say(dry_run=dry_run)
    say(f"{verb:<13} {job.job_dir}  {of}{job.status}, {duration(job.age_s)} old, {size}")
    if job.output is not None:
        say(f"{'':<13} with its output {job.output}")
    if job.has_rows:
        say(f"{'':<13} with the rows that to_pandas() reads")


def _say(*, dry_run: bool) -> Callable[[str], None]:
    """Return what shows a line: a disk is made free even where the lines find no room on it."""
    return echo if dry_run else echo_result


def _show_sums(jobs: Iterable[JobOnDisk], others: int, *, dry_run: bool) -> None:
    gone = [job for job in jobs if not job.stays]
    size = amount(sum(job.size_bytes or 0 for job in gone))
    words = "would be removed" if dry_run else "removed"
    text = f"{counted(len(gone), 'job folder')} {words}, {size}."
    stays = Counter(job.stays if " " not in job.stays else "not removable" for job in jobs)
    del stays[""]
    if stays:
        named = ", ".join(f"{count} {why}" for why, count in stays.items())
        text += f" {counted(stays.total(), 'job folder')} kept: {named}."
    if others:
        text += f" Left alone: {counted(others, 'other')}."
    _say(dry_run=dry_run)(text)
