"""The deployments behind an endpoint, and which of them a request goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from daskprs.errors import OptionError
from daskprs.serve.http_errors import NO_DEPLOYMENT, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HEADER = "azureml-model-deployment"


class InvocationRequest(NamedTuple):
    """What a deployment is to do once."""

    data: Mapping[str, str]
    """Files and folders, by the names of the inputs."""
    literals: Mapping[str, str]
    """Inputs that are values."""
    job_dir: Path
    output_dir: str
    overrides: Mapping[str, Any]
    """What differs from the deployment's file, by the keys of that file, with dots."""


class ServedDeployment(Protocol):
    """What can be invoked."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def words(self, invocation: InvocationRequest) -> list[str]:
        """Return what follows ``python -m`` for one invocation: a module and its arguments.

        The process keeps its job in `InvocationRequest.job_dir`, and its exit codes are those of
        ``daskprs run``.

        Raises
        ------
        Refusal
            When it cannot be invoked so.

        """
        ...


class Deployments:
    """Several deployments, of which one may be the default.

    Parameters
    ----------
    known
        Each of a name of its own.
    default
        The name of the one that is meant where none is named; where there is only one, it is.

    Raises
    ------
    OptionError
        When names are taken twice, or the default is none of them.

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
        """Return what they are called."""
        return list(self._known)

    def chosen(self, name: str | None) -> ServedDeployment:
        """Return the one that a request goes to.

        Raises
        ------
        Refusal
            When there is no such deployment, or none is named and none is the default.

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
