"""The caller's part of a pipeline run: values, outputs, and places of assets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daskprs.job.frontend import Python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.assets import Assets
    from daskprs.job.frontend import Surface


@dataclass(frozen=True)
class CallerInputs:
    """The caller's inputs besides the file."""

    assets: Assets
    overrides: tuple[str, ...] = ()
    """``--set``"""
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    options: Mapping[str, Any] | None = None
    """Options for every parallel step, such as ``overwrite``."""
    client: str | None = None
    resume: bool = False
    """Whether to resume an earlier run in the folder."""
    surface: Surface = field(default_factory=Python)
    """The surface that the caller uses: messages name options as written there."""
    with_inputs: bool = True
    """Whether every input must have a value now."""
