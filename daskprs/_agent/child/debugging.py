"""What a debugger needs that is not in an agent: a terminal, and the exception itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daskprs._agent.foreign.raised import RaisedElsewhere
from daskprs._agent.protocol.messages import INLINE

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import JobSpec

QUIT = "BdbQuit"
"""The class of the error of a debugger whose user has left it, or that has no terminal."""
Raised = Callable[[BaseException], None]
"""Is called with an exception of the script, in the process in which it was raised."""


def forget(error: BaseException) -> None:
    """Do nothing with an exception of the script: it leaves the process as text."""
    del error


def has_quit(error: BaseException) -> bool:
    """Say whether a debugger was left, or found no terminal, under any interpreter."""
    kind = error.kind if isinstance(error, RaisedElsewhere) else type(error).__qualname__
    return kind == QUIT


def hint_at_terminal(error: BaseException, job: JobSpec, mini_batch: int | None) -> str:
    """Return where a ``breakpoint()`` stops that has ended without a terminal; else ''."""
    if not has_quit(error) or job.start_method == INLINE:
        return ""
    which = "" if mini_batch is None else f" --mini-batch {mini_batch}"
    before, after = job.debug_by
    way = f"{before}{which} {after}" if before else 'parallel_run(…, start_method="inline")'
    return f"A debugger such as breakpoint() has no terminal in an agent. To stop there: {way}"
