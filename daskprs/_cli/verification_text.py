"""What ``daskprs verify`` shows: counts, what was compared, and each finding with its next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._report.humanize import amount, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._job.verification import Verification
    from daskprs._output.proof import Finding

MOST_SHOWN = 20
"""Most findings that are shown to people; ``--json`` has all."""
MOST_RANGES = 5


def verification_lines(found: Verification) -> Iterator[str]:
    """Yield the lines about a verification."""
    done, items = found.mini_batches, found.items
    said = counted(len(found.findings), "finding")
    if found.is_proved:
        said = "all proved" if found.is_complete else "all proved that is committed so far"
    read = f"{counted(found.read_files, 'file')}, {amount(found.read_bytes)}"
    yield f"<daskprs verify {said}>"
    yield f"  job           {found.status}"
    for title, counts in (("mini-batches", done), ("items", items)):
        parts = f"{counts.succeeded:,} committed + {counts.failed:,} failed"
        yield f"  {title:<14}{counts.total:,} = {parts}"
    yield f"  input         {found.input}"
    yield f"  read          {read} of journals, rows and output"
    if found.output is not None:
        yield f"  output        {found.output}"
    for note in found.notes:
        yield f"  note          {note}"
    for finding in found.findings[:MOST_SHOWN]:
        yield from _lines_of(finding)
    if len(found.findings) > MOST_SHOWN:
        yield f"and {len(found.findings) - MOST_SHOWN:,} more, which --json lists"


def _lines_of(finding: Finding) -> Iterator[str]:
    place = ""
    if finding.byte_range is not None:
        start, end = finding.byte_range
        place = f" (bytes {start:,} to {end:,})" if end > start else ""
    yield f"{finding.where}{place} {finding.what}."
    if finding.mini_batches:
        items = f", {counted(finding.items, 'item')} of the input" if finding.items else ""
        yield f"  concerns      {_named(finding.mini_batches)}{items}"
    yield f"  next          {finding.next_step}"


def _named(ranges: Sequence[tuple[int, int]]) -> str:
    """Return the numbers of mini-batches in words."""
    shown = [f"{one:,}" if one == last else f"{one:,} to {last:,}" for one, last in ranges]
    count = sum(last - first + 1 for first, last in ranges)
    more = "" if len(shown) <= MOST_RANGES else f" and more, {count:,} in all"
    return f"mini-batch{'' if count == 1 else 'es'} {', '.join(shown[:MOST_RANGES])}{more}"
