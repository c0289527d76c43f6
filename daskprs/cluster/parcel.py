"""The snapshot of a script on its way to nodes: one archive, sent in pieces."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.cluster.node_service import Unreachable
from daskprs.job_folder import whole_file

if TYPE_CHECKING:
    from daskprs.cluster.node_service import NodeCalls

PIECE_BYTES = 8 << 20


class Parcel:
    """Packs a snapshot when the first node needs it.

    Parameters
    ----------
    snapshot
        The folder, named by its content; None where a script has none.
    scratch
        Where the archive is put.

    """

    def __init__(self, snapshot: str | None, scratch: Path) -> None:
        self._snapshot = Path(snapshot or "")
        self._archive = scratch / f"{self._snapshot.name}.tar"
        self._sha256 = ""
        self._packing = threading.Lock()

    def send(self, call: NodeCalls, worker: str) -> None:
        """Send the snapshot to the folder of a worker's node."""
        with self._packing:
            if not self._sha256:
                self._sha256 = self._packed()
        digest = self._snapshot.name
        with self._archive.open("rb") as file:
            offset = 0
            while piece := file.read(PIECE_BYTES):
                call(worker, "folder", "receive", digest, offset, piece)
                offset += len(piece)
        if not call(worker, "folder", "unpack", digest, self._sha256):
            raise Unreachable(worker)  # somebody else has written to it: once more

    def close(self) -> None:
        """Remove the archive."""
        self._archive.unlink(missing_ok=True)

    def _packed(self) -> str:
        with (
            whole_file(self._archive, durable=False) as file,
            tarfile.open(fileobj=file, mode="w") as archive,
        ):
            archive.add(self._snapshot, arcname=".")
        with self._archive.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
