"""Logs of a step where those look for them who know Azure."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.job_folder import JobFolder


def link_driver_log(step: JobFolder) -> None:
    """Have the driver's log under its name of Azure, too, from the first line on."""
    link = step.azure_driver_log
    link.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # of the run that is gone on with
        link.symlink_to(os.path.relpath(step.master_log, link.parent))
