"""The module of sweeps, which are refused: each name says what to write instead."""

from __future__ import annotations

from typing import Any

from daskprs.azure.v2.absent import refuse_absent


def __getattr__(name: str) -> Any:
    """Refuse every name of the SDK's module."""
    refuse_absent(name)
    raise AttributeError(name)
