"""The picture of a job that its result shows in a notebook."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from daskprs._page.figures import RecordedFigures
from daskprs._page.pictures import processes

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

FROM_S = 10.0
MOST_BYTES = 32 << 20
"""Size of the table of attempts up to which a cell of a notebook waits for the picture."""


def main_picture(folder: JobFolder, elapsed_s: float) -> str:
    """Return what the processes of a job did over time; empty for a short or a very large job."""
    try:
        if elapsed_s < FROM_S or folder.attempts.stat().st_size > MOST_BYTES:
            return ""
        return processes(RecordedFigures.of(folder, is_running=False))
    except Exception:
        logging.getLogger("daskprs.driver").debug("no picture of %s", folder, exc_info=True)
        return ""
