"""What the caller of a pipeline gives: values, outputs, and where references point."""

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
    """What a caller gives besides the file."""

    assets: Assets
    overrides: tuple[str, ...] = ()
    """``--set``"""
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    options: Mapping[str, Any] | None = None
    """Options of every parallel step: ``overwrite``, say."""
    client: str | None = None
    resume: bool = False
    """What is there already is from an earlier run."""
    surface: Surface = field(default_factory=Python)
    """Where it is asked for: options are named as they are written there."""
    with_inputs: bool = True
    """Whether each input has a value by now."""
