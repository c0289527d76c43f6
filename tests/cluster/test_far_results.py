"""Results that are fetched from a node without the job folder: all of them, or none."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from daskprs._agent.node.site import NodeFolder
from daskprs._cluster.remote.transfer import bring
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import LeaseReturned
from daskprs._core.outcomes import Extent, Outcome, Results, Status
from daskprs._folders.job_folder import JobFolder

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [b"0:0\n", b"1:0\n1:1\n"]


def returned_rows(spool: Path) -> LeaseReturned:
    """Write rows into a spool of a node, and return the lease that has made them."""
    offset, outcomes = 0, []
    with spool.open("wb") as file:
        for index, rows in enumerate(ROWS):
            file.write(rows)
            extent = Extent(len(rows), zlib.crc32(rows), offset)
            outcomes.append(Outcome(index, 1, Status.RUN_DONE, 1, 1, 0.0, 0.0, 0.0, 0.0, extent))
            offset += len(rows)
    results = Results(ColumnBatch(outcomes), b"", spool.name, "")
    return LeaseReturned(0, "process000", results=(results,))


def brought(tmp_path: Path, *, flipped: int | None = None) -> tuple[Any, Path]:
    """Fetch rows of a node, of which a byte may have changed; return what came, and the spool."""
    here, node = JobFolder(tmp_path / "job"), NodeFolder(tmp_path / "node", "job0")
    for folder in (here.spools(1), node.job.spools(1)):
        folder.mkdir(parents=True)
    there = node.job.spools(1) / "0-process000"
    returned = returned_rows(there)
    if flipped is not None:
        body = bytearray(there.read_bytes())
        body[flipped] ^= 1
        there.write_bytes(body)

    def call(_: str, what: str, method: str, *given: Any) -> Any:
        assert what == "folder"
        return getattr(node, method)(*given)

    job: Any = SimpleNamespace(job_dir=str(here), epoch=1)
    result = bring(returned, call, "worker", job)  # type: ignore[arg-type]
    node.close()
    return result, here.spools(1) / there.name


def test_rows_lie_at_the_same_places_here(tmp_path: Path) -> None:
    """So the outcomes need not be changed."""
    result, spool = brought(tmp_path)
    assert result.results[0].spool == spool.name
    assert spool.read_bytes() == b"".join(ROWS)


def test_a_byte_that_has_changed_on_the_node_costs_the_lease(tmp_path: Path) -> None:
    """Its mini-batches run again: a commit of other bytes could never be published."""
    assert brought(tmp_path, flipped=6)[0] is None
