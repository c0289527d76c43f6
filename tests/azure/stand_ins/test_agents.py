"""Scripts find Azure's packages in their agents, under this Python and under a bare one."""

from __future__ import annotations

import json
import venv
from typing import TYPE_CHECKING

import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import json, os
from azureml_user.parallel_run import EntryScript
from entry_script import EntryScript as Other
from azureml.core import Model, Run
from azure.storage.blob import BlobClient


def run(paths):
    Run.get_context().log("secret", os.environ["SECRET"])
    blob = BlobClient("https://acc.blob.core.windows.net", "pictures", "a/b")
    blob.upload_blob(b"1" if blob.exists() else b"0", overwrite=True)
    found = {
        "one": EntryScript() is Other(),
        "model": Model.get_model_path("weights"),
        "digits": Model.get_model_path("digits"),
        "run": Run.get_context().id,
        "blob": blob.download_blob().content_as_text(),
    }
    return [json.dumps(found)]
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_script_of_azures_finds_what_it_imports(tmp_path: Path, *, elsewhere: bool) -> None:
    """The process, models and side inputs, the run of its step with secrets masked, and blobs."""
    if elsewhere:
        venv.create(tmp_path / "bare", symlinks=True)
    (tmp_path / "source").mkdir()
    (tmp_path / "source/script.py").write_text(SCRIPT)
    (tmp_path / "weights").write_text("1")
    (tmp_path / "step").mkdir()
    stores = {"pictures": str(tmp_path / "pictures")}
    place = {"folder": str(tmp_path / "step"), "root": None, "datastores": stores}
    result = daskprs.parallel_run(
        [tmp_path / "weights"],
        tmp_path / "source/script.py",
        python=tmp_path / "bare" if elsewhere else None,
        side_inputs={"weights": tmp_path / "weights"},
        environment_variables={
            "SECRET": "do-not-show-this",
            "DASKPRS_RUN": json.dumps(place),
            "DASKPRS_ASSETS": json.dumps({"digits": "/models/digits"}),
        },
        secrets="SECRET",
        input_type="files",
        process_count_per_node=1,
        run_max_try=1,
        job_dir=tmp_path / "job",
        progress=False,
    )
    (row,) = result.to_pandas()["result"]
    assert json.loads(row) == {
        "one": True,
        "model": str(tmp_path / "weights"),
        "digits": "/models/digits",
        "run": "step",
        "blob": "0",
    }
    metrics = tmp_path / "step/logs/user/metrics.jsonl"
    assert metrics.read_text() == '{"name": "secret", "value": "***"}\n'
