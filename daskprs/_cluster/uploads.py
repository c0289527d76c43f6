"""What `Client.upload_file` has put into the folder of a worker, for the agents of the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._agent.protocol.messages import PackageFolder

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec

ARCHIVES = (".egg", ".pyz", ".zip")
"""The ends of the archives that Dask puts on the path of a worker."""


def with_uploads(job: JobSpec, folder: Path) -> JobSpec:
    """Return a job whose agents find the uploaded modules, behind all others on their path.

    Dask imports a module into the worker, and leaves its file in the folder of the worker.
    """
    archives = sorted(one for one in folder.glob("*") if one.suffix in ARCHIVES)
    places = tuple(PackageFolder(str(one), is_first=False) for one in (folder, *archives))
    packages = (*job.script.packages, *places)
    return job._replace(script=job.script._replace(packages=packages))
