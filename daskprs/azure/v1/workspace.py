"""`Workspace`: folders in place of an Azure workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from daskprs._suggest import nearest_of
from daskprs.azure._assets import DEFAULT_DATASTORE, given_places
from daskprs.azure._registry import REGISTRY, write_text
from daskprs.azure._run_place import RunPlace
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import AbstractDataset, dataset_of_record
from daskprs.azure.v1.datastore import Datastore
from daskprs.azure.v1.environment import ComputeTargets, Environments
from daskprs.azure.v1.model import Model
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from daskprs.azure._assets import Assets, NamedEnvironment
    from daskprs.azure.v1.pipeline import Experiment

CONFIG = ("config.json", f"{REGISTRY}/config.json")
INSTEAD = (
    "Write {}(root='FOLDER'): that folder is its default datastore, and "
    "datastores={{'images': '/data/images'}} gives the others their folders. Or put the same into "
    'its config.json: {{"root": "FOLDER", "datastores": {{"images": "/data/images"}}}}.'
)
WRITTEN = "ws = Workspace"
"""What a notebook writes for a workspace, in `INSTEAD`."""


class Workspace(Known):
    """A workspace with datastores, datasets, models and computes: a folder and names.

    Parameters
    ----------
    subscription_id, resource_group, workspace_name
        Without effect; `workspace_name` is its `name`.
    root : path, optional
        The folder of the default datastore. Its ``.azureml`` keeps what is registered. Default:
        what ``config.json`` says, or in a script the workspace of its step, as by `from_config`.
    datastores : dict, optional
        Folders of other datastores, by name.
    environments : dict, optional
        Interpreters of environments, or the folders that have one, by ``name`` or
        ``name:version``. Steps of all other environments use the running Python.

    Raises
    ------
    UsageError
        Without a `root`, here or in ``config.json``: there is no Azure here. For an environment
        without an interpreter.

    """

    root: Path
    datastores: dict[str, Datastore]
    compute_targets: ComputeTargets
    interpreters: Assets
    """The interpreters of environments, by name."""

    def __init__(
        self,
        subscription_id: str = "",
        resource_group: str = "",
        workspace_name: str = "local",
        *,
        root: str | PathLike[str] | None = None,
        datastores: Mapping[str, str | PathLike[str]] | None = None,
        environments: Mapping[str, str | PathLike[str]] | None = None,
        **_: Any,
    ) -> None:
        known = None
        if root is None:
            found = self.of_run(RunPlace.seen()) or self.described()
            if found is None:
                instead = INSTEAD.format(WRITTEN)
                msg = f"Workspace: there is no Azure here, so a workspace is a folder. {instead}"
                raise UsageError(msg)
            root, known = found.root, found.interpreters
            datastores = {**found.roots(), **(datastores or {})}
        self.subscription_id = subscription_id
        self.resource_group = resource_group
        self.name = workspace_name
        self.location = "local"
        self.root = Path(root).absolute()
        places = {DEFAULT_DATASTORE: self.root, **(datastores or {})}
        self.datastores = {name: Datastore.local(name, path) for name, path in places.items()}
        self.interpreters = given_places(known, environments=environments)
        self.compute_targets = ComputeTargets(self)
        self._default = DEFAULT_DATASTORE
        self._in_memory: dict[str, AbstractDataset] = {}
        for one in self.datastores.values():
            one.workspace = self

    def __repr__(self) -> str:
        return f"Workspace(root={str(self.root)!r})"

    @classmethod
    def from_config(
        cls,
        path: str | PathLike[str] | None = None,
        auth: Any = None,
        _logger: Any = None,
        _file_name: str | PathLike[str] | None = None,
        **_: Any,
    ) -> Workspace:
        """Return the workspace that ``config.json`` describes, if it names a folder.

        The file is in the working directory, its ``.azureml``, or a folder above. Folders in the
        file are relative to its own; those in ``.azureml/config.json`` to the one above. A script
        of a step gets the workspace of the step. `path` is the file, or the folder from which it is
        looked for, and `_file_name` another name of the file.

        Raises
        ------
        UsageError
            When no file is found, the file has no ``root``, or this node does not see the folder
            of the step.

        """
        own = cls.of_run(RunPlace.seen()) if path is None and _file_name is None else None
        if own is not None:
            return own
        found = cls.described(path, _file_name)
        if found is None:
            raise undescribed("Workspace.from_config", WRITTEN, path, _file_name)
        return found

    @classmethod
    def described(
        cls, path: str | PathLike[str] | None = None, name: str | PathLike[str] | None = None
    ) -> Workspace | None:
        """Return the workspace whose folder a ``config.json`` names; None if there is none."""
        file = config_file(path, name)
        if file is None:
            return None
        try:
            found = json.loads(file.read_text("utf-8-sig"))
        except (OSError, ValueError) as error:
            msg = f"{file} cannot be read: {error}"
            raise UsageError(msg) from error
        if not isinstance(found, dict) or found.get("root") is None:
            return None
        folder = file.absolute().parent
        if folder.name == REGISTRY:
            folder = folder.parent  # the file belongs to the folder of the notebook
        try:
            for named in ("datastores", "environments"):
                places = (found.get(named) or {}).items()
                found[named] = {name: folder / one for name, one in places}
            root = folder / found.pop("root")
        except (AttributeError, TypeError) as error:
            msg = f"{file}: root is a path, datastores and environments are paths by name: {error}"
            raise UsageError(msg) from error
        return cls(root=root, **found)

    @classmethod
    def of_run(cls, place: RunPlace | None) -> Workspace | None:
        """Return the workspace of a script's step; None when the step has none."""
        if place is None or place.root is None:
            return None
        return cls(root=place.root, datastores=place.datastores)

    @classmethod
    def get(cls, name: str = "local", **_: Any) -> Workspace:
        """Return the workspace that ``config.json`` describes, whatever its name.

        Raises
        ------
        UsageError
            As by `from_config`.

        """
        workspace = cls.from_config()
        workspace.name = name
        return workspace

    @property
    def models(self) -> dict[str, Model]:
        """The last version of each registered model, by name."""
        return {one.name: one for one in Model.list(self)}

    @property
    def datasets(self) -> dict[str, AbstractDataset]:
        """The registered datasets, by name."""
        files = sorted((self.root / REGISTRY / "datasets").glob("*.json"))
        records = {unquote(file.stem): json.loads(file.read_text()) for file in files}
        kept = {name: dataset_of_record(one) for name, one in records.items()}
        return {**kept, **self._in_memory}

    @property
    def environments(self) -> Environments:
        """The registered environments, by name; any other name is one, too."""
        return Environments(self)

    @property
    def experiments(self) -> dict[str, Experiment]:
        """The experiments that have runs in the root of jobs, by name."""
        from daskprs.azure.v1.pipeline import Experiment  # it imports this module

        return {one.name: one for one in Experiment.list(self)}

    def keep_dataset(self, name: str, dataset: AbstractDataset) -> None:
        """Register a dataset by name; a frame in memory only while this object lives."""
        record = dataset.record()
        if record is None:
            self._in_memory[name] = dataset
            return
        self._in_memory.pop(name, None)
        path = self.root / REGISTRY / "datasets" / f"{quote(name, safe='')}.json"
        write_text(path, json.dumps(record, indent=1))

    def environment(self, environment: Any) -> NamedEnvironment:
        """Return the names of an environment, and the interpreter that this workspace has for it.

        It is given as an object with a name, or by its name.
        """
        one = environment if isinstance(environment, str) else vars(environment)
        return self.interpreters.environment(one, Path(), "")

    def roots(self) -> dict[str, Path]:
        """Return the folders of all datastores, by name."""
        return {name: one.root for name, one in self.datastores.items()}

    def folders(self) -> tuple[Path, ...]:
        """Return the folders of all datastores, and the folder of the registry."""
        return (*self.roots().values(), self.root / REGISTRY)

    def get_default_datastore(self) -> Datastore:
        """Return the default datastore: the folder `root`, unless another was set."""
        return self.datastores[self._default]

    def set_default_datastore(self, name: str) -> None:
        """Set the default datastore, while this object lives."""
        self._default = self.datastore(name).name

    def datastore(self, name: str) -> Datastore:
        """Return a datastore by name; refuse one that has no folder here."""
        if name not in self.datastores:
            near = nearest_of(name, [*self.datastores])
            msg = (
                f"the datastore {name!r} has no folder here ({near}). To give it one: "
                f"Workspace(root={str(self.root)!r}, datastores={{{name!r}: '/path'}})."
            )
            raise UsageError(msg)
        return self.datastores[name]


def config_file(
    path: str | PathLike[str] | None = None, name: str | PathLike[str] | None = None
) -> Path | None:
    """Return the file that describes the workspace, by default a ``config.json``."""
    start = Path(path or "")
    if start.is_file():
        return start
    if not start.exists():
        return None
    names = CONFIG if name is None else (name, Path(REGISTRY, name))
    start = start.absolute()
    files = (folder / one for folder in (start, *start.parents) for one in names)
    return next((file for file in files if file.is_file()), None)


def undescribed(
    caller: str,
    written: str,
    path: str | PathLike[str] | None,
    name: str | PathLike[str] | None,
) -> UsageError:
    """Return the error where `config_file` returns none, or one that names no folder."""
    file = config_file(path, name)
    if file is not None:
        where = f"{file} has no root"
    elif path is not None and not Path(path).exists():
        where = f"{path} does not exist"
    else:
        where = f"no {name or CONFIG[0]} was found"
    msg = f"{caller}: there is no Azure here, and {where}. {INSTEAD.format(written)}"
    return UsageError(msg)
