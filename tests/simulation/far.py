"""Hosts that do not see the job folder: what is sent to them, and what they hold."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs._agent.node.site import NodeFolder, WorkerSite
from daskprs._inputs.frames.inline_data import Carried
from daskprs._inputs.source.pieces import PartitionSlice
from tests.simulation.keys import look_at_rows
from tests.simulation.partitions import Placed, Staging
from tests.simulation.promises import demand
from tests.simulation.world import now

if TYPE_CHECKING:
    import random

    from daskprs._agent.node.site import DriverInfo
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.mini_batch import MiniBatch

SNAPSHOT, SCRIPT = "snapshot0", "simulated.py"
CODE = "def run(mini_batch): ...\n"


class Reader:
    """The reader of a job, whose data only the driver has."""

    def load(self, mini_batch: MiniBatch) -> bytes:
        """Return the data of a mini-batch."""
        return self.pack(mini_batch.piece)

    def pack(self, piece: int) -> bytes:
        """Return, in the driver, what `unpack` needs."""
        return b"the data of %d" % piece

    def unpack(self, piece: int, body: bytes) -> bytes:
        """Return, in an agent, the data of a piece."""
        demand(body == self.pack(piece), f"{piece} carries {body!r}")
        return body

    def close(self) -> None:
        """There is nothing to close."""


def look_at(job: JobSpec, mini_batch: MiniBatch) -> None:
    """Demand what an agent needs for a mini-batch: its data, and the script."""
    piece, index = mini_batch.piece, mini_batch.index
    if isinstance(piece, Placed | PartitionSlice):
        demand(Staging.first_of(piece) == index, f"{index} has the piece {piece!r}")
        return
    if Staging.scenario.keyed is not None:
        look_at_rows(job, mini_batch, Staging.scenario.keyed)
        return
    if not job.far:
        demand(piece == index, f"{index} has the piece {piece!r}")
        return
    demand(piece == Carried(index, Reader().pack(index)), f"{index} has the piece {piece!r}")
    there = Path(job.script.source_directory or "", SCRIPT).read_text()
    demand(there == CODE, f"the script is {there!r}")


class _Seeing:
    """The site of a worker that sees the driver's folder."""

    def __init__(self, job: JobSpec) -> None:
        self.job = job
        self.folder = self.store = None

    def close(self) -> None:
        """There is nothing to close."""


def site_of(job: JobSpec, origin: DriverInfo, scratch: Path) -> Any:
    """In place of `WorkerSite`: where all hosts see the folder, nobody has to look."""
    if not origin.job_folder.file:
        return _Seeing(job)
    site = WorkerSite(job, origin, scratch)
    if site.store is not None:
        site.store.read = partial(_read, site.store)  # type: ignore[method-assign]
        now().process.at_end.append(partial(_let_go, site.store))
    return site


class Reading:
    """What befalls the bytes that a far host reads of its spools."""

    rng: ClassVar[random.Random]
    damaged: ClassVar[float] = 0.0
    """Share of the pieces in which a byte has changed …"""
    left: ClassVar[int] = 0
    """… until there were so many: a result of many pieces would never be whole."""


def _read(folder: NodeFolder, spool: str, offset: int, length: int) -> bytes:
    """Return bytes of a spool as a disk gives them, which may be about to break."""
    body = NodeFolder.read(folder, spool, offset, length)
    if not body or not Reading.left or Reading.rng.random() >= Reading.damaged:
        return body
    Reading.left -= 1
    changed = bytearray(body)
    changed[Reading.rng.randrange(len(body))] ^= 1 << Reading.rng.randrange(8)
    return bytes(changed)


def _let_go(folder: NodeFolder) -> None:
    """Release the lock of a folder, as the kernel does when its holder dies."""
    held, folder._held = folder._held, -1
    if held >= 0:
        os.close(held)
