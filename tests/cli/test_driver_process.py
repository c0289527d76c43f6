"""Tests of the process of a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._cli.driver_process import is_recorded
from daskprs._folders.job_folder import JobFolder
from daskprs.errors import ParallelRunCanceled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("recorded", "told"), [("", False), ("Failed: x", False), ("Canceled", True)]
)
def test_only_an_end_that_the_folder_has_is_left_to_attach(
    recorded: str,
    told: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
) -> None:
    """One that came before the job began is not there, but that of the run before may be."""
    folder = JobFolder(tmp_path)
    if recorded:
        folder.job_result.parent.mkdir(parents=True)
        folder.job_result.write_text(f"{recorded}\n")
    assert is_recorded(folder, ParallelRunCanceled("Canceled", None)) == told
