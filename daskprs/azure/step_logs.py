"""Logs of a step where those look for them who know Azure: its own, and in those of its parent."""

from __future__ import annotations

import csv
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs.folders.job_folder import JobFolder
    from daskprs.folders.pipeline_folder import PipelineFolder

METRICS = ("Total Tasks", "Scheduled Tasks", "Completed Tasks", "Failed Tasks", "Elapsed Time")
"""Of the last line of a step's table of progress."""


def link_driver_log(step: JobFolder, log: Path | None = None) -> None:
    """Have the driver's log under its name of Azure, too, from the first line on."""
    link = step.azure_driver_log
    link.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # of the run that is gone on with
        link.symlink_to(os.path.relpath(log or step.master_log, link.parent))


def tell_parent(
    step: JobFolder, name: str, parent: PipelineFolder, flags: Mapping[str, Any]
) -> None:
    """Give the pipeline what its step was told to give it, whatever has become of the step.

    Parameters
    ----------
    step, name
        The folder of the step, and its name.
    parent
        The folder of the pipeline's run.
    flags
        System flags of the step: ``copy_logs_to_parent``, ``push_metrics_to_parent`` and
        ``metrics_name_prefix``.

    """
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
    """Return the counts of a step as they were in the end; none of one that did not begin."""
    try:
        with step.progress_table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return {}
    return {name: rows[-1][name] for name in METRICS} if rows else {}
