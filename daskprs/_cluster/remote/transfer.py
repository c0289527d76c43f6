"""Transfer of files: inputs are sent to a node, and results too large for a message fetched."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from daskprs._cluster.remote.node_service import Unreachable
from daskprs._folders.job_folder import JobFolder
from daskprs._output.spool import MODE, Region, write_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.remote.node_service import NodeCalls
    from daskprs._core.lease import LeaseReturned
    from daskprs._core.outcomes import Results

PIECE_BYTES = 8 << 20
UNPACK_S = 3600.0
"""Seconds in which a node must unpack an archive, such as a model of many gigabytes."""


def send(
    place: Path,
    name: str,
    key: str,
    call: NodeCalls,
    worker: str,
    left_out: Collection[str] = (),
) -> None:
    """Send a file or folder to the folder of a worker's node; links in it are followed.

    `name` is its name on the node; ``.`` sends only the contents of a folder. It is unpacked under
    the `key`. The paths of `left_out` are below the `place`.
    """
    names = {os.path.join(name, path) for path in left_out}  # noqa: PTH118 - as tarfile does
    sink = _Sink(call, worker, key)
    file: Any = sink  # a tarfile in stream mode never seeks, and only needs write()
    with tarfile.open(fileobj=file, mode="w|", dereference=True) as archive:
        archive.add(place, name, filter=lambda found: None if found.name in names else found)
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


class Damaged(Exception):  # noqa: N818 - what it is
    """A result arrived damaged."""


def bring(
    returned: LeaseReturned, call: NodeCalls, worker: str, job: JobSpec
) -> LeaseReturned | None:
    """Return a lease with its large results; None if its worker has gone meanwhile.

    A damaged result counts as lost, so its mini-batch runs again.
    """
    fetch = _Fetch(call, worker, job)
    try:
        results = tuple(map(fetch.rows, returned.results))
    except (Unreachable, Damaged):
        return None
    return replace(returned, results=results)


class _Fetch:
    """Copies regions of a node's spools to the same places in local spools of the same names."""

    def __init__(self, call: NodeCalls, worker: str, job: JobSpec) -> None:
        self._call = call
        self._worker = worker
        self._folder = JobFolder(job.job_dir)
        epoch = job.epoch
        self._spools = {
            "text": self._folder.spools(epoch),
            "typed": self._folder.typed_spools(epoch),
        }

    def rows(self, results: Results) -> Results:
        """Fetch the rows of some outcomes; return the results, with an error of the local disk."""
        if not results.spool:
            return results
        try:
            for form, folder in self._spools.items():
                parts = (f"{form}.{part}" for part in ("offset", "length", "checksum"))
                for offset, length, checksum in results.outcomes.columns(*parts):
                    if length:
                        here = folder / results.spool
                        self._region(here, Region(offset, length, checksum))
        except OSError as error:
            return results._replace(unwritten=str(error))
        return results

    def _region(self, here: Path, region: Region) -> None:
        """Copy a region, piece by piece."""
        offset, length, checksum = region
        there = os.fspath(here.relative_to(self._folder.path))
        copied = crc = 0
        fd = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            while copied < length:
                wanted = min(PIECE_BYTES, length - copied)
                piece = self._piece(there, offset + copied, wanted)
                if not piece:
                    break
                write_at(fd, memoryview(piece), offset + copied)
                crc, copied = zlib.crc32(piece, crc), copied + len(piece)
        finally:
            os.close(fd)
        if (copied, crc) != (length, checksum):
            msg = (
                f"a result of {length} bytes with the checksum {checksum:08x} came from "
                f"{self._worker} as {copied} bytes with {crc:08x}"
            )
            raise Damaged(msg)
        # Not before its checksum was right here: an answer may be lost, and the bytes be asked for
        # again.
        self._call(self._worker, "folder", "forget", there, offset, length)

    def _piece(self, spool: str, offset: int, length: int) -> bytes:
        try:
            piece: bytes = self._call(self._worker, "folder", "read", spool, offset, length)
        except OSError as error:  # of the node's disk, which is not the one that is written to
            raise Damaged(str(error)) from error
        return piece
