"""Results too large for a message, brought from a node that does not see the job folder."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.cluster.node_service import Unreachable
from daskprs.core.lease import Results
from daskprs.core.packed import Packed

if TYPE_CHECKING:
    from daskprs.cluster.node_service import NodeCalls
    from daskprs.core.lease import LeaseReturned
    from daskprs.core.outcomes import Extent, Outcome

FORMS = ("text", "typed")
CHUNK_BYTES = 8 << 20


class Damaged(Exception):  # noqa: N818 - what it is
    """A result arrived that is not the one that was made."""


class Brought:
    """A lease that has ended, with all that it made, in place of its future."""

    def __init__(self, returned: LeaseReturned | None) -> None:
        self.returned = returned
        """What it came back with; None if its worker went before that was here."""


def bring(returned: LeaseReturned, call: NodeCalls, worker: str, spill: Path) -> Brought | None:
    """Fetch the files that a lease has left; None if its worker has gone meanwhile.

    What arrives damaged is as good as lost: its mini-batch runs again.
    """
    try:
        return Brought(_all_of(returned, call, worker, spill))
    except (Unreachable, Damaged):
        return None


def _all_of(returned: LeaseReturned, call: NodeCalls, worker: str, spill: Path) -> LeaseReturned:
    return replace(
        returned,
        results=tuple(_brought(results, call, worker, spill) for results in returned.results),
    )


def _brought(results: Results, call: NodeCalls, worker: str, spill: Path) -> Results:
    if not any(file for form in FORMS for file in results.outcomes.column(f"{form}.file")):
        return results
    outcomes = (_here(outcome, call, worker, spill) for outcome in results.outcomes)
    return Results(Packed(outcomes), results.payload)


def _here(outcome: Outcome, call: NodeCalls, worker: str, spill: Path) -> Outcome:
    changes: dict[str, Any] = {}
    for form in FORMS:
        extent: Extent | None = getattr(outcome, form)
        if extent is not None and extent.file is not None:
            changes[form] = extent._replace(file=_fetched(extent, call, worker, spill))
    return outcome._replace(**changes)


def _fetched(extent: Extent, call: NodeCalls, worker: str, spill: Path) -> str:
    """Copy a file, piece by piece, and return where it is now."""
    there = str(extent.file)
    here = spill / f"{zlib.crc32(worker.encode()):08x}-{Path(there).name}"
    checksum = at = 0
    with here.open("wb") as file:
        while at < extent.length:
            wanted = min(CHUNK_BYTES, extent.length - at)
            piece = call(worker, "folder", "read", there, at, wanted)
            if not piece:
                break
            file.write(piece)
            checksum, at = zlib.crc32(piece, checksum), at + len(piece)
    if (at, checksum) != (extent.length, extent.checksum):
        here.unlink()
        msg = (
            f"a result of {extent.length} bytes with the checksum {extent.checksum:08x} came from "
            f"{worker} as {at} bytes with {checksum:08x}"
        )
        raise Damaged(msg)
    call(worker, "folder", "forget", there)
    return os.fspath(here)
