"""The deployments behind an endpoint, and the choice of one for each request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.deployments.batch_deployment import BatchDeployment
from daskprs.errors import OptionError
from daskprs.serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daskprs.azure.assets import Assets

HEADER = "azureml-model-deployment"
NO_DEPLOYMENT = "No valid deployments to route to"
"""The words that users of Azure's batch endpoints look for in a message."""


class ServedDeployment:
    """A batch deployment in a YAML file, which each job reads again.

    `words` are more arguments of ``daskprs invoke`` for every job. A `YamlError` has every mistake
    in the file.
    """

    def __init__(self, path: str, assets: Assets | None = None, words: Sequence[str] = ()) -> None:
        self._path = Path(path).absolute()
        deployment = BatchDeployment.load(path, assets=assets)
        self.environment = deployment.environment
        own = (f"{self.environment.given}={self.environment.python}",)
        self._words = (*words, *(("--environment", *own) if self.environment.python else ()))
        self.name = deployment.name
        self.endpoint_name = deployment.endpoint_name
        self.without_effect = tuple(deployment.without_effect)

    def words(
        self,
        data: Mapping[str, str],
        literals: Mapping[str, str],
        job_dir: Path,
        output_dir: str,
        overrides: Mapping[str, Any],
    ) -> list[str]:
        """Return the words after ``python -m`` for one invocation: a module and its arguments.

        The inputs are `data`, which are paths, and `literals`, each by name. `overrides` changes
        the deployment's file, by its dotted keys.
        """
        if len(data) != 1 or literals:
            message = f"{self.name} is a deployment of a model: it takes one place of data."
            raise Refusal(400, "BadRequest", message, target="properties.InputData")
        (place,) = data.values()
        return [
            *("daskprs", "invoke", str(self._path), "--input", place),
            *("--job-dir", str(job_dir), "--output-path", output_dir),
            *self._words,
            *(word for key, value in overrides.items() for word in ("--set", f"{key}={value}")),
        ]


class Deployments:
    """Several deployments of different names; a single one is the default."""

    def __init__(self, known: Sequence[ServedDeployment], default: str | None = None) -> None:
        self._known = {one.name: one for one in known}
        if len(self._known) < len(known):
            names = ", ".join(one.name for one in known)
            msg = f"serve: deployments need different names, got {names}."
            raise OptionError(msg)
        if default is not None and default not in self._known:
            msg = f"--default {default}: unknown deployment; there are {self._listed()}."
            raise OptionError(msg)
        self.default = next(iter(self._known)) if len(self._known) == 1 else default

    @property
    def names(self) -> list[str]:
        """Return the names of the deployments."""
        return list(self._known)

    def chosen(self, name: str | None) -> ServedDeployment:
        """Return the deployment that a request names, or the default."""
        wanted = name or self.default
        found = None if wanted is None else self._known.get(wanted)
        if found is not None:
            return found
        why = f"there is none called {wanted!r}" if wanted else "this endpoint has no default one"
        message = f"{NO_DEPLOYMENT}: {why}. By the header {HEADER} choose one of {self._listed()}."
        raise Refusal(404, "NoValidDeployment", message, target=HEADER)

    def _listed(self) -> str:
        return ", ".join(self._known)
