"""Rules for the parameters of steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.config.config import ParallelRunConfig
from daskprs.azure.v1.data.inputs import INPUTS, is_table, source_of
from daskprs.azure.v1.data.outputs import Output
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SHORTEST, LONGEST = 3, 32
NAME_RULE = (
    f"{SHORTEST} to {LONGEST} lower case letters, digits and dashes, the first a letter and the "
    "last no dash"
)


def refuse_misfits(given: Mapping[str, Any]) -> None:
    """Refuse parameters of a `ParallelRunStep`, by name, that cannot be used.

    Raises
    ------
    OptionError
        With a line for each.

    """
    mistakes = [*_mistakes(given), *_mistakes_of_data("inputs", given["inputs"])]
    mistakes += _mistakes_of_data("side_inputs", given["side_inputs"])
    if mistakes:
        raise OptionError("\n".join(mistakes))


def _mistakes(given: Mapping[str, Any]) -> Iterator[str]:
    name, config, output = (given[one] for one in ("name", "parallel_run_config", "output"))
    fits = isinstance(name, str) and SHORTEST <= len(name) <= LONGEST
    if not fits or not NAME.fullmatch(name):
        yield f"name={name!r}: must be {NAME_RULE}."
    if not isinstance(config, ParallelRunConfig):
        yield f"parallel_run_config={config!r}: must be a ParallelRunConfig."
    if output is not None and not isinstance(output, Output):
        yield f"output={output!r}: must be an OutputFileDatasetConfig or a PipelineData."
    if not isinstance(given["arguments"], list | tuple):
        yield f"arguments={given['arguments']!r}: must be a list."
    if not isinstance(given["allow_reuse"], bool):
        yield f"allow_reuse={given['allow_reuse']!r}: must be True or False."


def _mistakes_of_data(name: str, given: Any) -> Iterator[str]:
    if not isinstance(given, list | tuple) or (name == "inputs" and not given):
        yield f"{name}={given!r}: must be a list of datasets."
        return
    strange = [one for one in given if source_of(one, {}) is None]
    for one in strange:
        yield f"{name}: {one!r} is none of what a step works on: {INPUTS}."
    kinds = {is_table(one, {}) for one in given if one not in strange}
    if name == "inputs" and len(kinds) > 1:
        yield "inputs: all must be datasets of files, or all must be tables."
    if name == "side_inputs" and True in kinds:
        yield "side_inputs: all must be datasets of files."
