"""SDK v1 of Azure Machine Learning, as far as its parallel run steps need it.

Notebooks run with their imports changed: whatever they import from ``azureml.core``,
``azureml.pipeline.core``, ``azureml.pipeline.steps`` and ``azureml.data`` is here, by its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs import __version__
from daskprs.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from daskprs.azure.v1.config.compute import AmlCompute, ComputeTarget, ComputeTargetException
    from daskprs.azure.v1.config.config import ParallelRunConfig
    from daskprs.azure.v1.config.environment import (
        DEFAULT_CPU_IMAGE,
        DEFAULT_GPU_IMAGE,
        CondaDependencies,
        DockerConfiguration,
        Environment,
        RunConfiguration,
    )
    from daskprs.azure.v1.config.parameter import PipelineParameter
    from daskprs.azure.v1.data.column_types import DataType, PromoteHeadersBehavior
    from daskprs.azure.v1.data.consumption import DatasetConsumptionConfig
    from daskprs.azure.v1.data.data_reference import DataReference
    from daskprs.azure.v1.data.dataset import FileDataset, TabularDataset
    from daskprs.azure.v1.data.dataset_factory import (
        Dataset,
        FileDatasetFactory,
        TabularDatasetFactory,
    )
    from daskprs.azure.v1.data.datastore import DataPath, Datastore
    from daskprs.azure.v1.data.outputs import OutputFileDatasetConfig, PipelineData
    from daskprs.azure.v1.model import Model
    from daskprs.azure.v1.runs.experiment import Experiment
    from daskprs.azure.v1.runs.parallel_step import ParallelRunStep
    from daskprs.azure.v1.runs.pipeline import Pipeline
    from daskprs.azure.v1.runs.published import (
        InteractiveLoginAuthentication,
        MsiAuthentication,
        PipelineEndpoint,
        PublishedPipeline,
        Schedule,
        ScheduleRecurrence,
        ServicePrincipalAuthentication,
    )
    from daskprs.azure.v1.runs.runs import PipelineRun, RunDetails, StepRun
    from daskprs.azure.v1.runs.script_run import Run
    from daskprs.azure.v1.runs.script_step import PythonScriptStep, ScriptRunConfig
    from daskprs.azure.v1.runs.step import StepSequence
    from daskprs.azure.v1.workspace import Workspace

VERSION = __version__

# Imported when they are asked for: scripts in agents ask for one or two of them.
_NAMES = {
    "data.column_types": ("DataType", "PromoteHeadersBehavior"),
    "config.compute": ("AmlCompute", "ComputeTarget", "ComputeTargetException"),
    "config.config": ("ParallelRunConfig",),
    "data.consumption": ("DatasetConsumptionConfig",),
    "data.data_reference": ("DataReference",),
    "data.dataset": ("FileDataset", "TabularDataset"),
    "data.dataset_factory": ("Dataset", "FileDatasetFactory", "TabularDatasetFactory"),
    "data.datastore": ("DataPath", "Datastore"),
    "config.environment": (
        "CondaDependencies",
        "DEFAULT_CPU_IMAGE",
        "DEFAULT_GPU_IMAGE",
        "DockerConfiguration",
        "Environment",
        "RunConfiguration",
    ),
    "runs.experiment": ("Experiment",),
    "model": ("Model",),
    "data.outputs": ("OutputFileDatasetConfig", "PipelineData"),
    "runs.parallel_step": ("ParallelRunStep",),
    "config.parameter": ("PipelineParameter",),
    "runs.pipeline": ("Pipeline",),
    "runs.published": (
        "InteractiveLoginAuthentication",
        "MsiAuthentication",
        "PipelineEndpoint",
        "PublishedPipeline",
        "Schedule",
        "ScheduleRecurrence",
        "ServicePrincipalAuthentication",
    ),
    "runs.runs": ("PipelineRun", "RunDetails", "StepRun"),
    "runs.script_run": ("Run", "_OfflineRun"),
    "runs.script_step": ("PythonScriptStep", "ScriptRunConfig"),
    "runs.step": ("StepSequence",),
    "workspace": ("Workspace",),
}
_HOMES = {name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names}

__all__ = [
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
    "VERSION",
    "AmlCompute",
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
    "MsiAuthentication",
    "OutputFileDatasetConfig",
    "ParallelRunConfig",
    "ParallelRunStep",
    "Pipeline",
    "PipelineData",
    "PipelineEndpoint",
    "PipelineParameter",
    "PipelineRun",
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
    "Workspace",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, globals())
