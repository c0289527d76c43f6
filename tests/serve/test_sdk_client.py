"""The service takes what the client of Azure's SDK sends."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.skipif(not HAS_SDK, reason="azure-ai-ml is not installed: it brings fifty packages")
def test_the_client_of_the_sdk_invokes_a_deployment(service: LightService) -> None:
    """Deployment, token and input are where the service looks for them, and the job ends."""
    data = service.data("one", "say done")
    program = [sys.executable, "-W", "ignore", str(PROGRAMS / "sdk_client.py")]
    words = [*program, service.url, TOKEN, data]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = done.stdout.splitlines()[-1]
    assert service.ended(name) == "Completed"
    assert service.job(name)["properties"]["deployment"] == "second"
