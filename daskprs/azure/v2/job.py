"""`Job`: a run of a pipeline or of a deployment, as the workspace keeps it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path  # noqa: TC003 - pydantic looks at it
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from daskprs._job.job_end import status_by
from daskprs._job.result import RUNNING
from daskprs._suggest import nearest_of
from daskprs._system.file_lock import claimed, holder_of
from daskprs.azure._pipelines.run.result import COMPLETED, FAILED
from daskprs.azure._registry import ResourceExistsError, ResourceNotFoundError, copy, write_text
from daskprs.azure.v2.operations import KnownInV2
from daskprs.errors import JobFolderError, JournalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.azure._registry import Registry

OUTPUTS, ARTIFACTS = "named-outputs", "artifacts"
"""The folders that a download makes."""
REFUSALS = (UsageError, JobFolderError)
"""The errors of a job that cannot start; a journal's are those of a job that has begun."""
SCORE = "score"
"""The output of a deployment of a model."""
SCORING = "batchscoring"
"""The only step of a job of such a deployment."""


@dataclass(repr=False)
class Job(KnownInV2):
    """A run, or a step of it.

    Attributes
    ----------
    name : str
        The name of the run and of its folder; of a step ``"<run>.<step>"``.
    display_name, experiment_name : str or None
        Labels.
    status : str
        ``"Running"``, ``"Completed"``, ``"Failed"``, ``"Canceled"``, ``"Interrupted"`` or
        ``"NotStarted"``.
    folder : Path
        The folder of the run, with its logs.
    outputs : dict of str to Path
        The places of its outputs, by name.
    properties : dict
        ``azureml.moduleName`` is the name of a step's component.
    creation_context
        `created_at` and `last_modified_at`: when it began, and when its status last changed.

    """

    name: str
    folder: Path
    display_name: str | None = None
    experiment_name: str | None = None
    status: str = RUNNING
    outputs: dict[str, Path] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    created: str = ""
    changed: str = ""
    children: list[Job] = field(default_factory=list)

    @property
    def creation_context(self) -> SimpleNamespace:
        """The times of its begin and of its last change."""
        times = [datetime.fromisoformat(one) for one in (self.created, self.changed)]
        return SimpleNamespace(created_at=times[0], last_modified_at=times[1])

    @property
    def studio_url(self) -> str:
        """The URI of its folder."""
        return self.folder.as_uri()

    @property
    def services(self) -> dict[str, Any]:
        """The URI of its folder, where notebooks look for that of a studio."""
        return {"Studio": SimpleNamespace(endpoint=self.studio_url)}

    def __repr__(self) -> str:
        """Return a line with the status, and one for each step and output."""
        lines = [f"{self.name}: {self.status}"]
        before = f"{self.name}."
        lines += [f"  {one.name.removeprefix(before)}: {one.status}" for one in self.children]
        lines += [f"  {name}: {path}" for name, path in self.outputs.items()]
        return "\n".join([*lines, f"  folder: {self.folder}"])

    def keep(self, registry: Registry, status: str) -> None:
        """Write the record with a new status, which is that of steps that run, too."""
        now = time_before()
        running: list[Job] = [one for one in self.children if one.status == RUNNING]
        for one in [self, *running]:
            one.status, one.changed = status, now
            one.created = one.created or now
        write_text(registry.job_file(self.name), _RECORD.dump_json(self, indent=1).decode())

    def download(self, target: Path, output: str | None, *, everything: bool) -> None:
        """Copy an output, or the logs, into a folder."""
        if output is not None and output not in self.outputs:
            msg = f"the job {self.name} has no output {output!r}; "
            raise UsageError(msg + nearest_of(output, [*self.outputs]))
        wanted = self.outputs if everything else {output: self.outputs[output]} if output else {}
        for name, place in wanted.items():
            if not place.exists():
                msg = f"the job {self.name} has not written its output {name!r}: {place}."
                raise UsageError(msg)
            _copy(place, target / OUTPUTS / str(name))
        if output == SCORE and [one.name for one in self.children] == [f"{self.name}.{SCORING}"]:
            _copy(self.outputs[SCORE], target)  # notebooks read the file at either place
        if everything or output is None:
            for log in self.logs:
                if log.exists():
                    place = target / ARTIFACTS / log.relative_to(self.folder)
                    copy(log, place, with_registry=True)


def time_before(before_s: float = 0.0) -> str:
    """Return the time now, or some seconds before."""
    return (datetime.now(UTC) - timedelta(seconds=before_s)).isoformat()


def _copy(place: Path, target: Path) -> None:
    """Copy a folder to a place, or a file into it."""
    copy(place, target if place.is_dir() else target / place.name, with_registry=True)


_RECORD = TypeAdapter(Job)


def _read(file: Path) -> Job:
    """Return the job in a file; one whose process has died has failed."""
    job = _RECORD.validate_json(file.read_bytes())
    try:
        runs = job.status == RUNNING and holder_of(_lock(file)) is not None
    except FileNotFoundError:
        runs = False
    for one in (job, *job.children):
        one.status = FAILED if one.status == RUNNING and not runs else one.status
    return job


def read_job(registry: Registry, name: str) -> Job:
    """Return a job or the step of one by name; refuse an unknown name."""
    file = registry.job_file(name)
    if file.exists():
        return _read(file)
    parents = [registry.job_file(name[:at]) for at, one in enumerate(name) if at and one == "."]
    for parent in reversed(parents):
        for one in _read(parent).children if parent.exists() else []:
            if one.name == name:
                return one
    known = [job.name for job in read_jobs(registry)]
    msg = f"this workspace has no job {name!r}; {nearest_of(name, known)}"
    raise ResourceNotFoundError(msg)


def read_jobs(registry: Registry) -> list[Job]:
    """Return all jobs of a workspace, the last first."""
    jobs = [_read(file) for file in registry.job_files()]
    return sorted(jobs, key=lambda one: one.created, reverse=True)


@contextmanager
def kept(registry: Registry, job: Job, *, goes_on: bool = False) -> Iterator[None]:
    """Keep the record of a job that runs in a block, and how it ends.

    A job that cannot start leaves what was there before; one that `goes_on` has what it had. Names
    of jobs are those of their folders, and a name is that of one folder for ever.
    """
    file = registry.job_file(job.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with claimed(_lock(file), f"the job {job.name}"):
        before = file.read_bytes() if file.exists() else None
        if before is not None:
            known = _RECORD.validate_json(before)
            _refuse_other_folder(job, known)
            if goes_on:
                job.created, job.children, job.logs = known.created, known.children, known.logs
                job.outputs = known.outputs
        job.keep(registry, RUNNING)
        try:
            yield
        except BaseException as error:  # else the record would say for ever that the job runs
            if isinstance(error, REFUSALS) and not isinstance(error, JournalError):
                file.unlink() if before is None else file.write_bytes(before)
            else:
                job.keep(registry, status_by(error).value)
            raise
        job.keep(registry, COMPLETED)


def _refuse_other_folder(job: Job, known: Job) -> None:
    """Refuse a job whose name is that of a job in another folder."""
    if known.folder.resolve() != job.folder.resolve():
        msg = (
            f"this workspace has a job {job.name!r} already, in {known.folder}. A job is called as "
            "its folder: use a job_dir of another name."
        )
        raise ResourceExistsError(msg)


def _lock(file: Path) -> Path:
    return file.with_suffix(".lock")
