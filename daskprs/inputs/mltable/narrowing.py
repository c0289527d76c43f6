"""Find the columns that a table does not use, which are not read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daskprs.inputs.mltable.steps import Convert, Filter, KeepColumns, TableStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def needed(
    steps: Sequence[TableStep], final: Sequence[str], there: Sequence[str]
) -> tuple[str, ...]:
    """Return which columns of the files have to be read, in their order there.

    Parameters
    ----------
    steps
        The steps that are applied to rows.
    final
        The columns that are left in the end.
    there
        The columns of the files. At least one is always read, to count rows.

    """
    asked = set(final)
    for step in steps:
        if isinstance(step, Filter):
            asked |= step.expression.columns()
    return tuple(name for name in there if name in asked) or tuple(there[:1])


def narrowed(steps: Sequence[TableStep], left_out: set[str]) -> Iterator[TableStep]:
    """Yield the steps for rows without some columns."""
    for step in steps:
        match step:
            case KeepColumns():
                yield KeepColumns(tuple(name for name in step.names if name not in left_out))
            case Convert():
                kept = tuple(one for one in step.conversions if one.column not in left_out)
                yield replace(step, conversions=kept)
            case _:
                yield step
