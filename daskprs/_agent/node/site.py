"""A worker's site: which of the driver's files it sees, and its node's folder for the others.

A node that does not see the driver's job folder has one of its own, for received files, results
and logs. It lies beside the scratch space of the node's Dask workers. All workers that see the same
disk share it. Each worker holds a lock, which the kernel releases when the worker dies. The last
worker to leave removes the folder; after a crash the next job removes it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.script.side_inputs import placed, version_of
from daskprs._agent.script.snapshot import extract, is_seen, link_into
from daskprs._folders.job_folder import JobFolder
from daskprs._system.file_lock import boot_id, is_last, shared
from daskprs._system.hidden_values import HiddenValues
from daskprs._system.log_cap import LIMIT_BYTES, give_back
from daskprs._system.private_folder import keep_private
from daskprs._system.regular_files import OTHERS_WRITE
from daskprs._system.remove_tree import remove_tree
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    from daskprs._agent.protocol.messages import JobSpec, LinkedFile, ScriptSpec, SideInput

THIS_PROCESS = secrets.token_hex(8)
"""A random token of this process; a worker compares it with the driver's."""
NEWS_BYTES = 4 << 20
"""Bytes of all logs that one call of `NodeFolder.news` returns …"""
NEWS_OF_ONE_BYTES = 1 << 20
"""… and bytes of one log, so that an endlessly growing log does not hold up the others."""
LOCK = ".lock"
PART = ".part"
WHOLE = "-whole"


class ProbeFile(NamedTuple):
    """A file written by the driver, and its content; a process that can read it sees the folder."""

    file: str
    token: str

    def is_seen(self) -> bool:
        """Say whether this process can read the file and write to its folder."""
        place = Path(self.file)
        trial = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
        try:
            if place.read_text() != self.token:
                return False
            trial.touch(exist_ok=False)
            trial.unlink()
        except (OSError, ValueError):
            return False
        return True


def new_probe(place: Path, removing: ExitStack) -> ProbeFile:
    """Write a probe file, and return it; it is removed when `removing` is closed."""
    probe = ProbeFile(str(place), secrets.token_hex(16))
    removing.callback(place.unlink, missing_ok=True)
    place.write_text(probe.token)
    return probe


class DriverInfo(NamedTuple):
    """Data by which a worker finds out whether it shares the driver's process and job folder."""

    driver: str
    """`THIS_PROCESS` of the driver."""
    job_folder: ProbeFile
    reader: bytes
    """The pickled reader for agents that do not see the job folder."""


class WorkerSite:
    """A worker's place: which of the driver's files it sees, and where the others are.

    The given job has the driver's paths. Files that the driver sends go below `scratch`.
    """

    def __init__(self, job: JobSpec, origin: DriverInfo, scratch: Path) -> None:
        self.folder: NodeFolder | None = None
        """The job folder on this node, if the driver's folder is not visible here."""
        self.store: NodeFolder | None = None
        """The folder for files that the driver sends; the same as `folder` where that is set."""
        self.wanted: tuple[str, ...] = ()
        """The keys of the files that the driver has to send."""
        self.job = job
        """The job, with this node's paths."""
        if origin.driver != THIS_PROCESS:
            self._look_around(origin, scratch)

    def close(self) -> None:
        """Release the folder."""
        if self.store is not None:
            with suppress(OSError):
                self.store.close()

    def lacks(self) -> list[str]:
        """Return the keys of the files that have not been received yet."""
        store = self.store
        return [] if store is None else [k for k in self.wanted if not store.snapshot(k).exists()]

    def _look_around(self, origin: DriverInfo, scratch: Path) -> None:
        job, far = self.job, not origin.job_folder.is_seen()
        unseen = [one for one in job.side_inputs if version_of(Path(one.path)) != one.version]
        linked = job.script.linked
        sees_linked = all(map(is_seen, linked))
        if not far and not unseen and sees_linked:
            return
        self.store = store = NodeFolder(scratch / f"daskprs-{os.getuid()}", job.job_id)
        self.wanted = tuple(dict.fromkeys(one.key for one in unseen))
        if unseen:
            self.job = _with_side_inputs(job, unseen, store)
        if job.script.source_directory is not None and (far or not sees_linked):
            key = snapshot_key(job.script, is_whole=not sees_linked)
            self.wanted += (key,)
            self.job = _with_script(self.job, store.snapshot(key))
            if sees_linked:
                store.links[key] = linked
        if far:
            self.folder = store
            self.job = self.job._replace(reader=origin.reader, job_dir=str(store.job), far=True)


def snapshot_key(script: ScriptSpec, *, is_whole: bool) -> str:
    """Return the key under which a script's snapshot is sent: its name, or that of a whole one.

    In a whole one, the originals are in the place of links.
    """
    name = Path(script.source_directory or "").name
    return f"{name}{WHOLE}" if is_whole else name


def _with_side_inputs(job: JobSpec, unseen: list[SideInput], store: NodeFolder) -> JobSpec:
    here = tuple(
        one.below(store.snapshot(one.key)) if one in unseen else one for one in job.side_inputs
    )
    moved = [(there.path, now.path) for there, now in zip(job.side_inputs, here, strict=True)]
    variables = placed(job.environment.values(), moved)
    return job._replace(
        side_inputs=here,
        arguments=placed(job.arguments, moved),
        environment=HiddenValues(zip(job.environment, variables, strict=True)),
    )


def _with_script(job: JobSpec, here: Path) -> JobSpec:
    script, there = job.script, job.script.source_directory or ""
    file = script.file and str(here / Path(script.file).relative_to(there))
    return job._replace(script=script._replace(source_directory=str(here), file=file))


class LogPiece(NamedTuple):
    """Bytes of a log, and their place in it."""

    log: str
    """The log's path below the log folder."""
    offset: int
    body: bytes


class NodeFolder:
    """A job folder on a node, shared by its workers; `root` is the parent of all such folders."""

    def __init__(self, root: Path, job_id: str) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_planted(root)
        self.job = JobFolder(root / job_id)
        self._lock = root / f"{job_id}{LOCK}"
        self._held = shared(self._lock)
        self._known: dict[str, int] = {}
        """The `known` of the last call of `news`: bytes of each log."""
        self.links: dict[str, tuple[LinkedFile, ...]] = {}
        """The large files of this node that belong into a snapshot, by its key."""
        self.job.create()
        _sweep(root)
        status = self.job.path.stat()
        self.id = f"{boot_id()}.{status.st_dev}.{status.st_ino}"
        """The folder's id: the same for all workers that use the folder."""

    # ---- the snapshot ----

    def snapshot(self, digest: str) -> Path:
        """Return the folder of a snapshot; it exists only when it is complete."""
        return self.job.snapshot / digest

    def receive(self, digest: str, offset: int, body: bytes) -> None:
        """Write some bytes of a snapshot's archive; offset 0 starts a new archive."""
        archive = self._archive(digest)
        archive.parent.mkdir(exist_ok=True)
        with archive.open("wb" if offset == 0 else "rb+") as file:
            file.seek(offset)
            file.write(body)

    def unpack(self, digest: str, sha256: str) -> bool:
        """Unpack the archive, and return whether its checksum matches `sha256`."""
        archive, part = self._archive(digest), self.snapshot(f".{digest}{PART}")
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return False
            shutil.rmtree(part, ignore_errors=True)
            file.seek(0)
            extract(file, part)
        link_into(part, self.links.get(digest, ()))
        keep_private(part)
        part.rename(self.snapshot(digest))
        archive.unlink()
        return True

    def _archive(self, digest: str) -> Path:
        return self.snapshot(f".{digest}.tar{PART}")

    # ---- logs ----

    def news(self, known: Mapping[str, int]) -> list[LogPiece]:
        """Return the bytes of the logs that the driver does not know yet, `NEWS_BYTES` at most.

        When a log is far ahead of the known bytes, its middle is left out; the log itself will be
        cut there too.
        """
        self._known = dict(known)
        pieces: list[LogPiece] = []
        left = NEWS_BYTES
        for path in self._logs():
            log = str(path.relative_to(self.job.logs))
            with suppress(OSError), path.open("rb") as file:
                size, at = os.fstat(file.fileno()).st_size, known.get(log)
                if at is not None and at >= size:
                    continue
                at = _from(at or 0, size)
                file.seek(at)
                body = file.read(min(size - at, left, NEWS_OF_ONE_BYTES))
                pieces.append(LogPiece(log, at, body))
                left -= len(body)
            if left <= 0:
                break
        return pieces

    def last_news(self) -> list[LogPiece]:
        """Return the bytes that the driver may not have received yet."""
        return self.news(self._known)

    def _logs(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self.job.logs):
            for name in sorted(names):
                if not name.startswith("."):
                    yield Path(folder, name)

    # ---- results ----

    def read(self, spool: str, offset: int, length: int) -> bytes:
        """Return some bytes of a spool, which holds results too large for a message."""
        with (self.job.path / spool).open("rb") as rows:
            rows.seek(offset)
            return rows.read(length)

    def forget(self, spool: str, offset: int, length: int) -> None:
        """Free the disk space of these bytes of a spool."""
        give_back(str(self.job.path / spool), offset, offset + length)

    # ---- the end ----

    def close(self) -> None:
        """Release the folder; the last worker removes it. May be called twice."""
        if self._held >= 0:
            held, self._held = self._held, -1
            _remove_if_last(held, self._lock)
            os.close(held)


def _refuse_planted(root: Path) -> None:
    """Refuse a folder that another user has put into its place, or could change later.

    The name is known beforehand, and scratch spaces are often open to all, as `/tmp` is.
    """
    status, around = root.lstat(), root.parent.stat()
    if not stat.S_ISDIR(status.st_mode):
        why = "it is a link, and not a folder"
    elif status.st_uid != os.geteuid():
        why = f"it belongs to another user, uid {status.st_uid}"
    elif status.st_mode & OTHERS_WRITE:
        why = "other users may write to it"
    elif around.st_mode & stat.S_IWOTH and not around.st_mode & stat.S_ISVTX:
        why = f"every user may replace it, since all may write to {root.parent}"
    else:
        return
    msg = (
        f"the scratch folder {root} on {socket.gethostname()} cannot be used: {why}. Workers keep "
        "there what a driver sends them, such as scripts. Remove it, or start the workers with a "
        "scratch folder of their own: dask worker --local-directory FOLDER."
    )
    raise JobFolderError(msg)


def _from(at: int, size: int) -> int:
    """Return the offset of the next bytes of a log that was sent up to `at`."""
    half = LIMIT_BYTES // 2
    return size - half if at >= half and size - at > half else at


# ---- locks ----


def _remove_if_last(fd: int, lock: Path) -> None:
    if is_last(fd):
        with suppress(OSError):
            remove_tree(lock.with_suffix(""))
        lock.unlink(missing_ok=True)


def _sweep(root: Path) -> None:
    """Remove the folders that dead workers left behind."""
    for lock in root.glob(f"*{LOCK}"):
        with suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                _remove_if_last(fd, lock)
            finally:
                os.close(fd)
