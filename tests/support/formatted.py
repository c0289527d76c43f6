"""One result of `run` as rows, for tests that need no more of a mini-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._output.rows.format_result import RowWriter

if TYPE_CHECKING:
    from daskprs._output.rows.format_result import FormattedRows
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import AgentSpool


def format_result(
    result: Any, spec: OutputSpec, spool: AgentSpool | None = None, mini_batch: int = 0
) -> FormattedRows:
    """Return what `run` returned for a mini-batch as an agent writes it."""
    with RowWriter(spec, spool, mini_batch) as writer:
        writer.take(result)
        return writer.finish()
