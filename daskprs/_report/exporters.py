"""Exporters: listeners that pass a job on to systems of others, each only where it is asked for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from daskprs._report.metrics_file import MetricsFile

if TYPE_CHECKING:
    from os import PathLike

    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.listeners import Listener

SIGNALS = ("traces", "metrics")
"""The signals that a job sends to OpenTelemetry."""


def exporters_of(
    folder: JobFolder, mlflow_run: str | None, metrics_file: str | PathLike[str] | None
) -> tuple[list[Listener], list[str]]:
    """Return the exporters that the environment and the caller ask for.

    The caller names MLflow's run that was active there, and the file for a node exporter, if any.
    For each exporter that cannot be had, there is a sentence that says why.
    """
    found: list[Listener] = []
    missing: list[str] = []
    if metrics_file is not None:
        found.append(MetricsFile(folder, metrics_file))
    signals = [signal for signal in SIGNALS if _goes_to_otlp(signal)]
    if signals:
        try:
            from daskprs._report.telemetry import Telemetry

            found.append(Telemetry(folder, signals))
        except Exception as error:  # noqa: BLE001 - a job needs no receiver
            told = "the environment names a receiver of OpenTelemetry, which gets nothing"
            missing.append(f"{told}: {error}. Install daskprs[otel].")
    if mlflow_run is not None:
        try:
            from daskprs._report.mlflow_run import MlflowRun

            found.append(MlflowRun(folder, mlflow_run))
        except Exception as error:  # noqa: BLE001 - a job needs no receiver
            missing.append(f"MLflow's active run gets nothing of this job: {error}")
    return found, missing


def _goes_to_otlp(signal: str) -> bool:
    """Return whether the variables of OpenTelemetry name a receiver, and do not turn it off."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    name = signal.upper()
    endpoint = variables.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT") or variables.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    is_on = variables.get("OTEL_SDK_DISABLED", "").lower() != "true"
    return is_on and bool(endpoint) and variables.get(f"OTEL_{name}_EXPORTER", "otlp") == "otlp"


def active_mlflow_run() -> str | None:
    """Return the id of MLflow's active run in this thread, if the caller has imported MLflow."""
    mlflow: Any = sys.modules.get("mlflow")
    active = getattr(mlflow, "active_run", None)
    run = None if active is None else active()
    return None if run is None else str(run.info.run_id)
