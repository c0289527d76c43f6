"""`Model`: a file or folder by name."""

from __future__ import annotations

import json
import os
import shutil
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.child.public import EntryScript
from daskprs.agent.node.environment import ASSETS
from daskprs.azure.v1.registry import RegisteredModel, Registry
from daskprs.azure.v1.run_place import RunPlace
from daskprs.errors import UsageError
from daskprs.suggest import nearest
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from os import PathLike

    from daskprs.azure.v1.workspace_like import WorkspaceLike


class Framework(StrEnum):
    """The framework of a model, as information for people."""

    CUSTOM = "Custom"
    ONNX = "Onnx"
    PYTORCH = "PyTorch"
    SCIKITLEARN = "ScikitLearn"
    TENSORFLOW = "TensorFlow"


class Model:
    """A registered model: a copy of a file or folder in the folder of a workspace.

    Scripts find it by ``Model.get_model_path(name)``, in steps that know its workspace.

    Parameters
    ----------
    workspace : Workspace
        The workspace in which the model was registered.
    name, version : str, int, optional
        The name and version of the model; None: the last version.
    id : str, optional
        Name and version in one text: ``name:version``.
    tags, properties : list, optional
        Required tags and properties: keys, or pairs of a key and a value.

    """

    Framework = Framework

    name: str
    version: int
    path: Path
    description: str | None
    tags: dict[str, str]
    properties: dict[str, str]

    def __init__(
        self,
        workspace: WorkspaceLike,
        name: str | None = None,
        id: str | None = None,  # noqa: A002 - the original's signature
        tags: Iterable[Any] | None = None,
        properties: Iterable[Any] | None = None,
        version: int | str | None = None,
        **_: Any,
    ) -> None:
        if id is not None:
            name, version = id.rsplit(":", 1)
        found = [
            one
            for one in _registered(workspace, name, tags, properties)
            if version is None or one.version == int(version)
        ]
        if not found:
            told = f"{name!r}" if version is None else f"{name!r} of version {version}"
            near = nearest_of(str(name), [*workspace.models])
            msg = (
                f"there is no model {told} in this workspace ({near}). To register it: "
                f"Model.register(workspace=ws, model_path='/path', model_name={name!r})."
            )
            raise UsageError(msg)
        self._be(workspace, found[-1])

    def __repr__(self) -> str:
        return f"Model({self.name!r}, version={self.version}, path={str(self.path)!r})"

    @property
    def id(self) -> str:
        """The name and version of the model."""
        return f"{self.name}:{self.version}"

    @classmethod
    def register(
        cls,
        workspace: WorkspaceLike,
        model_path: str | PathLike[str],
        model_name: str,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        **_: Any,
    ) -> Model:
        """Copy a file or folder into a workspace, as the next version of a model.

        Raises
        ------
        UsageError
            When the file or folder does not exist.

        """
        path = Path(model_path)
        if not path.exists():
            msg = f"model_path: there is no file or folder {model_path!r}.{nearest(model_path)}"
            raise UsageError(msg)
        place = RunPlace.current()
        told = {
            "tags": dict(tags or {}),
            "properties": dict(properties or {}),
            "description": description,
            "run": None if place is None else str(place.folder),
        }
        version = workspace.registry.add_model(model_name, path, told)
        return cls(workspace, model_name, version=version)

    @classmethod
    def list(
        cls,
        workspace: WorkspaceLike,
        name: str | None = None,
        tags: Iterable[Any] | None = None,
        properties: Iterable[Any] | None = None,
        run_id: str | None = None,
        latest: bool = False,  # noqa: FBT001, FBT002 - the original's signature
        **_: Any,
    ) -> list[Model]:
        """Return the models of a workspace: those of a name, with tags and properties.

        With `latest`, return only the last version of each. With `run_id`, return only models
        registered by scripts of that run or of its steps.
        """
        models = []
        all_of_them = _registered(workspace, name, tags, properties)
        of_run = (one for one in all_of_them if run_id is None or _is_of(run_id, one))
        for _name, found in groupby(of_run, lambda one: one.name):
            versions = [*found]
            models += versions[-1:] if latest else versions
        return [cls._of(workspace, one) for one in models]

    @staticmethod
    def get_model_path(model_name: str, version: int | None = None, **_: Any) -> str:
        """Return the path of a model, in a script that is part of a job or of a step.

        Raises
        ------
        FileNotFoundError
            When no model has that name, or its workspace does not have that version.

        """
        assets: dict[str, str] = json.loads(os.environ.get(ASSETS, "{}"))
        assets |= EntryScript().side_inputs
        path = assets.get(model_name)
        if path is None or version is not None:
            path = _place_of(model_name, version) or path
        if path is not None and path == os.environ.get("AZUREML_MODEL_DIR"):
            return next(os.scandir(path)).path  # the folder contains only the model
        if path is not None:
            return path
        known = ", ".join(sorted({*assets, *(one.name for one in _of_this_step())})) or "none"
        msg = (
            f"the job has no asset called {model_name!r} (known: {known}). Give its place by "
            f"side_inputs={{{model_name!r}: '/path'}}, or register it in the workspace of the step."
        )
        raise FileNotFoundError(msg)

    def download(
        self,
        target_dir: str | PathLike[str] = ".",
        exist_ok: bool = False,  # noqa: FBT001, FBT002 - the original's signature
        exists_ok: bool | None = None,  # noqa: FBT001 - the same
    ) -> str:
        """Copy the model into a folder, and return the path of the copy."""
        target = Path(target_dir) / self.path.name
        if target.exists() and not (exist_ok or exists_ok):
            msg = f"{target} is there already. Download with exist_ok=True."
            raise UsageError(msg)
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            shutil.copytree(self.path, target, dirs_exist_ok=True)
        else:
            shutil.copy2(self.path, target)
        return str(target)

    def delete(self) -> None:
        """Remove this version from its workspace."""
        self.workspace.registry.remove_model(self.name, self.version)

    @classmethod
    def _of(cls, workspace: WorkspaceLike, one: RegisteredModel) -> Model:
        model = cls.__new__(cls)
        model._be(workspace, one)  # noqa: SLF001 - its own class
        return model

    def _be(self, workspace: WorkspaceLike, one: RegisteredModel) -> None:
        self.workspace = workspace
        self.name, self.version, self.path = one.name, one.version, one.path
        self.tags, self.properties = one.told["tags"], one.told["properties"]
        self.description = one.told["description"]


def _registered(
    workspace: WorkspaceLike,
    name: str | None,
    tags: Iterable[Any] | None,
    properties: Iterable[Any] | None,
) -> Iterator[RegisteredModel]:
    for one in workspace.registry.models(name):
        if _has(one.told["tags"], tags) and _has(one.told["properties"], properties):
            yield one


def _is_of(run_id: str, one: RegisteredModel) -> bool:
    """Say whether a script of a run, or of one of its steps, registered a model."""
    folder = Path(one.told["run"] or "")
    run = folder.parent.name
    return run_id in (folder.name, run, f"{run}-{folder.name}")


def _of_this_step(name: str | None = None) -> Iterator[RegisteredModel]:
    """Yield the models in the workspace of the step that this process is part of."""
    place = RunPlace.current()
    if place is not None and place.root is not None:
        yield from Registry(place.root).models(name)


def _place_of(name: str, version: int | str | None) -> str | None:
    """Return the path of a version (default: the last) of a model; None if it is unknown."""
    versions = {one.version: str(one.path) for one in _of_this_step(name)}
    wanted = max(versions, default=0) if version is None else int(version)
    if versions and wanted not in versions:
        known = ", ".join(map(str, versions))
        msg = f"the model {name!r} has no version {version} in its workspace (known: {known})."
        raise FileNotFoundError(msg)
    return versions.get(wanted)


def _has(there: Mapping[str, Any], wanted: Iterable[Any] | None) -> bool:
    """Say whether a mapping has all keys, or pairs of a key and a value."""
    return all(
        one in there if isinstance(one, str) else str(there.get(one[0])) == str(one[1])
        for one in wanted or ()
    )
