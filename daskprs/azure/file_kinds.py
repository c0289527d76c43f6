"""Files that are not what was asked for, but one of Azure's all the same: how each is run."""

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
"""By a key that files of a kind have, in the order in which they are tried."""


def way_to_run(content: Any, file: str) -> str | None:
    """Return what a file is by its keys, and how it is run; None where nobody can tell."""
    keys = (key for key in KINDS if isinstance(content, dict) and key in content)
    key = next(keys, None)
    return None if key is None else KINDS[key].format(file=file)
