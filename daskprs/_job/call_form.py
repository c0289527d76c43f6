"""How the processes of a job call `run`: one call after the other, or several at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._agent.protocol.messages import INLINE
from daskprs._core.calls import AT_ONCE, Calls
from daskprs._options.run_options import OF_STAGES
from daskprs.errors import Option, OptionError, ScriptError

if TYPE_CHECKING:
    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._options.run_options import RunOptions


def calls_of(options: RunOptions, script: CheckedScript) -> Calls | None:
    """Return how many calls of `run` a process makes at a time; None: one after the other.

    Raise `OptionError` for a number of calls that the script does not allow, and `ScriptError` for
    an `async def run` where coroutines cannot run.
    """
    count = options.concurrency_per_process
    given = Option("concurrency_per_process", count)
    can_be = script.is_async or script.is_thread_safe
    if count is not None and count > 1 and not can_be:
        msg = (
            f"{given}: run() of {script.name} is a plain function, which may not bear to be called "
            "by several threads at the same time. Make it async def run, or write thread_safe = "
            "True in the script."
        )
        raise OptionError(msg)
    names = [*OF_STAGES, "python", "profiling_module"]
    beside = next((Option(one, options[one]) for one in names if options[one] is not None), None)
    if beside is not None and script.is_async:
        msg = (
            f"{beside}: not with async def run, as {script.name} has it. Make it a plain function."
        )
        raise ScriptError(msg)
    if not can_be or options.start_method == INLINE:
        return None
    if beside is not None and count is not None and count > 1:
        msg = f"{given}: not with {beside}, by which a process makes one call at a time."
        raise OptionError(msg)
    if beside is not None or (count == 1 and not script.is_async):
        return None
    return Calls(count or AT_ONCE, script.is_async)
