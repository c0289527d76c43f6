"""Run YAML files and classes of Azure Machine Learning on Dask.

This package neither connects to Azure nor needs any Azure package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from daskprs.azure._deployments.batch_deployment import BatchDeployment
    from daskprs.azure._pipelines.pipeline import run_pipeline
    from daskprs.azure._pipelines.run.result import PipelineResult, StepResult

# Imported on first use: forms need pydantic, whose import takes a fifth of a second.
_NAMES = {
    "._deployments.batch_deployment": "BatchDeployment",
    "._pipelines.pipeline": "run_pipeline",
    "._pipelines.run.result": "PipelineResult StepResult",
}

__all__ = [
    "BatchDeployment",
    "PipelineResult",
    "StepResult",
    "run_pipeline",
]

__getattr__, __dir__ = lazy_exports(__name__, _NAMES, globals())
