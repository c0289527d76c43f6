"""The call of the function of a script that says what rows cost, in the place of `run`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from daskprs._agent.foreign.entry_script import NO_TOOLS, CallTools
from daskprs._agent.foreign.run_call import RunCall
from daskprs._inputs.costs import first_wrong, numbers_of
from daskprs._inputs.source.batch_format import rows_in

COST = "mini_batch_cost"
"""Names the function among those that the caller gave, and the column of its answers."""


class CostCall(RunCall):
    """Calls the function, and makes rows of what it answers; a bad answer is a `ValueError`."""

    def __call__(
        self,
        data: Any,
        context: tuple[Any, ...],
        tools: CallTools = NO_TOOLS,
    ) -> pa.Table:
        """Return a table with the cost of each row."""
        answer, rows = super().__call__(data, context, tools), rows_in(data)
        costs = numbers_of(answer)
        if costs is None or len(costs) != rows:
            length = len(answer) if hasattr(answer, "__len__") else None
            kind = type(answer).__name__
            got = f"a {kind}" if length in (None, rows) else f"a {kind} of length {length:,}"
            msg = (
                f"{self._name}() returned {got} for {rows:,} rows. Return a list, an array or "
                "a Series with a number for each row, 0 or more."
            )
            raise ValueError(msg)
        wrong = first_wrong(costs)
        if wrong is not None:
            first_row, label = context[2], context[3][0]
            row = f"row {wrong:,} of {label}" if first_row is None else f"row {first_row + wrong:,}"
            msg = (
                f"{self._name}(): {row}: the cost is {costs[wrong].item()!r}. A cost is a "
                "number, 0 or more."
            )
            raise ValueError(msg)
        return pa.table({COST: costs})
