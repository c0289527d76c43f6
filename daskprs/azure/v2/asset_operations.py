"""Data, models, components, environments, computes and datastores of a workspace, by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.v2.asset import Data, Model, reference_to
from daskprs.azure.v2.component import Component, FileComponent
from daskprs.azure.v2.dsl import PipelineFunction
from daskprs.azure.v2.entities import AmlCompute, Environment
from daskprs.azure.v2.node import Node
from daskprs.azure.v2.operations import Operations, Poller
from daskprs.azure.v2.registry import ResourceNotFoundError
from daskprs.errors import UsageError

if TYPE_CHECKING:
    import builtins

    from daskprs.azure.v2.client import MLClient


class DataOperations(Operations):
    """Data assets: names for paths."""

    def create_or_update(self, data: Data) -> Data:
        """Register the path of data, as the next version or as the given one."""
        values = data.values()
        if not values.get("path"):
            msg = f"data: {data.name!r} has no path."
            raise UsageError(msg)
        version = self._registry.keep("data", data.name, data.version, values)
        return self.get(str(data.name), version)

    def get(self, name: str, version: Any = None, label: str | None = None) -> Data:
        """Return a version of data, by default the last one."""
        number = self._registry.version("data", name, version, label)
        record = self._registry.record("data", name, number)
        return Data(**{**record, "version": number})

    def list(self, name: str | None = None) -> builtins.list[Data]:
        """Return the versions of a name, or the last version of each."""
        if name is not None:
            return [self.get(name, one) for one in self._registry.versions("data", name)]
        return [self.get(one) for one in self._registry.names("data")]


class ModelOperations(Operations):
    """Models: copies in the folder of the workspace."""

    def create_or_update(self, model: Model) -> Model:
        """Copy a model into the workspace, as the next version or as the given one."""
        path = model.values().get("path")
        if not path:
            msg = f"models: {model.name!r} has no path."
            raise UsageError(msg)
        place = str(self._client.assets().place(path, Path.cwd()))
        labels = {"tags": model.tags, "properties": model.properties}
        kept = {"type": model.type} | dict(labels.pop("properties") or {})
        version = self._registry.keep_model(
            model.name,
            place,
            model.version,
            description=model.description,
            properties=kept,
            **labels,
        )
        return self.get(str(model.name), version)

    def get(self, name: str, version: Any = None, label: str | None = None) -> Model:
        """Return a version of a model, by default the last one."""
        return self._found(self._registry.models(name), name, None if label else version)

    def _found(self, models: builtins.list[Any], name: str, version: Any) -> Model:
        wanted = [one for one in models if version is None or str(one.version) == str(version)]
        if not wanted:
            known = ", ".join(f"{one.name}:{one.version}" for one in self._registry.models())
            told = name if version is None else f"{name}:{version}"
            msg = f"this workspace has no model {told} (known: {known or 'none'})."
            raise ResourceNotFoundError(msg)
        return _model_of(wanted[-1])

    def list(self, name: str | None = None) -> builtins.list[Model]:
        """Return the versions of a name, or the last version of each."""
        found = self._registry.models(name)
        last = {one.name: one for one in found}.values()
        return [_model_of(one) for one in (found if name is not None else last)]


def _model_of(kept: Any) -> Model:
    properties = dict(kept.properties)
    return Model(
        name=kept.name,
        version=str(kept.version),
        path=kept.path,
        type=properties.pop("type", "custom_model"),
        description=kept.description,
        tags=kept.tags,
        properties=properties,
    )


class ComponentOperations(Operations):
    """Components: what a step does, by name."""

    def create_or_update(
        self, component: Component | PipelineFunction | Node, *, version: Any = None
    ) -> FileComponent:
        """Register a component; its code stays where it is."""
        if isinstance(component, PipelineFunction):
            component = component.build()
        if isinstance(component, Node):
            component = component.component
        in_file = isinstance(component, FileComponent)
        number = self._registry.keep(
            "components",
            component.name,
            version or component.version,
            {"path": str(component.path)} if in_file else {},
            None if in_file else component.values(),
        )
        return self.get(str(component.name), number)

    def get(self, name: str, version: Any = None, label: str | None = None) -> FileComponent:
        """Return a version of a component, by default the last one."""
        number = self._registry.version("components", name, version, label)
        reference = reference_to("components", name, number)
        found = FileComponent(self._registry.component(name, number), reference)
        found.name, found.version = name, number
        return found

    def list(self, name: str | None = None) -> builtins.list[FileComponent]:
        """Return the versions of a name, or the last version of each."""
        if name is not None:
            return [self.get(name, one) for one in self._registry.versions("components", name)]
        return [self.get(one) for one in self._registry.names("components")]


class EnvironmentOperations(Operations):
    """Environments: names, since nothing is installed."""

    def create_or_update(self, environment: Environment) -> Environment:
        """Register an environment."""
        name, values = environment.name, environment.values()
        number = self._registry.keep("environments", name, environment.version, values)
        return self.get(str(name), number)

    def get(self, name: str, version: Any = None, label: str | None = None) -> Environment:
        """Return a version of an environment; one that is not registered is a name."""
        if not self._registry.versions("environments", name):
            return Environment(name=name, version=None if version is None else str(version))
        number = self._registry.version("environments", name, version, label)
        return Environment(
            **{**self._registry.record("environments", name, number), "version": number}
        )

    def list(self, name: str | None = None) -> builtins.list[Environment]:
        """Return the versions of a name, or the last version of each."""
        if name is not None:
            return [self.get(name, one) for one in self._registry.versions("environments", name)]
        return [self.get(one) for one in self._registry.names("environments")]


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
