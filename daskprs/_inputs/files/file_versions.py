"""The version of a file: as the plan has it, and as it is found when the file is read.

All mini-batches of a job come from the same bytes, or the job fails: a file that is rewritten,
replaced or grown while they run is another input.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.source.input_file import InputFile, is_url, open_binary
from daskprs._system.file_lock import locked
from daskprs._system.stores import open_store
from daskprs.errors import InputChanged, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

VERSION_KEYS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
"""Store keys whose values differ between two versions of a file, the best first."""
MOST_FOLDERS = 20
"""Most folders of an input that are listed each by itself; more of them are listed at once."""
LISTED_FROM = 10
"""Number of single files of a folder from which on the whole folder is listed."""
NS = 1_000_000_000

TIME_RECORD = struct.Struct("<Qq")
"""A digest of the path, and the time in nanoseconds."""
TIME_RECORDS = 1 << 20
"""Places in the table of times; the file is sparse, so that only used places take disk space."""
MOST_TRIED = 64
"""Places that are tried for a file; a table that is so full does not record its time."""


def version_of(info: dict[str, Any]) -> str:
    """Return the version of a file from its store; empty if the store has none."""
    return next(iter(_versions_in(info)), "")


def _versions_in(info: dict[str, Any]) -> list[str]:
    return [str(info[key]) for key in VERSION_KEYS if info.get(key)]


# ---- a file that is read ----


def refuse_changed(file: InputFile, opened: IO[bytes]) -> None:
    """Compare an open file with the plan; another size or version is an `InputChanged`."""
    if not is_url(file.path):
        _compare_status(file, os.fstat(opened.fileno()))
    elif isinstance(details := getattr(opened, "details", None), dict):
        _compare_info(file, details)


def is_as_planned(path: str, size: int | None, version: str) -> bool:
    """Say whether a path certainly names the planned file, with a single call of the system.

    False asks for a closer comparison, since the path may be a URL, or the host may have times of
    its own. A million files are compared three times each.
    """
    if _times_seen is not None:
        return False
    try:
        status = os.stat(path)  # noqa: PTH116 - a million of them
    except (OSError, ValueError):
        return False
    return status.st_size == size and str(status.st_mtime_ns) == version


def refuse_changed_at(file: InputFile) -> None:
    """Compare a file of this machine with the plan; a file that is gone has not changed."""
    try:
        status = os.stat(file.path)  # noqa: PTH116 - a million of them
    except OSError:
        return
    _compare_status(file, status)


def refuse_changed_after_error(file: InputFile, opened: IO[bytes] | None) -> None:
    """Compare a file that could not be read with the plan: a change is the cause of the error.

    A store is asked for the current version.
    """
    if is_url(file.path):
        with suppress(InputError):  # the store does not answer, which may be the error itself
            _compare_info(file, _info_now(file.path))
    elif opened is not None and not opened.closed:
        refuse_changed(file, opened)
    else:
        refuse_changed_at(file)


@contextmanager
def opened_unchanged(file: InputFile) -> Iterator[IO[bytes]]:
    """Yield an open file; compare it with the plan on opening, after an error, and at the end."""
    with open_binary(file.path) as opened:
        refuse_changed(file, opened)
        try:
            yield opened
        except Exception:  # each reader has errors of its own for bytes that change under it
            refuse_changed_after_error(file, opened)
            raise
        refuse_changed(file, opened)


# ---- all files of an input ----


def refuse_changed_files(files: Iterable[InputFile]) -> None:
    """Compare all files with the plan, those of a store by listing their folders.

    Files that are gone have not changed. A store that does not answer is an `InputError`.
    """
    remote: dict[str, FileList] = defaultdict(FileList)
    for file in files:
        if is_as_planned(file.path, file.size_bytes, file.version):
            continue
        if not is_url(file.path):
            refuse_changed_at(file)
        elif not is_url(file.path.partition("::")[0]) or "::" not in file.path:
            remote[_root_of(file)].add(file)
    for root, below in remote.items():
        _refuse_changed_below(root, below)


def _root_of(file: InputFile) -> str:
    """Return the folder that the caller named, or the folder of a file that the caller named."""
    if file.relative and file.path.endswith(f"/{file.relative}"):
        return file.path.removesuffix(f"/{file.relative}")
    return _folder_of(file.path)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _refuse_changed_below(root: str, files: FileList) -> None:
    infos = _listed(root, files)
    for file in files:
        info = infos.get(file.path)
        if info is None and not (file.relative and infos):
            info = _info_now(file.path)
        _compare_info(file, info or {})


def _listed(root: str, files: FileList) -> dict[str, dict[str, Any]]:
    """Return a store's entries for the files below a folder, by path; none for a few files."""
    few = len(files) < LISTED_FROM and not any(file.relative for file in files)
    if few or root.startswith(("http:", "https:")):
        return {}
    folders = {_folder_of(file.path) for file in files}
    infos: dict[str, dict[str, Any]] = {}
    for folder in folders if len(folders) <= MOST_FOLDERS else [root]:
        filesystem, place = _filesystem(folder)
        with _store_errors(folder), suppress(FileNotFoundError, PermissionError):
            found = (
                {info["name"]: info for info in filesystem.ls(place, detail=True)}
                if len(folders) <= MOST_FOLDERS
                else filesystem.find(place, detail=True)
            )
            infos |= {folder + name.removeprefix(place): info for name, info in found.items()}
    return infos


def _info_now(url: str) -> dict[str, Any]:
    """Return a store's current entry for a file; empty if the file is gone."""
    filesystem, place = _filesystem(url)
    with _store_errors(url), suppress(FileNotFoundError):
        info: dict[str, Any] = filesystem.info(place)
        return info
    return {}


def _filesystem(url: str) -> tuple[Any, str]:
    filesystem, place = open_store(url)
    filesystem.invalidate_cache()
    return filesystem, place.rstrip("/")


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each store has errors of its own
        msg = (
            f"{url}: the store does not say whether the input has changed during the job: {error}. "
            "Resume the job when the store can be reached."
        )
        raise InputError(msg) from error


# ---- times on a host ----


class TimesSeen:
    """A table in a file, shared by all processes of a host: the first recorded time of each path.

    The file need not exist. Where it cannot be used, as on a full disk, each time is the first.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd = -1
        self._lock = threading.Lock()
        self._last = ("", 0)

    def first(self, path: str, time_ns: int) -> int:
        """Return the first recorded time of a file; the given time if there was none."""
        with self._lock:
            if self._last[0] != path:
                try:
                    self._last = path, self._recorded(path, time_ns)
                except OSError:
                    return time_ns
            return self._last[1]

    def _recorded(self, path: str, time_ns: int) -> int:
        if self._fd < 0:
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        key = int.from_bytes(digest, "little") or 1
        with locked(self._fd):
            return self._found(key, time_ns)

    def _found(self, key: int, time_ns: int) -> int:
        for step in range(MOST_TRIED):
            offset = (key + step) % TIME_RECORDS * TIME_RECORD.size
            record = os.pread(self._fd, TIME_RECORD.size, offset).ljust(TIME_RECORD.size, b"\0")
            other, first_ns = TIME_RECORD.unpack(record)
            if other == key:
                return int(first_ns)
            if other == 0:
                os.pwrite(self._fd, TIME_RECORD.pack(key, time_ns), offset)
                break
        return time_ns


_times_seen: TimesSeen | None = None


def compare_with_times_seen(table: Path) -> None:
    """Compare times with the first ones seen on this host: its replicas have times of their own.

    The table is the file of these times, which all processes of the host use.
    """
    global _times_seen  # noqa: PLW0603 - a process is on one host, whatever it reads
    _times_seen = TimesSeen(table)


# ---- comparing ----


def _compare_status(file: InputFile, status: os.stat_result) -> None:
    time_ns = status.st_mtime_ns
    version = str(time_ns)
    then = file.version
    if _times_seen is not None:
        then = str(_times_seen.first(file.path, time_ns))
    if status.st_size != file.size_bytes or version != then:
        raise _changed(file, then, status.st_size, version)


def _compare_info(file: InputFile, info: dict[str, Any]) -> None:
    size = info.get("size")
    versions = _versions_in(info)
    resized = size is not None and file.size_bytes is not None and size != file.size_bytes
    if resized or (file.version and versions and file.version not in versions):
        raise _changed(file, file.version, size, version_of(info))


def _changed(file: InputFile, then: str, size: int | None, version: str) -> InputChanged:
    described = _version if is_url(file.path) else _time
    msg = (
        f"{file.path}: the file has changed since the job began: it had {_bytes(file.size_bytes)}"
        f"{described(then)}, and has {_bytes(size)}{described(version)}. Wait until nothing writes "
        "to the input."
    )
    return InputChanged(msg)


def _bytes(size: int | None) -> str:
    return "an unknown size" if size is None else f"{size:,} bytes"


def _version(version: str) -> str:
    return f" of version {version}" if version else ""


def _time(time_ns: str) -> str:
    seconds, ns = divmod(int(time_ns), NS)
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a time beyond the year 9999
        return f" of {time_ns} ns"
    return f" of {when:%Y-%m-%d %H:%M:%S}.{ns:09} UTC"
