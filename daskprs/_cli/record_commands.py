"""Commands that show what the folder of a job has recorded of its work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskprs._cli.as_json import JSON, show_json
from daskprs._cli.exit_codes import echo, echo_result, every_end
from daskprs._cli.job_commands import job_at, looks
from daskprs._cli.options import CONTEXT
from daskprs._job.status import refuse_no_job
from daskprs._report.humanize import counted
from daskprs._report.log_stream import DRIVER, LogStream, Wanted
from daskprs._system.standard_streams import to_stderr
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._folders.job_folder import JobFolder
    from daskprs._job.origin import AttemptOf, InputOf, Origin
    from daskprs._report.log_stream import LogEntry

AFTER_ORIGIN = """\b
Examples:
  daskprs origin scored-job --output-row 1041
  daskprs origin scored-job --output-row 7 --file part-00003.parquet
  daskprs origin scored-job --output-row 1041 --json | jq .attempts[0].host

\b
Exit codes:
  0    it is shown
  2    there is no such job, row or file, or its output is not what it published
"""
AFTER_LOGS = """\b
Examples:
  daskprs logs scored-job --failed
  daskprs logs scored-job --mini-batch 17
  daskprs logs scored-job --process 0/process001 --grep Warning
  daskprs logs scored-job --follow

\b
Exit codes:
  0    they are shown
  2    there is no such job, mini-batch or process
"""
AFTER_REPORT = """\b
Examples:
  daskprs report scored-job
  daskprs report scored-job --text
  daskprs report scored-job --output /tmp/scored.html

\b
Exit codes:
  0    it is written, or shown
  2    no job has begun in the folder, or the page cannot be written
"""
MOST_PATHS = 5
"""Most files of a mini-batch, or processes, that are shown to people."""
PAUSE = 2
"""Ratio for `looks`: many logs are not read all the time."""


@click.command("origin", context_settings=CONTEXT, epilog=AFTER_ORIGIN)
@click.argument("folder")
@click.option(
    "--output-row",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="The number of the row in the output, from 0; a header line is none.",
)
@click.option(
    "--file",
    metavar="NAME",
    help="Count in this file of a data set. Default: in all, in input order.",
)
@JSON
def origin(folder: str, *, output_row: int, file: str | None, as_json: bool) -> None:
    """Show what a row of the output of the job in FOLDER came from.

    Shown are mini-batch, input, attempt, process, times and script, as the folder has recorded
    them. Nothing runs, and nothing is written.
    """
    with every_end():
        from daskprs._job.origin import origin

        found = origin(job_at(folder), output_row, file)
        if as_json:
            show_json(found)
        else:
            echo("\n".join(_origin_lines(found)))


def _origin_lines(found: Origin) -> Iterator[str]:
    """Yield the lines about the origin of a row."""
    output = found.output / found.file if found.file else found.output
    yield f"<daskprs origin row {found.row:,} of {output}>"
    count = counted(found.rows_of_mini_batch, "row")
    which = "a row" if found.row_of_mini_batch is None else f"row {found.row_of_mini_batch:,}"
    label = f" ({found.input.label})" if found.input.label else ""
    yield f"  mini-batch    {found.mini_batch:,}{label}: {which} of {count} in the output"
    yield from _input_lines(found.input)
    for one in found.attempts:
        yield from _attempt_lines(one)
    script = found.script
    place = "" if script.place is None else f", as in {script.place}"
    yield f"  script        {script.name}, version {script.version}{place}"
    for note in found.notes:
        yield f"  note          {note}"


def _input_lines(found: InputOf) -> Iterator[str]:
    places = []
    if found.row_group is not None:
        places.append(f"row group {found.row_group:,}")
    for name, ends in {"rows": found.rows, "bytes": found.bytes}.items():
        if ends is not None:
            places.append(f"{name} {ends[0]}-{ends[1]}")
    shown = [*found.paths[:MOST_PATHS]]
    if len(found.paths) > MOST_PATHS:
        shown.append(f"and {len(found.paths) - MOST_PATHS:,} more")
    key = [f"{name}={value}" for name, value in (found.partition_key or {}).items()]
    of = counted(found.items, found.unit)
    yield f"  input         {', '.join([*shown, *key, *places, of])}"
    if found.item is not None:
        item = f"item {found.item:,} of these"
        if found.rows is not None:
            item = f"row {found.rows[0] + found.item:,}"
        elif found.unit == "file" and found.paths:
            item = found.paths[found.item]
        yield f"  made of       {item}, if run() returns a row for each, in their order"


def _attempt_lines(one: AttemptOf) -> Iterator[str]:
    only = ""
    if one.items is not None:
        ranges = ", ".join(f"{first}:{end}" for first, end in one.items)
        only = f", of only items {ranges}"
    status = "" if one.status is None else f": {one.status}"
    yield f"  attempt       {one.attempt}, in run {one.run}{only}{status}"
    if one.started is not None:
        times = f"{one.elapsed_s:.3f} s, of which run() took {one.run_s:.3f} s"
        yield f"  started       {one.started}, for {times}"
    if one.process is not None:
        host = "" if one.host is None else f", host {one.host}, pid {one.pid}"
        yield f"  process       {one.process} on node {one.node}{host}"
        yield f"  log           {one.log}"


@click.command("logs", context_settings=CONTEXT, epilog=AFTER_LOGS)
@click.argument("folder")
@click.option("--failed", is_flag=True, help="Only what belongs to attempts that failed.")
@click.option("--mini-batch", type=int, metavar="N", help="Only what is about a mini-batch.")
@click.option(
    "--process",
    metavar="NAME",
    help="Only of a process, such as process001 or 0/process001, or of the driver.",
)
@click.option("--grep", "text", metavar="TEXT", help="Only what has this text in it.")
@click.option("--follow", is_flag=True, help="Go on until the job ends.")
def logs(
    folder: str,
    *,
    failed: bool,
    mini_batch: int | None,
    process: str | None,
    text: str | None,
    follow: bool,
) -> None:
    """Show the logs of the job in FOLDER as one stream, in the order of time.

    Each line has its time (UTC), who wrote it, and its kind: log, attempt, error, stdout, stderr or
    logger. Printed text has the time at which its attempt began.
    """
    with every_end():
        job = job_at(folder)
        if not job.master_log.exists():
            refuse_no_job(job)
        wanted = Wanted(failed, mini_batch, process, text)
        stream = LogStream(job, wanted)
        if process is not None and not follow:
            _refuse_other_process(process, stream.processes())
        count = 0
        for entry in _entries(job, stream) if follow else stream.new(is_last=True):
            count += 1
            echo("\n".join(_entry_lines(entry)))
        if not count:
            # Mini-batches without rows have numbers, too, but count nowhere.
            if not (failed or process or text):
                _refuse_other_mini_batch(mini_batch, job)
            to_stderr("daskprs: the logs have nothing of that.")


def _entries(job: JobFolder, stream: LogStream) -> Iterator[LogEntry]:
    """Yield the entries of a job until it is over."""
    for is_over in looks(job, PAUSE):
        yield from stream.new(is_last=is_over)


def _entry_lines(entry: LogEntry) -> Iterator[str]:
    for line in entry.text.split("\n"):
        yield f"{entry.time} {entry.who:<12} {entry.what:<7} {line}".rstrip()


def _refuse_other_mini_batch(given: int | None, job: JobFolder) -> None:
    if given is None:
        return
    from daskprs._job.one_mini_batch import no_such_mini_batch
    from daskprs._job.status import state_of

    planned = state_of(job).planned
    if planned is not None and not 0 <= given < planned:
        raise no_such_mini_batch(given, planned)


def _refuse_other_process(given: str, there: list[str]) -> None:
    if given == DRIVER or any(given in (one, one.rpartition("/")[2]) for one in there):
        return
    shown = ", ".join(there[:MOST_PATHS]) + (", …" if len(there) > MOST_PATHS else "")
    has = f"the job has logs of {DRIVER} and of {shown}" if there else f"only the {DRIVER} has one"
    raise OptionError(Option("process", given), f": there is no log of it: {has}.")


@click.command("report", context_settings=CONTEXT, epilog=AFTER_REPORT)
@click.argument("folder")
@click.option("--text", is_flag=True, help="Show it here, in words, and write nothing.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page there. Default: report.html in FOLDER.",
)
def report(folder: str, *, text: bool, output: Path | None) -> None:
    """Say how the job in FOLDER went, and why: verdict, first cause, times, slowest parts.

    The report is a page for a browser, made from the folder alone, of a running job, too.
    """
    with every_end():
        from daskprs._job.report import report_of, write_report
        from daskprs._page.text import text_of

        job = job_at(folder)
        if text:
            echo(text_of(report_of(job)))
        else:
            if output is not None and not output.parent.is_dir():
                raise OptionError(Option("output", str(output)), ": there is no such folder.")
            echo_result(str(write_report(job, output)))


RECORD_COMMANDS = (origin, logs, report)
