"""The deployments behind an endpoint, and the choice of one for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from daskprs.errors import OptionError
from daskprs.serve.http_errors import NO_DEPLOYMENT, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEADER = "azureml-model-deployment"


class InvocationRequest(NamedTuple):
    """One request to a deployment."""

    data: Mapping[str, str]
    """Files and folders by input name."""
    literals: Mapping[str, str]
    """Values by input name, for inputs that are not data."""
    job_dir: Path
    output_dir: str
    overrides: Mapping[str, Any]
    """Changes to the deployment's file, by its dotted keys."""


class ServedDeployment(Protocol):
    """A deployment that can be invoked."""

    @property
    def name(self) -> str:
        """The name of the deployment."""
        ...

    def words(self, invocation: InvocationRequest) -> list[str]:
        """Return the words after ``python -m`` for one invocation: a module and its arguments.

        The process keeps its job in `InvocationRequest.job_dir`, and its exit codes are those of
        ``daskprs run``.

        Raises
        ------
        Refusal
            When the deployment cannot be invoked with this request.

        """
        ...


class Deployments:
    """Several deployments, of which one may be the default.

    Parameters
    ----------
    known
        The deployments, each with a unique name.
    default
        The name of the default deployment. A single deployment is the default.

    Raises
    ------
    OptionError
        When two deployments share a name, or none has the name of the default.

    """

    def __init__(self, known: Sequence[ServedDeployment], default: str | None = None) -> None:
        self._known = {one.name: one for one in known}
        if len(self._known) < len(known):
            names = ", ".join(one.name for one in known)
            msg = f"serve: deployments need different names to be told apart: {names}."
            raise OptionError(msg)
        if default is not None and default not in self._known:
            msg = f"--default {default}: there is no such deployment; there are {self._listed()}."
            raise OptionError(msg)
        self.default = next(iter(self._known)) if len(self._known) == 1 else default

    @property
    def names(self) -> list[str]:
        """Return the names of the deployments."""
        return list(self._known)

    def chosen(self, name: str | None) -> ServedDeployment:
        """Return the deployment that a request goes to.

        Raises
        ------
        Refusal
            When no deployment has that name, or none is named and there is no default.

        """
        wanted = name or self.default
        found = None if wanted is None else self._known.get(wanted)
        if found is not None:
            return found
        why = f"there is none called {wanted!r}" if wanted else "this endpoint has no default one"
        told = f"{NO_DEPLOYMENT}: {why}. By the header {HEADER} choose one of {self._listed()}."
        raise Refusal(404, "NoValidDeployment", told, target=HEADER)

    def _listed(self) -> str:
        return ", ".join(self._known)
