"""`Registry`: what is registered in the folder of a workspace, by name and version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from daskprs.azure.assets import Assets
from daskprs.azure.pipeline_folder import REGISTERED
from daskprs.azure.registered_name import file_of_name
from daskprs.azure.v1.model import REGISTRY
from daskprs.azure.v1.model import Model as CopiedModel
from daskprs.azure.v2.asset import reference_to
from daskprs.azure.v2.entity import as_yaml
from daskprs.errors import UsageError
from daskprs.suggest import nearest_of
from daskprs.system.atomic_file import whole_file
from daskprs.system.file_lock import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from daskprs.azure.v1.workspace import Workspace

LATEST = "latest"
RECORD = "record.json"
COMPONENT = "component.yml"
ENDPOINT = "endpoint.yaml"


class ResourceNotFoundError(UsageError):
    """A name or version that a workspace does not have."""


class ResourceExistsError(UsageError):
    """A version, or the name of a job, that a workspace has already."""


class Registry:
    """Data, components, environments, endpoints and models in the folder of a workspace.

    Models are those of SDK v1, too: copies. Data and components are the paths of their files.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.folder = workspace.root / REGISTRY / REGISTERED

    def _of(self, kind: str, *names: str) -> Path:
        return self.folder.joinpath(kind, *map(file_of_name, names))

    def keep(
        self,
        kind: str,
        name: str | None,
        version: Any,
        record: Mapping[str, Any],
        component: Mapping[str, Any] | None = None,
    ) -> str:
        """Keep a record as a version of a name, by default the next one; return the version.

        A `component` that is in no file is written into one beside its record.
        """
        if not name:
            msg = f"{kind}: to register it, give it a name."
            raise UsageError(msg)
        with self.turn():
            number = str(version) if version is not None else str(self._next(kind, name))
            folder = self._of(kind, name, number)
            told = json.dumps({**record, "version": number}, indent=1, sort_keys=True)
            texts = {RECORD: told}
            if component is not None:
                whole = {**component, "name": name, "version": number}
                texts = {COMPONENT: as_yaml(whole), **texts}  # with its record it is there
            if not (folder / RECORD).exists():
                for file, text in texts.items():
                    write_text(folder / file, text)
            elif any(text != _text(folder / file) for file, text in texts.items()):
                msg = (
                    f"{kind}: {name!r} has a version {number} already, with other content: leave "
                    "the version out, or use another one."
                )
                raise ResourceExistsError(msg)
        return number

    def turn(self) -> AbstractContextManager[None]:
        """Keep all other threads and processes from registering anything in a block."""
        return in_turn(self.folder / "registry.lock")

    def _next(self, kind: str, name: str) -> int:
        numbers = [int(one) for one in self.versions(kind, name) if one.isdecimal()]
        return max(numbers, default=0) + 1

    def versions(self, kind: str, name: str) -> list[str]:
        """Return the versions of a name, the one that was kept last at the end."""
        files = self._of(kind, name).glob(f"*/{RECORD}")
        ordered = sorted((one.stat().st_mtime_ns, *_in_order(one.parent.name)) for one in files)
        return [unquote(one) for _, _, one in ordered]

    def names(self, kind: str) -> list[str]:
        """Return the names that are registered."""
        files = self._of(kind).glob(f"*/*/{RECORD}")
        return sorted({unquote(one.parents[1].name) for one in files})

    def version(self, kind: str, name: str, version: Any, label: str | None) -> str:
        """Return the version that is meant, or refuse one that is not there."""
        known = self.versions(kind, name)
        wanted = None if label == LATEST else version if version is not None else label
        if not known:
            hint = nearest_of(name, self.names(kind))
            msg = f"this workspace has no {kind} called {name!r}; {hint}"
            raise ResourceNotFoundError(msg)
        if wanted is None:
            return known[-1]
        if str(wanted) not in known:
            msg = f"{kind}: {name!r} has no version {wanted} (known: {', '.join(known)})."
            raise ResourceNotFoundError(msg)
        return str(wanted)

    def record(self, kind: str, name: str, version: str) -> dict[str, Any]:
        """Return the record of a version."""
        found: dict[str, Any] = json.loads((self._of(kind, name, version) / RECORD).read_text())
        return found

    def component(self, name: str, version: str) -> Path:
        """Return the file of a component: its own, or the one that was written for it."""
        own = self.record("components", name, version).get("path")
        return self._of("components", name, version) / COMPONENT if own is None else Path(own)

    # ---- models ----

    def keep_model(self, name: str | None, path: str, version: Any, **labels: Any) -> str:
        """Copy a model into the workspace, and return its version."""
        if not name:
            msg = "models: to register it, give it a name."
            raise UsageError(msg)
        if version is not None and not str(version).isdecimal():
            msg = f"the model {name!r}: a version is a whole number, not {version!r}."
            raise UsageError(msg)
        number = None if version is None else int(version)
        if number in [one.version for one in self.models(name)]:
            msg = f"the model {name!r} has a version {number} already: leave the version out."
            raise ResourceExistsError(msg)
        model = CopiedModel.register(self.workspace, path, name, version=number, **labels)
        return str(model.version)

    def models(self, name: str | None = None) -> list[CopiedModel]:
        """Return the models, each version of each."""
        return CopiedModel.list(self.workspace, name)

    # ---- endpoints ----

    def endpoint_file(self, endpoint: str) -> Path:
        """Return the file of an endpoint, which may not exist."""
        return self._of("endpoints", endpoint) / ENDPOINT

    def endpoint_files(self) -> list[Path]:
        """Return the files of all endpoints."""
        return sorted(self._of("endpoints").glob(f"*/{ENDPOINT}"))

    def deployment_file(self, endpoint: str, deployment: str) -> Path:
        """Return the file of a deployment, which may not exist."""
        return self._of("endpoints", endpoint) / f"{quote(deployment, safe='')}.yml"

    def deployments(self, endpoint: str) -> list[str]:
        """Return the deployments of an endpoint."""
        files = self._of("endpoints", endpoint).glob("*.yml")
        return sorted(unquote(one.stem) for one in files)

    def remove_endpoint(self, endpoint: str) -> None:
        """Remove an endpoint with its deployments."""
        with self.turn():
            shutil.rmtree(self._of("endpoints", endpoint))

    # ---- jobs ----

    def job_file(self, name: str) -> Path:
        """Return the file of a job's record, which may not exist."""
        return self._of("jobs") / f"{quote(name, safe='')}.json"

    def job_files(self) -> Iterator[Path]:
        """Yield the files of all jobs."""
        return self._of("jobs").glob("*.json")

    # ---- where all of it is ----

    def assets(self) -> Assets:
        """Return the places of everything registered, and the folders of the datastores.

        A short reference (``azureml:name:1``) that two assets have means neither of them.
        """
        found: dict[str, str] = {}
        short: dict[str, set[str]] = {}
        for kind, name, version, path, is_last in self._places():
            found[reference_to(kind, name, version)] = path
            for key in (f"{name}:{version}", *([f"{name}@{LATEST}"] if is_last else [])):
                short.setdefault(key, set()).add(path)
        found |= {key: next(iter(paths)) for key, paths in short.items() if len(paths) == 1}
        roots = {name: str(one.root) for name, one in self.workspace.datastores.items()}
        return Assets(found, roots)

    def _places(self) -> Iterator[tuple[str, str, str, str, bool]]:
        """Yield kind, name, version and path of each asset, and whether it is the last version."""
        models = self.models()
        last = {one.name: one.version for one in models}
        for one in models:
            is_last = last[one.name] == one.version
            yield "models", one.name, str(one.version), str(one.path), is_last
        for name in self.names("data"):
            versions = self.versions("data", name)
            for version in versions:
                path = self.record("data", name, version).get("path")
                if path is not None:
                    yield "data", name, version, path, version == versions[-1]
        for name in self.names("components"):
            versions = self.versions("components", name)
            for version in versions:
                path = str(self.component(name, version))
                yield "components", name, version, path, version == versions[-1]


def _in_order(version: str) -> tuple[int, str]:
    """Return the place of a version among those that a clock cannot tell apart."""
    return (int(version) if version.isdecimal() else 0, version)


def _text(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def write_text(path: Path, text: str) -> None:
    """Write a file whole, in a folder that may not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode())
