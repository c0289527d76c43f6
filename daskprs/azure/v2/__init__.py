"""SDK v2 of Azure Machine Learning, as far as pipelines and batch endpoints need it.

Notebooks run with their imports changed: ``azure.ai.ml`` becomes ``daskprs.azure.v2``. What they
import from ``azure.identity`` and ``azure.core.exceptions`` is here, too. Each object ends as the
values of a YAML file, and runs as that file does.

What is not built can be imported, and its use says what to write instead: ``names.toml`` lists it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daskprs._lazy_exports import lazy_exports
from daskprs.azure.v1.absent import not_built

if TYPE_CHECKING:
    from daskprs.azure._registry import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceExistsError,
        ResourceNotFoundError,
    )
    from daskprs.azure.v2.asset import Data, Model, load_data, load_model
    from daskprs.azure.v2.batch import (
        BatchDeployment,
        BatchEndpoint,
        ModelBatchDeployment,
        ModelBatchDeploymentSettings,
        PipelineComponentBatchDeployment,
        load_batch_deployment,
        load_batch_endpoint,
    )
    from daskprs.azure.v2.client import MLClient
    from daskprs.azure.v2.component import Component, load_component, load_job
    from daskprs.azure.v2.constants import (
        AssetTypes,
        BatchDeploymentOutputAction,
        InputOutputModes,
    )
    from daskprs.azure.v2.credential import (
        AuthorizationCodeCredential,
        AzureCliCredential,
        AzureDeveloperCliCredential,
        AzurePipelinesCredential,
        AzurePowerShellCredential,
        CertificateCredential,
        ChainedTokenCredential,
        ClientAssertionCredential,
        ClientSecretCredential,
        DefaultAzureCredential,
        DeviceCodeCredential,
        EnvironmentCredential,
        InteractiveBrowserCredential,
        ManagedIdentityCredential,
        OnBehalfOfCredential,
        SharedTokenCacheCredential,
        UsernamePasswordCredential,
        VisualStudioCodeCredential,
        WorkloadIdentityCredential,
        get_bearer_token_provider,
    )
    from daskprs.azure.v2.dsl import pipeline
    from daskprs.azure.v2.entities import (
        AmlCompute,
        BatchRetrySettings,
        BuildContext,
        CodeConfiguration,
        CommandJobLimits,
        Environment,
        JobResourceConfiguration,
        JobService,
        PipelineJobSettings,
        ResourceConfiguration,
        RetrySettings,
        load_compute,
        load_environment,
    )
    from daskprs.azure.v2.function_component import command_component
    from daskprs.azure.v2.parallel import RunFunction, parallel_run_function
    from daskprs.azure.v2.pipeline_job import PipelineJob
    from daskprs.azure.v2.ports import Input, Output
    from daskprs.azure.v2.shell_command import CommandComponent, command

# Imported when they are asked for, as those of SDK v1.
_NAMES = {
    ".asset": "Data Model load_data load_model",
    ".batch": """BatchDeployment BatchEndpoint ModelBatchDeployment ModelBatchDeploymentSettings
        PipelineComponentBatchDeployment load_batch_deployment load_batch_endpoint""",
    ".client": "MLClient",
    ".shell_command": "CommandComponent command",
    ".component": "Component load_component load_job",
    ".constants": "AssetTypes BatchDeploymentOutputAction InputOutputModes",
    ".credential": """AuthorizationCodeCredential AzureCliCredential
        AzureDeveloperCliCredential AzurePipelinesCredential AzurePowerShellCredential
        CertificateCredential ChainedTokenCredential ClientAssertionCredential
        ClientSecretCredential DefaultAzureCredential DeviceCodeCredential
        EnvironmentCredential InteractiveBrowserCredential ManagedIdentityCredential
        OnBehalfOfCredential SharedTokenCacheCredential UsernamePasswordCredential
        VisualStudioCodeCredential WorkloadIdentityCredential get_bearer_token_provider""",
    ".dsl": "pipeline",
    ".entities": """AmlCompute BatchRetrySettings BuildContext CodeConfiguration CommandJobLimits
        Environment JobResourceConfiguration JobService PipelineJobSettings ResourceConfiguration
        RetrySettings load_compute load_environment""",
    ".function_component": "command_component",
    ".parallel": "RunFunction parallel_run_function",
    ".pipeline_job": "PipelineJob",
    ".ports": "Input Output",
    ".._registry": """AzureError ClientAuthenticationError HttpResponseError ResourceExistsError
        ResourceNotFoundError""",
}

__all__ = [
    "AmlCompute",
    "AssetTypes",
    "AuthorizationCodeCredential",
    "AzureCliCredential",
    "AzureDeveloperCliCredential",
    "AzureError",
    "AzurePipelinesCredential",
    "AzurePowerShellCredential",
    "BatchDeployment",
    "BatchDeploymentOutputAction",
    "BatchEndpoint",
    "BatchRetrySettings",
    "BuildContext",
    "CertificateCredential",
    "ChainedTokenCredential",
    "ClientAssertionCredential",
    "ClientAuthenticationError",
    "ClientSecretCredential",
    "CodeConfiguration",
    "CommandComponent",
    "CommandJobLimits",
    "Component",
    "Data",
    "DefaultAzureCredential",
    "DeviceCodeCredential",
    "Environment",
    "EnvironmentCredential",
    "HttpResponseError",
    "Input",
    "InputOutputModes",
    "InteractiveBrowserCredential",
    "JobResourceConfiguration",
    "JobService",
    "MLClient",
    "ManagedIdentityCredential",
    "Model",
    "ModelBatchDeployment",
    "ModelBatchDeploymentSettings",
    "OnBehalfOfCredential",
    "Output",
    "PipelineComponentBatchDeployment",
    "PipelineJob",
    "PipelineJobSettings",
    "ResourceConfiguration",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "RetrySettings",
    "RunFunction",
    "SharedTokenCacheCredential",
    "UsernamePasswordCredential",
    "VisualStudioCodeCredential",
    "WorkloadIdentityCredential",
    "command",
    "command_component",
    "get_bearer_token_provider",
    "load_batch_deployment",
    "load_batch_endpoint",
    "load_component",
    "load_compute",
    "load_data",
    "load_environment",
    "load_job",
    "load_model",
    "parallel_run_function",
    "pipeline",
]

__getattr__, __dir__ = lazy_exports(__name__, _NAMES, globals(), partial(not_built, sdk="v2"))
