"""A file whose digest is made on other threads while it is written."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

PIECE_BYTES = 8 << 20
THREADS = 4
"""SHA-256 of a gigabyte takes 0.9 s on one, 0.35 s on four; more get no more out of memory."""


class HashingWriter:
    """Passes on what is written, and digests it from the same memory, without a copy.

    What is written must not change afterwards: Arrow buffers, not a buffer used again.

    Parameters
    ----------
    file
        The file that the bytes are passed on to.

    """

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._piece: list[Any] = []
        self._piece_bytes = 0
        self._digests: list[Future[bytes]] = []
        self._threads = ThreadPoolExecutor(THREADS, "digest")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def write(self, data: Any) -> int:
        """Write Arrow's buffer, or bytes."""
        self._piece.append(data)
        self._piece_bytes += len(data)
        if self._piece_bytes >= PIECE_BYTES:
            self._begin()
        return self._file.write(data)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def flush(self) -> None:
        """Do as files do."""
        self._file.flush()

    def digest(self) -> str:
        """Return the digest of all that was written."""
        self._begin()
        whole = hashlib.sha256()
        for one in self._digests:
            whole.update(one.result())
        return whole.hexdigest()

    def _begin(self) -> None:
        self._digests.append(self._threads.submit(_digest, self._piece))
        self._piece, self._piece_bytes = [], 0


def _digest(buffers: list[Any]) -> bytes:
    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()
