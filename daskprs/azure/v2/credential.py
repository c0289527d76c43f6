"""Credentials and errors of the packages beside `azure.ai.ml`, for cells that name them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class DefaultAzureCredential:
    """A credential without effect: nothing here needs authorization."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept any arguments."""

    def get_token(self, *_: Any, **__: Any) -> SimpleNamespace:
        """Return an empty token."""
        return SimpleNamespace(token="", expires_on=0)  # nosec B106


class InteractiveBrowserCredential(DefaultAzureCredential):
    """The same."""


class AzureCliCredential(DefaultAzureCredential):
    """The same."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """The same."""
