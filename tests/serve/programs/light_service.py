"""A service whose deployments are light jobs: what is tested is the service, not a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._serve.allowed_paths import Roots
from daskprs._serve.deployment import Deployments, ServedCall, ServedDeployment
from daskprs._serve.endpoint import Endpoint
from daskprs._serve.job_queue import JobQueue
from daskprs._serve.job_user import JobUser
from daskprs._serve.listening_socket import CallerLimits
from daskprs._serve.retention import Retention
from daskprs._serve.server import Service
from daskprs._serve.tokens import Tokens
from daskprs._serve.web_input import WebHosts
from daskprs.azure._assets import Assets

if TYPE_CHECKING:
    from collections.abc import Mapping


class Light(ServedDeployment):
    """A deployment that runs `light_job`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.output_file_name = "predictions.csv"

    def refuse_unfit(self, call: ServedCall) -> None:
        """Take whatever there is, so that more is tried."""

    def words(
        self,
        data: Mapping[str, str],
        job_dir: Path,  # noqa: ARG002 - those of every deployment
        output_dir: Path,
        overrides: Mapping[str, Any],  # noqa: ARG002 - the same
    ) -> list[str]:
        """Return the module and its arguments."""
        return ["light_job", next(iter(data.values()), "/dev/null"), str(output_dir)]


MANY = {"connections": 2000, "connections_per_address": 2000, "head_s": 100}
"""What the tests of load need, whose clients are one slow process."""
home, names, default, running, queued, more = sys.argv[1:]
given = json.loads(more)
users = [JobUser.named(one) for one in given.pop("run_as", [])]
queue = JobQueue(
    Path(home, "jobs"),
    int(running),
    int(queued),
    users=users,
    retention=Retention(**given.pop("retention", {})),
)
endpoint = Endpoint(
    "light",
    Deployments([Light(name) for name in names.split(",")], default or None),
    Roots({"data": str(Path(home, "data"))}, assets=Assets({"known:1": f"{home}/known"})),
    Roots({"results": str(Path(home, "results"))}),
    queue,
    WebHosts(tuple(given.pop("input_hosts", [])), 1 << 20),
    given.pop("public_url", None),
)
service = Service(
    endpoint,
    queue,
    Path(home, "jobs"),
    tokens=Tokens.given(str(Path(home, "tokens.yml")), "https://ml.azure.com"),
    most_bytes=1 << 16,
    port=0,
    limits=CallerLimits(**MANY | given.pop("limits", {})),
    drain_s=given.pop("drain_s", 20),
    **given,
)
service.run(lambda line: print(line, flush=True))
