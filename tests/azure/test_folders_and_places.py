"""Folders of pipelines of other versions, and environment variables that are places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._options.run_options import RunOptions
from daskprs.azure._pipeline_folder import RECORD, PipelineFolder, read_record
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pipeline_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    """Its record has the statuses of steps, and no version."""
    (tmp_path / RECORD).write_text('{"pipeline": "p", "steps": {"a": {"status": "Completed"}}}')
    with pytest.raises(JobFolderError, match=r"its form is 1, .* or use another job_dir"):
        read_record(PipelineFolder(tmp_path))


def test_a_place_of_azure_stands_for_itself() -> None:
    """It is no secret, and a resume compares it as it is."""
    kept = RunOptions(environment_variables={"AZUREML_MODEL_DIR": "/m"}).of_results()
    assert kept["environment_variables"] == {"AZUREML_MODEL_DIR": "/m"}
