"""Data, models, components, environments, computes and datastores of a workspace, by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from daskprs.azure._registry import MODELS, copy, reference_to
from daskprs.azure.v1.model import Model as CopiedModel
from daskprs.azure.v2.asset import Data, Model
from daskprs.azure.v2.component import Component, FileComponent
from daskprs.azure.v2.dsl import PipelineFunction
from daskprs.azure.v2.entities import AmlCompute, Environment
from daskprs.azure.v2.entity import as_yaml
from daskprs.azure.v2.node import Node
from daskprs.azure.v2.operations import KnownInV2, Operations, Poller, T
from daskprs.errors import UsageError

if TYPE_CHECKING:
    import builtins
    from os import PathLike

    from daskprs.azure.v2.client import MLClient


class _Registered(Operations, Generic[T]):
    """One kind of assets of a workspace, each with versions."""

    KIND: ClassVar[str]
    ENTITY: ClassVar[Any] = None
    """The class whose values a record has."""

    def _made(self, name: str, version: str) -> T:
        """Return the asset that is registered."""
        record = self._registry.record(self.KIND, name, version)
        made: T = self.ENTITY(**{**record, "version": version})
        return made

    def get(self, name: str, version: Any = None, label: str | None = None) -> T:
        """Return a version of a name, by default the last one."""
        return self._made(name, self._registry.version(self.KIND, name, version, label))

    def list(self, name: str | None = None) -> builtins.list[T]:
        """Return the versions of a name, or the last version of each."""
        if name is not None:
            return [self.get(name, one) for one in self._registry.versions(self.KIND, name)]
        return [self.get(one) for one in self._registry.names(self.KIND)]


class DataOperations(_Registered[Data]):
    """Data assets: names for paths."""

    KIND, ENTITY = "data", Data

    def create_or_update(self, data: Data) -> Data:
        """Register the path of data, as the next version or as the given one."""
        values = data.values()
        if not values.get("path"):
            msg = f"data: {data.name!r} has no path."
            raise UsageError(msg)
        version = self._registry.keep("data", data.name, data.version, values)
        return self.get(str(data.name), version)


class ModelOperations(_Registered[Model]):
    """Models: copies in the folder of the workspace."""

    KIND = MODELS

    def create_or_update(self, model: Model) -> Model:
        """Copy a model into the workspace, as the next version or as the given one."""
        path = model.values().get("path")
        if not path:
            msg = f"models: {model.name!r} has no path."
            raise UsageError(msg)
        place = str(self._client.assets().place(path, Path.cwd()))
        kept = CopiedModel.register(
            self._client.workspace,
            place,
            model.name or "",
            model.tags,
            {"type": model.type} | dict(model.properties or {}),
            model.description,
            version=model.version,
        )
        return self.get(kept.name, kept.version)

    def download(
        self, name: str, version: Any = None, download_path: str | PathLike[str] = "."
    ) -> None:
        """Copy a version of a model, by default the last, into a folder of its name."""
        version = self._registry.version(MODELS, name, version, None)
        source = self._registry.copied(MODELS, name, version)
        copy(source, Path(download_path, name, source.name))

    def _made(self, name: str, version: str) -> Model:
        record = self._registry.record(MODELS, name, version)
        properties = dict(record["properties"])
        return Model(
            name=name,
            version=version,
            path=self._registry.copied(MODELS, name, version),
            type=properties.pop("type", "custom_model"),
            description=record["description"],
            tags=record["tags"],
            properties=properties,
        )


class ComponentOperations(_Registered[FileComponent]):
    """Components: what a step does, by name."""

    KIND = "components"

    def create_or_update(
        self, component: Component | PipelineFunction | Node, *, version: Any = None
    ) -> FileComponent:
        """Register a component; its code stays where it is."""
        if isinstance(component, PipelineFunction):
            component = component.build()
        if isinstance(component, Node):
            component = component.component
        record, text = {}, None
        if isinstance(component, FileComponent):
            record = {"path": str(component.path)}
        else:
            text = partial(_text_of, component)
        wanted = version or component.version
        number = self._registry.keep("components", component.name, wanted, record, text)
        return self.get(str(component.name), number)

    def _made(self, name: str, version: str) -> FileComponent:
        reference = reference_to("components", name, version)
        found = FileComponent(self._registry.component(name, version), reference)
        found.name, found.version = name, version
        return found


def _text_of(component: Component, version: str) -> str:
    """Return the file of a component that was made in Python."""
    return as_yaml({**component.values(), "name": component.name, "version": version})


class EnvironmentOperations(_Registered[Environment]):
    """Environments: names, since nothing is installed."""

    KIND, ENTITY = "environments", Environment

    def create_or_update(self, environment: Environment) -> Environment:
        """Register an environment."""
        name, values = environment.name, environment.values()
        number = self._registry.keep("environments", name, environment.version, values)
        return self.get(str(name), number)

    def get(self, name: str, version: Any = None, label: str | None = None) -> Environment:
        """Return a version of an environment; one that is not registered is a name."""
        if not self._registry.versions("environments", name):
            return Environment(name=name, version=None if version is None else str(version))
        return super().get(name, version, label)


class ComputeOperations(Operations):
    """Computes: names, since jobs run here or on the given Dask cluster."""

    def __init__(self, client: MLClient) -> None:
        super().__init__(client)
        self._made: dict[str, AmlCompute] = {}

    def get(self, name: str) -> AmlCompute:
        """Return a compute of any name."""
        return self._made.get(name) or AmlCompute(name=name)

    def list(self) -> builtins.list[AmlCompute]:
        """Return the computes that were made by this client."""
        return [*self._made.values()]

    def begin_create_or_update(self, compute: AmlCompute) -> Poller[AmlCompute]:
        """Accept a compute, without effect."""
        self._made[compute.name] = compute
        return Poller(compute)

    def begin_delete(self, name: str) -> Poller[None]:
        """Forget a compute."""
        self._made.pop(name, None)
        return Poller(None)


class DatastoreOperations(Operations):
    """Datastores: folders by name."""

    def get_default(self) -> Any:
        """Return the default datastore: the folder of the workspace."""
        return self.get(self._client.workspace.get_default_datastore().name)

    def get(self, name: str) -> Any:
        """Return a datastore with its `name`, `id` and folder `root`."""
        return StoreFolder(name=name, root=str(self._client.workspace.datastore(name).root))

    def list(self) -> builtins.list[Any]:
        """Return all datastores."""
        return [self.get(name) for name in self._client.workspace.datastores]


class StoreFolder:
    """A datastore: a name for a folder."""

    def __init__(self, name: str, root: str) -> None:
        self.name = name
        self.root = root
        self.id = f"azureml://datastores/{name}"

    def __repr__(self) -> str:
        return f"StoreFolder({self.name!r}, {self.root!r})"


class WorkspaceOperations(Operations):
    """Workspaces: that of the client, by any name."""

    def get(self, name: str | None = None) -> FolderWorkspace:
        """Return the workspace of the client."""
        return FolderWorkspace(self._client, name or self._client.workspace_name)

    def list(self) -> builtins.list[FolderWorkspace]:
        """Return the workspace of the client alone."""
        return [self.get()]


class FolderWorkspace(KnownInV2):
    """A workspace by name; MLflow, where it is installed, writes its own files into its folder."""

    location = "local"

    def __init__(self, client: MLClient, name: str) -> None:
        self.name = name
        self.resource_group = client.resource_group_name
        self.mlflow_tracking_uri = (client.workspace.root / "mlruns").as_uri()

    def __repr__(self) -> str:
        return f"FolderWorkspace({self.name!r})"
