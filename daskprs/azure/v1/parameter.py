"""`PipelineParameter`: a value that a submission may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class PipelineParameter:
    """A named value with a default.

    It may stand for an option of `ParallelRunConfig`, for an argument of a step, and for the
    dataset of a `DatasetConsumptionConfig`.

    Parameters
    ----------
    name : str
        The name by which ``pipeline_parameters`` of a submission change the value.
    default_value
        The value when a submission does not change it.

    """

    name: str
    default_value: Any = None


def settled(value: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a value, with the pipeline parameters of a submission filled in."""
    if isinstance(value, PipelineParameter):
        return parameters.get(value.name, value.default_value)
    return value


def known_parameters(
    parameters: Mapping[str, Any] | None, used: Iterable[PipelineParameter]
) -> Mapping[str, Any]:
    """Return given parameters; refuse those that nothing uses, with the nearest known name."""
    known = sorted({one.name for one in used})
    for name in parameters or {}:
        if name not in known:
            msg = (
                f"pipeline_parameters: no step has a parameter {name!r}; {nearest_of(name, known)}"
            )
            raise OptionError(msg)
    return parameters or {}
