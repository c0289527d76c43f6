"""Sending a folder or file to a node: it is packed on the fly, without a local copy."""

from __future__ import annotations

import hashlib
import tarfile
from typing import TYPE_CHECKING, Any

from daskprs.cluster.remote.node_service import Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.cluster.remote.node_service import NodeCalls

PIECE_BYTES = 8 << 20
UNPACK_S = 3600.0
"""Seconds in which a node must unpack an archive, such as a model of many gigabytes."""


def send(place: Path, name: str, key: str, call: NodeCalls, worker: str) -> None:
    """Send a file or folder to the folder of a worker's node.

    Parameters
    ----------
    place
        The file or folder to send; links in it are followed.
    name
        Its name on the node; ``.`` to send only the contents of a folder.
    key
        The key under which it is unpacked.
    call, worker
        How to reach the node.

    """
    sink = _Sink(call, worker, key)
    file: Any = sink  # a tarfile in stream mode never seeks, and only needs write()
    with tarfile.open(fileobj=file, mode="w|", dereference=True) as archive:
        archive.add(place, arcname=name)
    sink.flush()
    digest = sink.sha256.hexdigest()
    if not call(worker, "folder", "unpack", key, digest, within_s=UNPACK_S):
        raise Unreachable(worker)  # another sender has written to the archive: try again


class _Sink:
    """A file that is written on a node."""

    def __init__(self, call: NodeCalls, worker: str, key: str) -> None:
        self.sha256 = hashlib.sha256()
        self._call = call
        self._worker = worker
        self._key = key
        self._offset = 0
        self._piece = bytearray()

    def write(self, data: Any) -> int:
        """Buffer some bytes, and send full pieces."""
        self._piece += data
        if len(self._piece) >= PIECE_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Send the buffered bytes."""
        piece, self._piece = bytes(self._piece), bytearray()
        self.sha256.update(piece)
        self._call(self._worker, "folder", "receive", self._key, self._offset, piece)
        self._offset += len(piece)
