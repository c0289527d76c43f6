"""A service whose deployments are light jobs: what is tested is the service, not a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from daskprs.serve.allowed_paths import Roots
from daskprs.serve.deployment import Deployments, InvocationRequest
from daskprs.serve.job_queue import QueueLimits
from daskprs.serve.server import Service
from daskprs.serve.tokens import Tokens


class Light(NamedTuple):
    """A deployment that runs `light_job`."""

    name: str

    def words(self, invocation: InvocationRequest) -> list[str]:
        """Return the module and its arguments."""
        data = next(iter(invocation.data.values()), "/dev/null")
        return ["light_job", data, invocation.output_dir]


home, names, default, running, queued = sys.argv[1:]
service = Service(
    name="light",
    deployments=Deployments([Light(name) for name in names.split(",")], default or None),
    tokens=Tokens.given(str(Path(home, "tokens.yml")), "https://ml.azure.com"),
    inputs=Roots({"data": str(Path(home, "data"))}),
    outputs=Roots({"results": str(Path(home, "results"))}),
    folder=Path(home, "jobs"),
    limits=QueueLimits(int(running), int(queued)),
    most_bytes=1 << 16,
    port=0,
)
service.run(lambda line: print(line, flush=True))
