"""SDK v1 of Azure Machine Learning, as far as its parallel run steps need it.

Notebooks run with their imports changed: whatever they import from ``azureml.core``,
``azureml.pipeline.core``, ``azureml.pipeline.steps`` and ``azureml.data`` is here, by its own name.
"""

from __future__ import annotations

from daskprs.azure.v1.column_types import DataType, PromoteHeadersBehavior
from daskprs.azure.v1.compute import AmlCompute, ComputeTarget, ComputeTargetException
from daskprs.azure.v1.config import ParallelRunConfig
from daskprs.azure.v1.consumption import DatasetConsumptionConfig
from daskprs.azure.v1.data_reference import DataReference
from daskprs.azure.v1.dataset import FileDataset, TabularDataset
from daskprs.azure.v1.dataset_factory import Dataset
from daskprs.azure.v1.datastore import DataPath, Datastore
from daskprs.azure.v1.environment import (
    DEFAULT_CPU_IMAGE,
    DEFAULT_GPU_IMAGE,
    CondaDependencies,
    Environment,
    RunConfiguration,
)
from daskprs.azure.v1.experiment import Experiment
from daskprs.azure.v1.model import Model
from daskprs.azure.v1.outputs import OutputFileDatasetConfig, PipelineData
from daskprs.azure.v1.parallel_step import ParallelRunStep
from daskprs.azure.v1.parameter import PipelineParameter
from daskprs.azure.v1.pipeline import Pipeline
from daskprs.azure.v1.runs import PipelineRun, RunDetails, StepRun
from daskprs.azure.v1.script_step import PythonScriptStep, ScriptRunConfig
from daskprs.azure.v1.workspace import Workspace

__all__ = [
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
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
    "Environment",
    "Experiment",
    "FileDataset",
    "Model",
    "OutputFileDatasetConfig",
    "ParallelRunConfig",
    "ParallelRunStep",
    "Pipeline",
    "PipelineData",
    "PipelineParameter",
    "PipelineRun",
    "PromoteHeadersBehavior",
    "PythonScriptStep",
    "RunConfiguration",
    "RunDetails",
    "ScriptRunConfig",
    "StepRun",
    "TabularDataset",
    "Workspace",
]
