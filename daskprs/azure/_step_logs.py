"""Logs of a step under their Azure names: its own, and in the logs of its parent."""

from __future__ import annotations

import csv
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs.azure._pipeline_folder import PipelineFolder

DRIVER_LOG = "azureml-logs/70_driver_log.txt"
"""The log of a step's driver in its folder, at the path that Azure uses."""
METRICS = ("Total Tasks", "Scheduled Tasks", "Completed Tasks", "Failed Tasks", "Elapsed Time")
"""Columns of the last line of a step's progress table that become metrics."""


def link_driver_log(step: JobFolder, log: Path | None = None) -> None:
    """Link the driver's log under its Azure name, from the first line on."""
    link = step.path / DRIVER_LOG
    link.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # left by the run that is resumed
        link.symlink_to(os.path.relpath(log or step.master_log, link.parent))


def tell_parent(
    step: JobFolder, name: str, parent: PipelineFolder, flags: Mapping[str, Any]
) -> None:
    """Copy a step's logs and metrics to its pipeline as its system flags ask."""
    if flags.get("copy_logs_to_parent") and step.logs.is_dir():
        shutil.copytree(step.logs, parent.logs(name), dirs_exist_ok=True)
    if flags.get("push_metrics_to_parent"):
        _push(_metrics_of(step), parent.metrics, name, str(flags.get("metrics_name_prefix", "")))


def _push(metrics: Mapping[str, str], table: Path, name: str, prefix: str) -> None:
    table.parent.mkdir(parents=True, exist_ok=True)
    is_new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        if is_new:
            rows.writerow(["Step", "Metric", "Value"])
        rows.writerows([name, f"{prefix}{metric}", value] for metric, value in metrics.items())


def _metrics_of(step: JobFolder) -> dict[str, str]:
    """Return the final counts of a step; empty for a step that did not begin."""
    try:
        with step.progress_table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return {}
    return {name: rows[-1][name] for name in METRICS} if rows else {}
