"""The service keeps to its own description, whatever it is sent."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.services import TOKEN, LightService, body

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = 20
KEYS = st.sampled_from(
    ["properties", "InputData", "Uri", "JobInputType", "retrySettings", "timeout", "a", "", "\x00"]
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("UriFile") | KEYS
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner))


@given(VALUES)
def test_no_body_breaks_the_service(service: LightService, value: Any) -> None:
    """It is accepted, or refused with a reason."""
    for content in (value, {"properties": value}, body("/none", whatever=value)):
        text = json.dumps(content)  # with NaN and lone surrogates, where there are some
        headers = {"Content-Type": "application/json"}
        answer = service.client.post("/jobs", content=text, headers=headers)
        assert answer.status_code in {201, 400, 403, 404, 409, 413, 429}, answer.text


@settings(max_examples=30)
@given(st.lists(st.text(max_size=20) | st.sampled_from(["..", "/", "%2e", "jobs"]), max_size=4))
def test_no_path_breaks_the_service(service: LightService, parts: list[str]) -> None:
    """It leads to what there is, or nowhere."""
    path = "/".join(quote(part.encode(errors="replace"), safe="") for part in parts)
    for prefix in ("/", "/jobs/", "/jobs/none/outputs/"):
        request = service.client.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=(prefix + path).encode())
        assert service.client.send(request).status_code in {200, 400, 404, 405}


@pytest.mark.skipif(
    shutil.which("schemathesis") is None,
    reason="schemathesis is not installed: it brings thirty packages and a plugin for pytest",
)
def test_the_service_is_what_its_description_says(service: LightService, tmp_path: Path) -> None:
    """As schemathesis finds: statuses, bodies, methods, refusals of what is no valid request."""
    name = service.invoke(service.data("one", "write a.txt a")).json()["name"]
    service.ended(name)
    words = ["schemathesis", "run", f"{service.url}/openapi.json", "--checks", "all"]
    words += ["--header", f"Authorization: Bearer {TOKEN}", "-n", str(EXAMPLES)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
