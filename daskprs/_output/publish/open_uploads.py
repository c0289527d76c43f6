"""Uploads that stay open: sent while a job runs, completed when it publishes.

S3 shows nothing of a multipart upload until the upload is completed. It names the upload by an id,
and each piece by a tag: plain values, by which any process can complete or abort the upload. The
job folder has a record of each upload, from before it begins until it is completed or aborted.
"""

from __future__ import annotations

import errno
import shutil
import time
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._system.atomic_file import write_json
from daskprs._system.regular_files import open_regular, read_json
from daskprs._system.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Future

HOLD_OPEN = {"s3", "s3a"}
"""Protocols of stores that hold an upload open until any process completes it. Those of Google and
Azure do not: see the page of data sets."""
PIECE_BYTES = 8 << 20
MOST_PIECES = 10_000
"""Most pieces that S3 allows."""
PIECES_AT_ONCE = 4
PAUSE_S = 60.0
"""Seconds without an upload, after one has failed."""
SLOWEST_BYTES_PER_S = 1 << 20
"""A process that takes longer for its part hangs; half of that time is for the upload."""
UPLOADS_AT_ONCE = 16
"""Uploads that are completed, or aborted, at the same time."""
RECORD = ".json"
FAILED = "failed"
"""File that says when an upload has failed, and why. All processes that write parts see it. The
library of a store tries for minutes before it gives up; without a pause each part would wait."""
TAGS = ("ETag", "ChecksumSHA256")
"""Fields of S3's answer to a piece, which the completion of the upload repeats."""


class OpenUploads(NamedTuple):
    """The open uploads of a data set. A plain value, since any process may write a part."""

    url: str
    """The URL of the data set."""
    records: str
    """The folder of the records."""
    timeout_s: float = 600.0
    """Seconds that a process has at least to write and upload a part."""

    def until_s(self, size_bytes: int) -> float:
        """Return when an upload of this size is given up that begins now, by a monotonic clock."""
        return time.monotonic() + max(self.timeout_s, size_bytes / SLOWEST_BYTES_PER_S) / 2

    def send(self, file: Path, name: str, is_unwanted: Callable[[], bool], until_s: float) -> None:
        """Upload a finished file, and leave the upload open.

        A store that fails, or is still at it at `until_s`, raises nothing here: the record says
        why, and publishing uploads the file again. Raise `OSError` when the record cannot be
        written.
        """
        if not file.stat().st_size:
            return  # an upload without a piece cannot be completed
        record = self._record(name)
        record.parent.mkdir(parents=True, exist_ok=True)
        earlier: dict[str, Any] = read_record(record)
        told: dict[str, Any] = {"url": f"{self.url}/{name}"}
        failed, place = Path(self.records, FAILED), dict[str, str]()
        filesystem: Any = None
        failure = read_record(failed)
        if abs(time.time() - failure.get("at", 0.0)) < PAUSE_S:  # clocks of nodes differ
            write_json(record, {**told, **earlier, "error": failure["error"]})
            return
        try:
            filesystem = _InTime(_filesystem(told), until_s)
            _abort(filesystem, earlier)  # of a process that died
            write_json(record, told)  # before it begins: it can be found by its name
            place = _place(filesystem, told)
            told["id"] = filesystem.call_s3("create_multipart_upload", **place)["UploadId"]
            write_json(record, told)
            told |= _sent(file, filesystem, {**place, "UploadId": told["id"]}, is_unwanted)
        except Exception as error:  # noqa: BLE001 - each store has errors of its own
            told["error"] = f"{type(error).__name__}: {error}"
            with suppress(OSError):
                write_json(failed, {"at": time.time(), "error": told["error"]})
        try:
            write_json(record, told)
        except OSError:  # the job may be over, and its folder gone
            with suppress(Exception):  # the error of the record counts; the upload is found by name
                if "id" in told:
                    _abort_one(filesystem, place, told["id"])
            raise

    def complete(self, files: dict[str, tuple[int, str]]) -> list[str]:
        """Complete the uploads of files, which have a size and a checksum.

        The store says afterwards which files are there: an upload may have been aborted. Return
        the errors of uploads that failed while the job ran. Any other error is the store's own.
        """
        found = {name: read_record(self._record(name)) for name in files}
        sent = [
            (self._record(name), told)
            for name, told in found.items()
            if (told.get("bytes"), told.get("crc32")) == files[name]
        ]
        if sent:
            filesystem = _filesystem(sent[0][1])
            _for_each(sent, lambda one: _complete(filesystem, *one))
        return [told["error"] for told in found.values() if "error" in told]

    def failure(self) -> str:
        """Return why the last upload that failed has done so; empty if none has failed."""
        error: str = read_record(Path(self.records, FAILED)).get("error", "")
        return error

    def abort(self, keep: Collection[str] = ()) -> str:
        """Abort all uploads but those of some files; return what is left open, and why."""
        return abort_uploads(Path(self.records), keep)

    def tidy_up(self, names: Collection[str]) -> str:
        """Abort all uploads, also those with the names of published files.

        S3 has begun such an upload when the answer with its id is lost, and the library asks again.
        Return what is left open, and why.
        """
        with suppress(Exception):  # each store has errors of its own; such uploads are rare
            filesystem = _filesystem({"url": self.url})
            place = _place(filesystem, {"url": self.url + "/"})
            for key, number in _open(filesystem, place):
                if key.removeprefix(place["Key"]) in names:
                    _abort_one(filesystem, {**place, "Key": key}, number)
        return self.abort()

    def _record(self, name: str) -> Path:
        return Path(self.records, name + RECORD)


class _InTime:
    """A store that is given up at some time, by a monotonic clock: it may hang."""

    def __init__(self, filesystem: Any, until_s: float) -> None:
        self._filesystem = filesystem
        self._begun_s, self._until_s = time.monotonic(), until_s

    def split_path(self, url: str) -> tuple[str, str, str | None]:
        """Return bucket, key and version."""
        place: tuple[str, str, str | None] = self._filesystem.split_path(url)
        return place

    def call_s3(self, method: str, **words: Any) -> Any:
        """Send a request, and return the answer."""
        left_s = self._until_s - time.monotonic()
        try:
            if left_s > 0:
                return self._filesystem.call_s3(method, timeout=left_s, **words)
        except TimeoutError:
            if time.monotonic() < self._until_s:
                raise
        msg = f"the store has not done it in {self._until_s - self._begun_s:.0f} s: {method}"
        raise TimeoutError(msg)


def abort_uploads(records: Path, keep: Collection[str] = ()) -> str:
    """Abort every upload with a record in a folder, but those of the files to keep.

    Return what is left open, and why, or an empty text. No driver and no worker may be at work in
    the job folder. The job loses nothing: a resume uploads again what it publishes.
    """
    kept = {Path(records, name + RECORD) for name in keep}
    left = [record for record in sorted(records.rglob("*" + RECORD)) if record not in kept]
    try:
        Path(records, FAILED).unlink(missing_ok=True)  # the next driver may have other keys
        if left:
            filesystem = _filesystem(read_record(left[0]))
            _for_each(left, lambda record: _drop(filesystem, record))
    except Exception as error:  # noqa: BLE001 - each store has errors of its own
        left = [record for record in left if record.exists()]
        return (
            f"{len(left)} uploads are left open, and the store may charge for what they hold. One "
            f"is that of {read_record(left[0]).get('url')}, which cannot be aborted: "
            f"{type(error).__name__}: {error}. A resume of the job tries again."
        )
    if not kept:
        shutil.rmtree(records, ignore_errors=True)
    return ""


def _drop(filesystem: Any, record: Path) -> None:
    _abort(filesystem, read_record(record))
    record.unlink(missing_ok=True)


def _sent(
    file: Path, filesystem: Any, place: dict[str, str], is_unwanted: Callable[[], bool]
) -> dict[str, Any]:
    """Send the pieces of a file, some at a time; return what its record says of them."""

    def send(number: int, piece: bytes) -> dict[str, Any]:
        made = filesystem.call_s3("upload_part", **place, PartNumber=number, Body=piece)
        return {"PartNumber": number, **{tag: made[tag] for tag in TAGS if tag in made}}

    piece_bytes = max(PIECE_BYTES, -(-file.stat().st_size // MOST_PIECES))
    size = checksum = number = 0
    pieces: list[dict[str, Any]] = []
    waiting: deque[Future[dict[str, Any]]] = deque()
    with open_regular(file) as opened, ThreadPoolExecutor(PIECES_AT_ONCE) as threads:
        while piece := opened.read(piece_bytes):
            if is_unwanted():
                return {}
            size, checksum, number = size + len(piece), zlib.crc32(piece, checksum), number + 1
            waiting.append(threads.submit(send, number, piece))
            if len(waiting) > PIECES_AT_ONCE:
                pieces.append(waiting.popleft().result())
        pieces += [one.result() for one in waiting]
    return {"pieces": pieces, "bytes": size, "crc32": f"{checksum:08x}"}


def _complete(filesystem: Any, record: Path, told: dict[str, Any]) -> None:
    """Complete an upload, unless a driver that died has done it, or the store has aborted it."""
    place = {**_place(filesystem, told), "UploadId": told["id"]}
    try:
        pieces = {"Parts": told["pieces"]}
        filesystem.call_s3("complete_multipart_upload", **place, MultipartUpload=pieces)
        record.unlink()
    except OSError as error:
        # Stores answer the completion of an aborted upload in different ways. Asked for its pieces,
        # all say that it is gone.
        lacks_pieces = error.errno == errno.EINVAL
        if not lacks_pieces and _is_open(filesystem, place):
            raise


def _is_open(filesystem: Any, place: dict[str, str]) -> bool:
    try:
        filesystem.call_s3("list_parts", **place, MaxParts=1)
    except FileNotFoundError:
        return False
    return True


def _abort(filesystem: Any, told: dict[str, Any]) -> None:
    """Abort the upload of a record, and those with its name whose ids were lost with an answer."""
    if not told:
        return
    place, ids = _place(filesystem, told), {told["id"]} if "id" in told else set[str]()
    with suppress(PermissionError) if ids else nullcontext():  # keys need not allow to list
        ids |= {number for key, number in _open(filesystem, place) if key == place["Key"]}
    for number in ids:
        _abort_one(filesystem, place, number)


def _abort_one(filesystem: Any, place: dict[str, str], number: str) -> None:
    with suppress(FileNotFoundError):  # completed, or aborted by the store
        filesystem.call_s3("abort_multipart_upload", **place, UploadId=number)


def _open(filesystem: Any, place: dict[str, str]) -> list[tuple[str, str]]:
    """Return the names and ids of open uploads whose names begin with that of a place."""
    uploads: list[tuple[str, str]] = []
    page: dict[str, Any] = {"IsTruncated": True}
    after: dict[str, str] = {}
    # A page has a thousand uploads at most: without the others, some were left open.
    while page.get("IsTruncated"):
        try:
            page = filesystem.call_s3(
                "list_multipart_uploads", Bucket=place["Bucket"], Prefix=place["Key"], **after
            )
        except FileNotFoundError:  # there is not even a bucket
            break
        uploads += [(one["Key"], one["UploadId"]) for one in page.get("Uploads", ())]
        if page.get("IsTruncated"):
            after = {one: page[f"Next{one}"] for one in ("KeyMarker", "UploadIdMarker")}
    return uploads


def _for_each(items: Iterable[Any], do: Callable[[Any], None]) -> None:
    """Do something for each item, some at a time; the first error ends it."""
    threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, "daskprs-uploads")
    try:
        for _ in threads.map(do, items):
            pass
    finally:
        threads.shutdown(cancel_futures=True)


def _filesystem(told: dict[str, Any]) -> Any:
    return open_store(told["url"])[0]


def _place(filesystem: Any, told: dict[str, Any]) -> dict[str, str]:
    bucket, key, _ = filesystem.split_path(told["url"])
    return {"Bucket": bucket, "Key": key}


def read_record(record: Path) -> dict[str, Any]:
    """Return what a record tells; nothing if it cannot be read."""
    try:
        told: dict[str, Any] = read_json(record)
    except (OSError, ValueError):
        return {}
    return told
