"""Whether a worker sees the driver's job folder, and which paths it uses if not."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs.agent.node.node_folder import NodeFolder
from daskprs.agent.script.side_inputs import placed, version_of

if TYPE_CHECKING:
    from daskprs.agent.protocol.messages import JobSpec, ScriptSpec

THIS_PROCESS = secrets.token_hex(8)
"""A random token of this process; a worker compares it with the driver's."""


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
        if not far and not unseen:
            return
        self.store = store = NodeFolder(scratch / f"daskprs-{os.getuid()}", job.job_id)
        self.wanted = tuple(dict.fromkeys(one.key for one in unseen))
        if unseen:
            self.job = _with_side_inputs(job, store)
        if far:
            self.folder = store
            self.job = _moved(self.job, origin, store)
            if job.script.source_directory is not None:
                self.wanted += (snapshot_digest(job.script),)


def snapshot_digest(script: ScriptSpec) -> str:
    """Return the name of a script's snapshot; empty without a snapshot."""
    return "" if script.source_directory is None else Path(script.source_directory).name


def _with_side_inputs(job: JobSpec, store: NodeFolder) -> JobSpec:
    here = tuple(
        one if version_of(Path(one.path)) == one.version else one.below(store.snapshot(one.key))
        for one in job.side_inputs
    )
    moved = [(there.path, now.path) for there, now in zip(job.side_inputs, here, strict=True)]
    variables = placed(job.environment.values(), moved)
    return job._replace(
        side_inputs=here,
        arguments=placed(job.arguments, moved),
        environment=dict(zip(job.environment, variables, strict=True)),
    )


def _moved(job: JobSpec, origin: DriverInfo, folder: NodeFolder) -> JobSpec:
    script = job.script
    if script.source_directory is not None:
        here = folder.snapshot(snapshot_digest(script))
        file = script.file and str(here / Path(script.file).relative_to(script.source_directory))
        script = script._replace(source_directory=str(here), file=file)
    return job._replace(
        script=script,
        reader=origin.reader,
        job_dir=str(folder.job),
        far=True,
    )
