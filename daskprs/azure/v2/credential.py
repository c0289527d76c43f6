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


AuthorizationCodeCredential = AzureCliCredential = DefaultAzureCredential
AzureDeveloperCliCredential = AzurePipelinesCredential = DefaultAzureCredential
AzurePowerShellCredential = CertificateCredential = DefaultAzureCredential
ChainedTokenCredential = ClientAssertionCredential = DefaultAzureCredential
ClientSecretCredential = DeviceCodeCredential = EnvironmentCredential = DefaultAzureCredential
InteractiveBrowserCredential = ManagedIdentityCredential = DefaultAzureCredential
OnBehalfOfCredential = SharedTokenCacheCredential = DefaultAzureCredential
UsernamePasswordCredential = VisualStudioCodeCredential = DefaultAzureCredential
WorkloadIdentityCredential = DefaultAzureCredential
