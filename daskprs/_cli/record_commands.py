"""Commands that show what the folder of a job has recorded of its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from daskprs._cli.as_json import JSON, show_json
from daskprs._cli.exit_codes import echo_result, every_end
from daskprs._cli.job_commands import job_at
from daskprs._cli.options import CONTEXT
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._job.origin import AttemptOf, InputOf, Origin

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
MOST_PATHS = 5
"""Most files of a mini-batch that are shown to people; ``--json`` has all."""


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
            echo_result("\n".join(_origin_lines(found)))


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


RECORD_COMMANDS = (origin,)
