"""Credentials of ``azure.identity``, for cells that name them: nothing needs authorization."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class DefaultAzureCredential:
    """A credential without effect: nothing here needs authorization."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments."""

    def get_token(self, *_: Any, **__: Any) -> SimpleNamespace:
        """Return an empty token."""
        return SimpleNamespace(token="", expires_on=0)  # nosec B106


def get_bearer_token_provider(credential: Any, *scopes: str, **_: Any) -> Callable[[], str]:
    """Return a function that returns the token of a credential."""
    return lambda: str(credential.get_token(*scopes).token)


class AuthorizationCodeCredential(DefaultAzureCredential):
    """The same."""


class AzureCliCredential(DefaultAzureCredential):
    """The same."""


class AzureDeveloperCliCredential(DefaultAzureCredential):
    """The same."""


class AzurePipelinesCredential(DefaultAzureCredential):
    """The same."""


class AzurePowerShellCredential(DefaultAzureCredential):
    """The same."""


class CertificateCredential(DefaultAzureCredential):
    """The same."""


class ChainedTokenCredential(DefaultAzureCredential):
    """The same."""


class ClientAssertionCredential(DefaultAzureCredential):
    """The same."""


class ClientSecretCredential(DefaultAzureCredential):
    """The same."""


class DeviceCodeCredential(DefaultAzureCredential):
    """The same."""


class EnvironmentCredential(DefaultAzureCredential):
    """The same."""


class InteractiveBrowserCredential(DefaultAzureCredential):
    """The same."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """The same."""


class OnBehalfOfCredential(DefaultAzureCredential):
    """The same."""


class SharedTokenCacheCredential(DefaultAzureCredential):
    """The same."""


class UsernamePasswordCredential(DefaultAzureCredential):
    """The same."""


class VisualStudioCodeCredential(DefaultAzureCredential):
    """The same."""


class WorkloadIdentityCredential(DefaultAzureCredential):
    """The same."""
