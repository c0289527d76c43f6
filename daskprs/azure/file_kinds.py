"""Kinds of Azure files, and how to run a file that was passed to the wrong command."""

from __future__ import annotations

from typing import Any

STEP = "this is a step by itself: name it in the jobs of a pipeline, as component: ./{file}"
PIPELINE = "this is a pipeline: daskprs run {file}"
DEPLOYMENT = "this is a batch deployment: daskprs invoke {file} --input DATA"
ENDPOINT = "this is an endpoint: its deployments are run, by daskprs invoke or daskprs serve"
KINDS = {
    "jobs": PIPELINE,
    "code_configuration": DEPLOYMENT,
    "model": DEPLOYMENT,
    "endpoint_name": DEPLOYMENT,
    "task": STEP,
    "command": STEP,
    "auth_mode": ENDPOINT,
}
"""Kinds of files by a key that marks them, in the order in which the keys are tried."""


def way_to_run(content: Any, file: str) -> str | None:
    """Return a file's kind and how to run it; None when its keys match no kind."""
    keys = (key for key in KINDS if isinstance(content, dict) and key in content)
    key = next(keys, None)
    return None if key is None else KINDS[key].format(file=file)
