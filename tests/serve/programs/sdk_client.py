"""Invokes a service through the client of Azure's SDK v2: ``sdk_client.py URL TOKEN DATA OUTPUT``.

Only what the workspace would answer is ours: where the endpoint is, whether a deployment exists,
and the token. The requests are the SDK's. Prints the name of each job, then those of the list.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from azure.ai.ml import Input, MLClient, Output
from azure.core.credentials import AccessToken

NEVER = 2**40
RESOURCE = (
    "/subscriptions/0/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
)


class Token:
    """A credential that has one token for everything."""

    def get_token(self, *scopes: str, **more: Any) -> AccessToken:
        """Return it."""
        del scopes, more
        return AccessToken(sys.argv[2], NEVER)


url, _, data, output = sys.argv[1:]
client = MLClient(Token(), "00000000-0000-0000-0000-000000000000", "group", "workspace")
endpoints = client.batch_endpoints
endpoint = SimpleNamespace(properties=SimpleNamespace(scoring_uri=f"{url}/jobs"))
endpoints._batch_operation = SimpleNamespace(get=lambda *_, **__: endpoint)
endpoints._validate_deployment_name = lambda *_: None
file = Input(type="uri_file", path=data)
changes = [
    {"mini_batch_size": 3},
    {"compute.instance_count": "2"},
    {"retry_settings.max_retries": 2},
    {"retry_settings.timeout": 100},
    {"output_file_name": "a.csv"},
    {"error_threshold": 3},
]
calls: dict[str, dict[str, Any]] = {
    "one input": {"input": file},
    "named inputs": {"inputs": {"it": file}},
    "folder": {"inputs": {"it": Input(type="uri_folder", path=f"{data.rpartition('/')[0]}/")}},
    "asset": {"inputs": {"it": Input(type="uri_file", path="azureml:known:1")}},
    "asset of a resource": {
        "inputs": {"it": Input(type="uri_file", path=f"{RESOURCE}/data/known/versions/1")}
    },
    "literals": {
        "inputs": {
            "it": file,
            "text": Input(type="string", default="append"),
            "number": Input(type="number", default=1.5),
            "whole": Input(type="integer", default=3),
            "switch": Input(type="boolean", default=True),
        }
    },
    "output": {"inputs": {"it": file}, "outputs": {"score": Output(type="uri_file", path=output)}},
    "output folder": {
        "inputs": {"it": file},
        "outputs": {"score": Output(type="uri_folder", path=f"{output}-folder/", mode="rw_mount")},
    },
    "changes": {"inputs": {"it": file}, "params_override": changes},
    "names": {"inputs": {"it": file}, "job_name": "mine", "experiment_name": "autumn"},
    "deployment": {"deployment_name": "second", "inputs": {"it": file}},
}
chosen = {what: endpoints.invoke(endpoint_name="ours", **call).name for what, call in calls.items()}
print(json.dumps(chosen))
