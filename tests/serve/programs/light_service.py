"""A service whose deployments are light jobs: what is tested is the service, not a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.serve.allowed_paths import Roots
from daskprs.serve.deployment import Deployments, ServedDeployment
from daskprs.serve.server import Service
from daskprs.serve.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping


class Light(ServedDeployment):
    """A deployment that runs `light_job`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def words(
        self,
        data: Mapping[str, str],
        literals: Mapping[str, str],  # noqa: ARG002 - those of every deployment
        job_dir: Path,  # noqa: ARG002 - the same
        output_dir: str,
        overrides: Mapping[str, Any],  # noqa: ARG002 - the same
    ) -> list[str]:
        """Return the module and its arguments."""
        return ["light_job", next(iter(data.values()), "/dev/null"), output_dir]


home, names, default, running, queued = sys.argv[1:]
service = Service(
    name="light",
    deployments=Deployments([Light(name) for name in names.split(",")], default or None),
    tokens=Tokens.given(str(Path(home, "tokens.yml")), "https://ml.azure.com"),
    inputs=Roots({"data": str(Path(home, "data"))}),
    outputs=Roots({"results": str(Path(home, "results"))}),
    folder=Path(home, "jobs"),
    max_jobs=int(running),
    max_queued=int(queued),
    most_bytes=1 << 16,
    port=0,
)
service.run(lambda line: print(line, flush=True))
