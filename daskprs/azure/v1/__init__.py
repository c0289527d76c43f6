"""SDK v1 of Azure Machine Learning, as far as its parallel run steps need it.

Notebooks run with their imports changed: whatever they import from ``azureml.core``,
``azureml.pipeline.core``, ``azureml.pipeline.steps`` and ``azureml.data`` is here, by its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs import __version__
from daskprs.lazy_exports import late_names

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
    "column_types": ("DataType", "PromoteHeadersBehavior"),
    "compute": ("AmlCompute", "ComputeTarget", "ComputeTargetException"),
    "config": ("ParallelRunConfig",),
    "consumption": ("DatasetConsumptionConfig",),
    "data_reference": ("DataReference",),
    "dataset": ("FileDataset", "TabularDataset"),
    "dataset_factory": ("Dataset", "FileDatasetFactory", "TabularDatasetFactory"),
    "datastore": ("DataPath", "Datastore"),
    "environment": (
        "CondaDependencies",
        "DEFAULT_CPU_IMAGE",
        "DEFAULT_GPU_IMAGE",
        "DockerConfiguration",
        "Environment",
        "RunConfiguration",
    ),
    "experiment": ("Experiment",),
    "model": ("Model",),
    "outputs": ("OutputFileDatasetConfig", "PipelineData"),
    "parallel_step": ("ParallelRunStep",),
    "parameter": ("PipelineParameter",),
    "pipeline": ("Pipeline",),
    "published": (
        "InteractiveLoginAuthentication",
        "MsiAuthentication",
        "PipelineEndpoint",
        "PublishedPipeline",
        "Schedule",
        "ScheduleRecurrence",
        "ServicePrincipalAuthentication",
    ),
    "runs": ("PipelineRun", "RunDetails", "StepRun"),
    "script_run": ("Run", "_OfflineRun"),
    "script_step": ("PythonScriptStep", "ScriptRunConfig"),
    "step": ("StepSequence",),
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

__getattr__, __dir__ = late_names(__name__, _HOMES, globals())
