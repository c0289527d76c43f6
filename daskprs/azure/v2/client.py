"""`MLClient`: runs jobs, and keeps what is registered in the folder of a workspace."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from daskprs.azure._assets import given_places
from daskprs.azure._pipeline_folder import WORKSPACE
from daskprs.azure._registry import Registry
from daskprs.azure.v1.datastore import Datastore
from daskprs.azure.v1.workspace import Workspace, config_file, undescribed
from daskprs.azure.v2.asset import Data, Model
from daskprs.azure.v2.asset_operations import (
    ComponentOperations,
    ComputeOperations,
    DataOperations,
    DatastoreOperations,
    EnvironmentOperations,
    ModelOperations,
    WorkspaceOperations,
)
from daskprs.azure.v2.batch import BatchEndpoint
from daskprs.azure.v2.batch_operations import BatchDeploymentOperations, BatchEndpointOperations
from daskprs.azure.v2.component import Component
from daskprs.azure.v2.dsl import PipelineFunction
from daskprs.azure.v2.entities import AmlCompute, Environment
from daskprs.azure.v2.job_operations import JobOperations
from daskprs.azure.v2.operations import KnownInV2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from distributed import Client

    from daskprs.azure._assets import Assets
    from daskprs.azure.v2.operations import Poller


class MLClient(KnownInV2):
    """A workspace in a folder: jobs run here, and what is registered is found again.

    Parameters
    ----------
    credential, subscription_id, resource_group_name, workspace_name, registry_name,
    enable_telemetry, show_progress
        Without effect: nothing here needs authorization.
    root : path, optional
        The folder of the workspace, which is its default datastore, too. Default: the ``root``
        that a ``config.json`` names, or ``./daskprs-workspace``.
    datastores : dict, optional
        Folders of other datastores, by name.
    assets : dict or path, optional
        Local paths of assets, by ``"name"``, ``"name:version"`` or whole reference, or a mapping
        file.
    environments : dict, optional
        Interpreters of environments, by name: ``{"scoring": "/envs/scoring/bin/python"}``.
    client : str or distributed.Client, optional
        The Dask cluster on which parallel steps and deployments run. Default: this machine.

    """

    def __init__(
        self,
        credential: Any = None,
        subscription_id: str | None = None,
        resource_group_name: str | None = None,
        workspace_name: str | None = None,
        registry_name: str | None = None,
        *,
        root: str | PathLike[str] | None = None,
        datastores: Mapping[str, str | PathLike[str]] | None = None,
        assets: Mapping[str, str | PathLike[str]] | str | PathLike[str] | None = None,
        environments: Mapping[str, str | PathLike[str]] | None = None,
        client: Client | str | None = None,
        enable_telemetry: bool | None = None,
        show_progress: bool | None = None,
    ) -> None:
        described = Workspace.described() if root is None else None
        self.workspace = described or Workspace(root=root or WORKSPACE)
        for name, place in (datastores or {}).items():
            self.workspace.datastores[name] = Datastore.local(name, place)
        self.workspace_name = workspace_name or self.workspace.name
        self.subscription_id = subscription_id
        self.resource_group_name = resource_group_name
        self.client = client
        self._given = assets
        self._environments = environments
        self.registry = Registry(self.workspace.root)
        self.jobs = JobOperations(self)
        self.data = DataOperations(self)
        self.models = ModelOperations(self)
        self.components = ComponentOperations(self)
        self.environments = EnvironmentOperations(self)
        self.compute = ComputeOperations(self)
        self.datastores = DatastoreOperations(self)
        self.workspaces = WorkspaceOperations(self)
        self.batch_endpoints = BatchEndpointOperations(self)
        self.batch_deployments = BatchDeploymentOperations(self)

    def __repr__(self) -> str:
        return f"MLClient(root={str(self.workspace.root)!r})"

    @classmethod
    def from_config(
        cls,
        credential: Any = None,
        *,
        path: str | PathLike[str] | None = None,
        file_name: str | PathLike[str] | None = None,
        **given: Any,
    ) -> MLClient:
        """Return a client of the workspace that a ``config.json`` names.

        The path is that of the file, or of the folder from which the file is looked for, upwards.
        `file_name` is another name of the file. Without any file, the client is that of the default
        workspace; with one of Azure's own, which has no ``root``, it is, too, and a warning says
        so.

        Raises
        ------
        UsageError
            When the file that is named does not exist or cannot be read.

        """
        is_named = path is not None or file_name is not None
        if given.get("root") is not None or not (is_named or config_file()):
            return cls(credential, **given)
        described = Workspace.described(path, file_name)
        if described is None and (file := config_file(path, file_name)) is not None:
            client = cls(credential, **given)
            told = f"{file} has no root: the workspace is {client.workspace.root}."
            warnings.warn(told, stacklevel=2)
            return client
        if described is None:
            raise undescribed("MLClient.from_config", "MLClient", path, file_name)
        stores = {**described.roots(), **(given.pop("datastores", None) or {})}
        given.setdefault("workspace_name", described.name)
        client = cls(credential, root=described.root, datastores=stores, **given)
        client.workspace.interpreters = described.interpreters
        return client

    def assets(self) -> Assets:
        """Return the places of all that is registered and of all that was given."""
        roots = {name: str(root) for name, root in self.workspace.roots().items()}
        given = given_places(self._given, None, self._environments).for_several_files()
        return replace(
            given,
            paths={**self.registry.places(), **given.paths},
            datastores={**roots, **given.datastores},
            environments={**self.workspace.interpreters.environments, **given.environments},
        )

    def create_or_update(self, entity: Any, **given: Any) -> Any:
        """Run a job, or register an asset."""
        match entity:
            case Model():
                return self.models.create_or_update(entity)
            case Data():
                return self.data.create_or_update(entity)
            case Environment():
                return self.environments.create_or_update(entity)
            case Component() | PipelineFunction():
                return self.components.create_or_update(entity)
        return self.jobs.create_or_update(entity, **given)

    def begin_create_or_update(self, entity: Any) -> Poller[Any]:
        """Register a compute, an endpoint or a deployment."""
        match entity:
            case AmlCompute():
                return self.compute.begin_create_or_update(entity)
            case BatchEndpoint():
                return self.batch_endpoints.begin_create_or_update(entity)
        return self.batch_deployments.begin_create_or_update(entity)
