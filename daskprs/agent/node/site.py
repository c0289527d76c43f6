"""Where a worker stands to the driver: does it see the job folder, and what follows from that."""

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
"""Known to nobody but this process, and to whom it tells."""


class ProbeFile(NamedTuple):
    """A file that the driver has written, and what is in it: who sees the one knows the other."""

    file: str
    token: str

    def is_seen(self) -> bool:
        """Say whether its folder is here, and can be written to."""
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
    """What a worker has to know of the driver, to find out for itself how far away that is."""

    driver: str
    """`THIS_PROCESS` of the driver."""
    job_folder: ProbeFile
    reader: bytes
    """The pickled reader for agents that do not see the job folder."""


class WorkerSite:
    """A worker's place.

    Parameters
    ----------
    job
        As the driver tells it, with paths as they are there.
    origin
        How the driver can be known again.
    scratch
        The folder for files of this node.

    """

    def __init__(self, job: JobSpec, origin: DriverInfo, scratch: Path) -> None:
        self.folder: NodeFolder | None = None
        """Where the job lives on this node, if the driver's folder is not seen here."""
        self.store: NodeFolder | None = None
        """Where things are put that have to be sent here; the same, if there is that one."""
        self.wanted: tuple[str, ...] = ()
        """The keys of what has to be sent."""
        self.job = job
        """The job, with paths as they are here."""
        if origin.driver != THIS_PROCESS:
            self._look_around(origin, scratch)

    def close(self) -> None:
        """Let go of the folder."""
        if self.store is not None:
            with suppress(OSError):
                self.store.close()

    def lacks(self) -> list[str]:
        """Return the keys of what has not been sent yet."""
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
    """Return the name of a script's snapshot; nothing where it has none."""
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
