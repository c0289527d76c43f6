"""Where the steps of a pipeline write: who makes what lies in a place, and who shares one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from daskprs.azure.bound import Bound


def makers_of(place: Path, outputs: Mapping[str, Mapping[str, Bound]]) -> list[str]:
    """Return the steps in whose outputs a place lies."""
    return [
        step
        for step, made in outputs.items()
        if any(place.is_relative_to(one.path) for one in made.values())
    ]


def is_shared(
    step: str, inputs: Iterable[Bound], outputs: Mapping[str, Mapping[str, Bound]]
) -> bool:
    """Say whether others write where a step writes, or it reads there."""
    others = [one for name, made in outputs.items() if name != step for one in made.values()]
    others += [one for one in inputs if one.is_path]
    return any(
        one.path.is_relative_to(own.path) or own.path.is_relative_to(one.path)
        for one in others
        for own in outputs[step].values()
    )
