"""The base of the operations of an `MLClient`: the client, its registry, and finished polling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from daskprs.azure.v1.absent import Known

if TYPE_CHECKING:
    from daskprs.azure.v2.client import MLClient

T = TypeVar("T")


class Poller(Generic[T]):
    """The result of a ``begin_…`` method, whose work is done already."""

    def __init__(self, value: T) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> T:
        """Return the value."""
        del timeout
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Return True."""
        return True

    def status(self) -> str:
        """Return that it succeeded."""
        return "Succeeded"


class KnownInV2(Known):
    """The base of what refuses attributes of SDK v2 that are not built, with a next step."""

    __sdk__ = "v2"


class Operations(KnownInV2):
    """One kind of things in a workspace."""

    def __init__(self, client: MLClient) -> None:
        self._client = client
        self._registry = client.registry
