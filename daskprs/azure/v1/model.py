"""`Model`: a file or folder by name, whose versions are kept in the folder of a workspace."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest, nearest_of
from daskprs.azure._registry import MODELS, Registry, copy
from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins.elsewhere import model_path, no_asset
from daskprs.azure.v1.absent import Known
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from os import PathLike

    from daskprs.azure.v1.workspace import Workspace


class Framework(StrEnum):
    """The framework of a model, as information for people."""

    CUSTOM = "Custom"
    ONNX = "Onnx"
    PYTORCH = "PyTorch"
    SCIKITLEARN = "ScikitLearn"
    TENSORFLOW = "TensorFlow"


class Model(Known):
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

    workspace: Workspace | None
    name: str
    version: int
    path: Path
    description: str | None
    tags: dict[str, str]
    properties: dict[str, str]
    registered_by: str | None
    """The folder of the step whose script registered the model."""

    def __init__(
        self,
        workspace: Workspace,
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
            for one in Model.list(workspace, name, tags, properties)
            if version is None or one.version == int(version)
        ]
        if not found:
            wanted = f"{name!r}" if version is None else f"{name!r} of version {version}"
            near = nearest_of(str(name), [*workspace.models])
            msg = (
                f"this workspace has no model {wanted} ({near}). To register it: "
                f"Model.register(workspace=ws, model_path='/path', model_name={name!r})."
            )
            raise UsageError(msg)
        vars(self).update(vars(found[-1]))

    def __repr__(self) -> str:
        return f"Model({self.name!r}, version={self.version}, path={str(self.path)!r})"

    @property
    def id(self) -> str:
        """The name and version of the model."""
        return f"{self.name}:{self.version}"

    @classmethod
    def register(
        cls,
        workspace: Workspace,
        model_path: str | PathLike[str],
        model_name: str,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        version: int | str | None = None,
        **_: Any,
    ) -> Model:
        """Copy a file or folder into a workspace, as the next or the given version of a model.

        Raises
        ------
        UsageError
            When the file or folder does not exist, or the version does.

        """
        path = Path(model_path)
        if not path.exists():
            msg = f"model_path: {model_path!r} does not exist.{nearest(model_path)}"
            raise UsageError(msg)
        place = RunPlace.current()
        record = {
            "tags": dict(tags or {}),
            "properties": dict(properties or {}),
            "description": description,
            "run": None if place is None else str(place.folder),
        }
        registry = Registry(workspace.root)
        number = registry.keep_copy(MODELS, model_name, version, record, path)
        return _model_of(registry, model_name, number, workspace)

    @classmethod
    def list(
        cls,
        workspace: Workspace,
        name: str | None = None,
        tags: Iterable[Any] | None = None,
        properties: Iterable[Any] | None = None,
        run_id: str | None = None,
        latest: bool = False,
        **_: Any,
    ) -> list[Model]:
        """Return the models of a workspace, or those with a name, tags and properties.

        With `latest`, return only the last version of each. With `run_id`, return only models
        registered by scripts of that run or of its steps.
        """
        found = [
            one
            for one in _registered(workspace.root, name, workspace)
            if _has(one.tags, tags)
            and _has(one.properties, properties)
            and (run_id is None or _is_of(run_id, one))
        ]
        return [*{one.name: one for one in found}.values()] if latest else found

    @staticmethod
    def get_model_path(
        model_name: str, version: int | None = None, _workspace: Workspace | None = None, **_: Any
    ) -> str:
        """Return the path of a model, in a script that is part of a job or of a step.

        Elsewhere, `_workspace` has the model.

        Raises
        ------
        FileNotFoundError
            When no model has that name, or its workspace does not have that version.
        UsageError
            When `_workspace` does not have the model.

        """
        path = model_path(model_name, version)
        if path is None and _workspace is not None:
            path = str(Model(_workspace, model_name, version=version).path)
        if path is not None:
            return path
        place = RunPlace.current() or RunPlace(Path())
        known = [] if place.root is None else Registry(place.root).names(MODELS)
        more = "" if place.may_be_unseen else ", or register it in the workspace of the step"
        raise no_asset(model_name, known, more)

    def download(
        self,
        target_dir: str | PathLike[str] = ".",
        exist_ok: bool = False,
        exists_ok: bool | None = None,
    ) -> str:
        """Copy the model into a folder, and return the path of the copy."""
        target = Path(target_dir) / self.path.name
        if target.exists() and not (exist_ok or exists_ok):
            msg = f"{target} exists. Download with exist_ok=True."
            raise UsageError(msg)
        copy(self.path, target)
        return str(target)

    def delete(self) -> None:
        """Remove this version from its workspace."""
        shutil.rmtree(self.path.parents[1])


def paths_of_models(root: Path, *, but_of: Path) -> dict[str, str]:
    """Return where the models of a workspace are, the last version of each.

    Versions that scripts of the given step registered do not count. They may be those of an attempt
    that was broken off, and a resume must find what was there when that attempt began.
    """
    return {
        one.name: str(one.path) for one in _registered(root) if one.registered_by != str(but_of)
    }


def _registered(
    root: Path, name: str | None = None, workspace: Workspace | None = None
) -> Iterator[Model]:
    """Yield all models below the folder of a workspace, or those of a name, in order."""
    registry = Registry(root)
    for one in registry.names(MODELS) if name is None else [name]:
        for version in registry.versions(MODELS, one):
            yield _model_of(registry, one, version, workspace)


def _model_of(registry: Registry, name: str, version: str, workspace: Workspace | None) -> Model:
    """Return a version of a model."""
    record = registry.record(MODELS, name, version)
    model = Model.__new__(Model)
    model.workspace = workspace
    model.name, model.version = name, int(version)
    model.path = registry.copied(MODELS, name, version)
    model.tags, model.properties = record["tags"], record["properties"]
    model.description, model.registered_by = record["description"], record["run"]
    return model


def _is_of(run_id: str, model: Model) -> bool:
    """Say whether a script of a run, or of one of its steps, registered a model."""
    folder = Path(model.registered_by or "")
    run = folder.parent.name
    return run_id in (folder.name, run, f"{run}-{folder.name}")


def _has(there: Mapping[str, Any], wanted: Iterable[Any] | None) -> bool:
    """Say whether a mapping has all keys, or pairs of a key and a value."""
    return all(
        one in there if isinstance(one, str) else str(there.get(one[0])) == str(one[1])
        for one in wanted or ()
    )
