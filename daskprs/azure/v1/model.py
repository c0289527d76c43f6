"""`Model`: a file or folder by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.errors import UsageError
from daskprs.inputs.nearest import nearest
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from daskprs.azure.v1.workspace import Workspace


class Model:
    """A registered model: a name for what lies in a file or folder.

    Scripts find it by ``Model.get_model_path(name)``, in steps that know its workspace.

    Parameters
    ----------
    workspace : Workspace
        In which it was registered.
    name : str
        Under which.

    """

    name: str
    path: Path
    version = 1
    description: str | None
    tags: dict[str, str]

    def __init__(self, workspace: Workspace, name: str) -> None:
        if name not in workspace.models:
            msg = (
                f"there is no model {name!r} in this workspace "
                f"({nearest_of(name, [*workspace.models])}). To register it: Model.register("
                f"workspace=ws, model_path='/path', model_name={name!r})."
            )
            raise UsageError(msg)
        vars(self).update(vars(workspace.models[name]))

    def __repr__(self) -> str:
        return f"Model({self.name!r}, path={str(self.path)!r})"

    @classmethod
    def register(
        cls,
        workspace: Workspace,
        model_path: str | PathLike[str],
        model_name: str,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        **_: Any,
    ) -> Model:
        """Give a file or folder a name in a workspace; it stays where it is.

        Raises
        ------
        UsageError
            When it is not there.

        """
        del properties
        if not Path(model_path).exists():
            msg = f"model_path: there is no file or folder {model_path!r}.{nearest(model_path)}"
            raise UsageError(msg)
        one = cls.__new__(cls)
        one.name, one.path = model_name, Path(model_path).absolute()
        one.description, one.tags = description, dict(tags or {})
        workspace.models[model_name] = one
        return one

    @staticmethod
    def list(
        workspace: Workspace, name: str | None = None, tags: Sequence[str] | None = None, **_: Any
    ) -> list[Model]:
        """Return the models of a workspace, those of a name and with tags where that is given."""
        return [
            one
            for one in workspace.models.values()
            if (name is None or one.name == name) and all(tag in one.tags for tag in tags or ())
        ]
