"""The service takes what the client of Azure's SDK sends."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.services import PROGRAMS, TOKEN

if TYPE_CHECKING:
    from tests.support.services import LightService

HAS_SDK = importlib.util.find_spec("azure") is not None and (
    importlib.util.find_spec("azure.ai") is not None
)


@pytest.mark.long
@pytest.mark.skipif(not HAS_SDK, reason="azure-ai-ml is not installed: it brings fifty packages")
def test_the_client_of_the_sdk_invokes_deployments(service: LightService) -> None:
    """Eleven kinds of invocation are accepted as they are sent, and each job ends."""
    service.home.joinpath("data", "in").mkdir()
    service.data("in/one", "say done")
    service.home.joinpath("known").write_text("say known")
    program = [sys.executable, "-W", "ignore", str(PROGRAMS / "sdk_client.py")]
    stores = "azureml://datastores/data/paths/in/one", "azureml://datastores/results/paths/o.csv"
    done = subprocess.run(
        [*program, service.url, TOKEN, *stores], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout.splitlines()[-1])
    assert len(names) == 11
    assert {service.ended(name) for name in names.values()} == {"Completed"}
    jobs = {what: service.job(name)["properties"] for what, name in names.items()}
    assert jobs["deployment"]["deployment"] == "second"
    assert jobs["changes"]["overrides"] == {
        "settings.mini_batch_size": 3,
        "settings.error_threshold": 3,
        "settings.output_file_name": "a.csv",
        "settings.retry_settings.max_retries": 2,
        "settings.retry_settings.timeout": 100,
        "resources.instance_count": 2,
    }
    assert jobs["literals"]["InputData"]["switch"] == {"JobInputType": "Literal", "Value": "True"}
    assert names["names"] == "mine"
    assert jobs["names"]["experimentName"] == "autumn"
    for what in ("asset", "asset of a resource"):
        made = service.client.get(f"/jobs/{names[what]}/outputs/done.txt").text
        assert made == str(service.home / "known")
    assert service.home.joinpath("results", "o.csv-folder", "done.txt").is_file()
