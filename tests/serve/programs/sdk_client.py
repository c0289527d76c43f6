"""Invokes a service through the client of Azure's SDK v2: ``sdk_client.py URL TOKEN DATA``.

Only what the workspace would answer is ours: where the endpoint is, and the token. The request is
the SDK's. Prints the name of the job.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from azure.ai.ml import Input, MLClient
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError

NEVER = 2**40
ACCEPTED = 202
"""The status of our answer. The SDK takes 200 and 201 alone, and raises with the answer."""


class Token:
    """A credential that has one token for everything."""

    def get_token(self, *scopes: str, **more: Any) -> AccessToken:
        """Return it."""
        del scopes, more
        return AccessToken(sys.argv[2], NEVER)


url, _, data = sys.argv[1:]
client = MLClient(Token(), "00000000-0000-0000-0000-000000000000", "group", "workspace")
endpoint = SimpleNamespace(properties=SimpleNamespace(scoring_uri=f"{url}/jobs"))
client.batch_endpoints._batch_operation = SimpleNamespace(get=lambda **_: endpoint)
client.batch_endpoints._validate_deployment_name = lambda *_: None
client.batch_endpoints._resolve_input = lambda *_: None
try:
    name = client.batch_endpoints.invoke(
        endpoint_name="ours",
        deployment_name="second",
        inputs={"it": Input(type="uri_file", path=data)},
    ).name
except HttpResponseError as error:
    if error.status_code != ACCEPTED:
        raise
    name = json.loads(error.response.text())["name"]
print(name)
