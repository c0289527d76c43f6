"""A served deployment from a YAML file, which runs as ``daskprs invoke`` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure.deployments.batch_deployment import BatchDeployment
from daskprs.serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.azure.assets import Assets
    from daskprs.serve.deployment import InvocationRequest


class DeploymentFile:
    """A batch deployment in a file, which each job reads again.

    Parameters
    ----------
    path
        The path of the file.
    assets
        The known local paths of assets.
    words
        More arguments of ``daskprs invoke`` for every job.

    Raises
    ------
    YamlError
        With every mistake in the file.

    """

    def __init__(self, path: str, assets: Assets | None = None, words: Sequence[str] = ()) -> None:
        self._path = Path(path).absolute()
        self._words = tuple(words)
        deployment = BatchDeployment.load(path, assets=assets)
        self.name = deployment.name
        self.endpoint_name = deployment.endpoint_name
        self.without_effect = tuple(deployment.without_effect)

    def words(self, invocation: InvocationRequest) -> list[str]:
        """Return the command line of one invocation.

        Raises
        ------
        Refusal
            When the invocation does not name exactly one place of data.

        """
        if len(invocation.data) != 1 or invocation.literals:
            told = f"{self.name} is a deployment of a model: it takes one place of data."
            raise Refusal(400, "BadRequest", told, target="properties.InputData")
        (data,) = invocation.data.values()
        changes = [f"{key}={value}" for key, value in invocation.overrides.items()]
        return [
            *("daskprs", "invoke", str(self._path), "--input", data),
            *("--job-dir", str(invocation.job_dir), "--output-path", invocation.output_dir),
            *self._words,
            *(word for change in changes for word in ("--set", change)),
        ]
