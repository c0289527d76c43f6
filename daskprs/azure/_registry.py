"""The registry in the folder of a workspace, by name and version, for both SDKs."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from daskprs._suggest import nearest_of
from daskprs._system.atomic_file import whole_file
from daskprs._system.file_lock import in_turn
from daskprs.azure._pipeline_folder import REGISTERED
from daskprs.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

REGISTRY = ".azureml"
"""The folder of the registry in a workspace; it may also hold ``config.json``."""
MODELS = "models"
LATEST = "latest"
FILES = "files"
"""The folder of a copy, beside its record."""
RECORD = "record.json"
COMPONENT = "component.yml"
ENDPOINT = "endpoint.yaml"


class AzureError(UsageError):
    """The base of the errors that notebooks catch by the names of ``azure.core``."""


class HttpResponseError(AzureError):
    """The same; only the next two are raised here."""


class ResourceNotFoundError(HttpResponseError):
    """A name or version that a workspace does not have."""


class ResourceExistsError(HttpResponseError):
    """A version, or the name of a job, that a workspace has already."""


class ClientAuthenticationError(HttpResponseError):
    """An error that is never raised: nothing here needs authorization."""


class Registry:
    """Data, components, environments, endpoints and models in the folder of a workspace.

    Models are copies. Data and components are the paths of their files.
    """

    def __init__(self, root: Path) -> None:
        self.folder = root / REGISTRY / REGISTERED

    def _of(self, kind: str, *names: str) -> Path:
        # Scripts under another interpreter look for models there, too: `azure.stand_ins.elsewhere`.
        folder = self.folder.parent if kind == MODELS else self.folder
        return folder.joinpath(kind, *map(file_of_name, names))

    def keep(
        self,
        kind: str,
        name: str | None,
        version: Any,
        record: Mapping[str, Any],
        component: Callable[[str], str] | None = None,
    ) -> str:
        """Keep a record as a version of a name, by default the next one; return the version.

        The text of a `component` that is in no file, by its version, is written beside its record.
        """
        name = _given(kind, name)
        with self.turn():
            number = self._number(kind, name, version)
            folder = self._of(kind, name, number)
            told = json.dumps({**record, "version": number}, indent=1, sort_keys=True)
            texts = {RECORD: told}
            if component is not None:
                texts = {COMPONENT: component(number), **texts}  # with its record it is there
            if not (folder / RECORD).exists():
                for file, text in texts.items():
                    write_text(folder / file, text)
            elif any(text != _text(folder / file) for file, text in texts.items()):
                raise _exists(kind, name, number)
        return number

    def keep_copy(
        self, kind: str, name: str | None, version: Any, record: Mapping[str, Any], source: Path
    ) -> str:
        """Copy a file or folder as a version, by default the next one; return the version."""
        versions = self._of(kind, _given(kind, name))
        versions.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=versions) as folder:
            made = Path(folder, "made")
            copy(source, made / FILES / source.resolve().name)
            write_text(made / RECORD, json.dumps(record, default=str))
            with self.turn():
                number = self._number(kind, str(name), version)
                if (versions / file_of_name(number)).exists():
                    raise _exists(kind, str(name), number)
                made.rename(versions / file_of_name(number))
        return number

    def copied(self, kind: str, name: str, version: str) -> Path:
        """Return the copy of a version."""
        return next((self._of(kind, name, version) / FILES).iterdir())

    def turn(self) -> AbstractContextManager[None]:
        """Keep all other threads and processes from registering anything in a block."""
        return in_turn(self.folder / "registry.lock")

    def _number(self, kind: str, name: str, version: Any) -> str:
        """Return a version as text, by default the next one."""
        if version is None:
            numbers = [int(one) for one in self.versions(kind, name) if one.isdecimal()]
            return str(max(numbers, default=0) + 1)
        if kind == MODELS and not str(version).isdecimal():
            msg = f"the model {name!r}: a version is a whole number, not {version!r}."
            raise UsageError(msg)
        return _as_kept(kind, version)

    def versions(self, kind: str, name: str) -> list[str]:
        """Return the versions of a name: models by number, others as they were kept."""
        files = self._of(kind, name).glob(f"*/{RECORD}")
        is_model = kind == MODELS
        times = ((0 if is_model else one.stat().st_mtime_ns, one.parent.name) for one in files)
        ordered = sorted((time_ns, *_in_order(version)) for time_ns, version in times)
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
        number = _as_kept(kind, wanted)
        if number not in known:
            msg = f"{kind}: {name!r} has no version {wanted} (known: {', '.join(known)})."
            raise ResourceNotFoundError(msg)
        return number

    def record(self, kind: str, name: str, version: str) -> dict[str, Any]:
        """Return the record of a version."""
        found: dict[str, Any] = json.loads((self._of(kind, name, version) / RECORD).read_text())
        return found

    def component(self, name: str, version: str) -> Path:
        """Return the file of a component: its own, or the one that was written for it."""
        own = self.record("components", name, version).get("path")
        return self._of("components", name, version) / COMPONENT if own is None else Path(own)

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

    def places(self) -> dict[str, str]:
        """Return the places of everything registered, by reference.

        A short reference (``azureml:name:1``) that two assets have means neither of them.
        """
        found: dict[str, str] = {}
        short: dict[str, set[str]] = {}
        for kind, name, version, path, is_last in self._places():
            found[reference_to(kind, name, version)] = path
            for key in (f"{name}:{version}", *([f"{name}@{LATEST}"] if is_last else [])):
                short.setdefault(key, set()).add(path)
        found |= {key: next(iter(paths)) for key, paths in short.items() if len(paths) == 1}
        return found

    def _places(self) -> Iterator[tuple[str, str, str, str, bool]]:
        """Yield kind, name, version and path of each asset, and whether it is the last version."""
        for kind in (MODELS, "data", "components"):
            for name in self.names(kind):
                versions = self.versions(kind, name)
                for version in versions:
                    path = self._place(kind, name, version)
                    if path is not None:
                        yield kind, name, version, str(path), version == versions[-1]

    def _place(self, kind: str, name: str, version: str) -> Any:
        if kind == MODELS:
            return self.copied(kind, name, version)
        if kind == "components":
            return self.component(name, version)
        return self.record(kind, name, version).get("path")


def _as_kept(kind: str, version: Any) -> str:
    """Return a version as text: 007 of a model is version 7."""
    text = str(version)
    return str(int(text)) if kind == MODELS and text.isdecimal() else text


def file_of_name(name: str) -> str:
    """Return the name of the file or folder for a name.

    A name that would lead out of the folder is an OptionError.
    """
    quoted = quote(name, safe="")
    if quoted in ("", ".", ".."):
        msg = f"{name!r} is not a name: use one with letters or digits."
        raise OptionError(msg)
    return quoted


def reference_to(kind: str, name: str, version: str) -> str:
    """Return the reference to an asset in the workspace."""
    return f"azureml://workspaces/local/{kind}/{name}/versions/{version}"


def copy(source: Path, target: Path, *, with_registry: bool = False) -> None:
    """Copy a file or folder; the registry of a workspace in it only if that is asked for."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = None if with_registry else shutil.ignore_patterns(REGISTRY)
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _given(kind: str, name: str | None) -> str:
    if not name:
        msg = f"{kind}: to register it, give it a name."
        raise UsageError(msg)
    return name


def _exists(kind: str, name: str, version: str) -> ResourceExistsError:
    return ResourceExistsError(
        f"{kind}: {name!r} has a version {version} already, with other content: leave the version "
        "out, or use another one."
    )


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
