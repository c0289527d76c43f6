"""SDK v1 of Azure Machine Learning, as far as its parallel run steps need it.

Notebooks run with their imports changed: whatever they import from ``azureml.core``,
``azureml.pipeline.core``, ``azureml.pipeline.steps`` and ``azureml.data`` is here, by its own name.
What is not built can be imported, and its use says what to write instead: ``names.toml`` lists it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs import __version__
from daskprs._lazy_exports import lazy_exports
from daskprs.azure.v1.absent import not_built

if TYPE_CHECKING:
    from daskprs.azure.v1.config import ParallelRunConfig
    from daskprs.azure.v1.dataset import (
        AbstractDataset,
        DatasetConsumptionConfig,
        FileDataset,
        TabularDataset,
    )
    from daskprs.azure.v1.dataset_factory import (
        Dataset,
        DataType,
        FileDatasetFactory,
        PromoteHeadersBehavior,
        TabularDatasetFactory,
    )
    from daskprs.azure.v1.datastore import DataPath, Datastore
    from daskprs.azure.v1.environment import (
        DEFAULT_CPU_IMAGE,
        DEFAULT_GPU_IMAGE,
        AmlCompute,
        AzureMLException,
        ComputeInstance,
        ComputeTarget,
        ComputeTargetException,
        CondaDependencies,
        DockerConfiguration,
        Environment,
        ModelNotFoundException,
        RunConfiguration,
        UserErrorException,
        WebserviceException,
    )
    from daskprs.azure.v1.inputs import DataReference
    from daskprs.azure.v1.model import Model
    from daskprs.azure.v1.outputs import OutputFileDatasetConfig, PipelineData
    from daskprs.azure.v1.parallel_step import ParallelRunStep
    from daskprs.azure.v1.parameter import PipelineParameter
    from daskprs.azure.v1.pipeline import Experiment, Pipeline
    from daskprs.azure.v1.pipeline_run import (
        ParallelRunStepDetails,
        PipelineRun,
        RunDetails,
        StepRun,
    )
    from daskprs.azure.v1.published import (
        AzureCliAuthentication,
        InteractiveLoginAuthentication,
        MsiAuthentication,
        PipelineEndpoint,
        PublishedPipeline,
        Schedule,
        ScheduleRecurrence,
        ServicePrincipalAuthentication,
        set_diagnostics_collection,
    )
    from daskprs.azure.v1.run import Run
    from daskprs.azure.v1.script_step import PythonScriptStep, ScriptRunConfig
    from daskprs.azure.v1.step import PipelineStep, StepSequence
    from daskprs.azure.v1.workspace import Workspace

VERSION = __version__

# Imported when they are asked for: scripts in agents ask for one or two of them.
_NAMES = {
    ".config": "ParallelRunConfig",
    ".dataset": "AbstractDataset DatasetConsumptionConfig FileDataset TabularDataset",
    ".dataset_factory": """Dataset DataType FileDatasetFactory PromoteHeadersBehavior
        TabularDatasetFactory""",
    ".datastore": "DataPath Datastore",
    ".environment": """DEFAULT_CPU_IMAGE DEFAULT_GPU_IMAGE AmlCompute AzureMLException
        ComputeInstance ComputeTarget ComputeTargetException CondaDependencies DockerConfiguration
        Environment ModelNotFoundException RunConfiguration UserErrorException
        WebserviceException""",
    ".inputs": "DataReference",
    ".model": "Model",
    ".outputs": "OutputFileDatasetConfig PipelineData",
    ".parallel_step": "ParallelRunStep",
    ".parameter": "PipelineParameter",
    ".pipeline": "Experiment Pipeline",
    ".pipeline_run": "ParallelRunStepDetails PipelineRun RunDetails StepRun",
    ".published": """AzureCliAuthentication InteractiveLoginAuthentication MsiAuthentication
        PipelineEndpoint PublishedPipeline Schedule ScheduleRecurrence
        ServicePrincipalAuthentication set_diagnostics_collection""",
    ".run": "Run _OfflineRun",
    ".script_step": "PythonScriptStep ScriptRunConfig",
    ".step": "PipelineStep StepSequence",
    ".workspace": "Workspace",
}

__all__ = [
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
    "VERSION",
    "AbstractDataset",
    "AmlCompute",
    "AzureCliAuthentication",
    "AzureMLException",
    "ComputeInstance",
    "ComputeTarget",
    "ComputeTargetException",
    "CondaDependencies",
    "DataPath",
    "DataReference",
    "DataType",
    "Dataset",
    "DatasetConsumptionConfig",
    "Datastore",
    "DockerConfiguration",
    "Environment",
    "Experiment",
    "FileDataset",
    "FileDatasetFactory",
    "InteractiveLoginAuthentication",
    "Model",
    "ModelNotFoundException",
    "MsiAuthentication",
    "OutputFileDatasetConfig",
    "ParallelRunConfig",
    "ParallelRunStep",
    "ParallelRunStepDetails",
    "Pipeline",
    "PipelineData",
    "PipelineEndpoint",
    "PipelineParameter",
    "PipelineRun",
    "PipelineStep",
    "PromoteHeadersBehavior",
    "PublishedPipeline",
    "PythonScriptStep",
    "Run",
    "RunConfiguration",
    "RunDetails",
    "Schedule",
    "ScheduleRecurrence",
    "ScriptRunConfig",
    "ServicePrincipalAuthentication",
    "StepRun",
    "StepSequence",
    "TabularDataset",
    "TabularDatasetFactory",
    "UserErrorException",
    "WebserviceException",
    "Workspace",
    "set_diagnostics_collection",
]

__getattr__, __dir__ = lazy_exports(__name__, _NAMES, globals(), not_built)
