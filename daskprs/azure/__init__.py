"""What people bring from Azure Machine Learning, run on Dask: its YAML files and its classes.

Nothing here talks to Azure, or needs a package of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskprs.azure.batch_deployment import BatchDeployment
    from daskprs.azure.pipeline import run_pipeline
    from daskprs.azure.pipeline_result import PipelineResult, StepResult

# Imported when they are asked for: forms take pydantic, which is a fifth of a second.
_HOMES = {
    "BatchDeployment": "daskprs.azure.batch_deployment",
    "PipelineResult": "daskprs.azure.pipeline_result",
    "StepResult": "daskprs.azure.pipeline_result",
    "run_pipeline": "daskprs.azure.pipeline",
}

__all__ = [
    "BatchDeployment",
    "PipelineResult",
    "StepResult",
    "run_pipeline",
]


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in _HOMES:
        msg = f"module 'daskprs.azure' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Show the public names to completion, imported or not."""
    return sorted({*globals(), *__all__})
