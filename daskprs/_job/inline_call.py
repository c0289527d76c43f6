"""A call whose script works in the caller's process: what it cannot do, and what it ignores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.messages import INLINE
from daskprs._options.client_rules import current_client
from daskprs._options.run_options import OF_STAGES, PROCESSES, TABLE, TIMES
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from distributed import Client

    from daskprs._agent.child.debugging import Raised
    from daskprs._core.outcomes import Failure
    from daskprs._options.run_options import RunOptions

OF_THE_DRIVER = ("start_method", "first_task_creation_timeout", "deadline")
MOST_KEPT = 5
"""Most exceptions that are kept: their frames hold mini-batches."""
OF_PROCESSES = [
    name
    for name, row in TABLE.items()
    if name in ("max_node_losses", "resource_monitor_interval")
    or (row.group in (PROCESSES, TIMES) and name not in (*OF_THE_DRIVER, *OF_STAGES, "rate_limit"))
]
"""Options of agents that are processes of their own, and can be killed."""


def refuse_inline(options: RunOptions, why: str) -> None:
    """Refuse the start method where the script cannot work in the caller's process and thread.

    Raise `OptionError` when it is the start method of the call.
    """
    if options.start_method == INLINE:
        # The value may be that of Dask's config: the call then has nothing to leave out.
        msg = (
            f"{Option('start_method', INLINE)}: the script works in this process and thread, {why}"
            f", or use {Option('start_method', 'fork')}."
        )
        raise OptionError(msg)


def refuse_work_elsewhere(data: Any, options: RunOptions) -> None:
    """Refuse, for a script in this process, another interpreter, and a Dask collection as input."""
    if options.python is not None:
        python = Option("python", str(options.python))
        refuse_inline(options, f"not in the interpreter {python}. Leave out the interpreter")
    if is_collection(data):
        what = "without Dask, and the input is a Dask collection. Give what its compute() returns"
        refuse_inline(options, what)


def inline_warning(options: RunOptions, client: Client | str | None) -> str:
    """Return the warning of a script in this process, with the options that it ignores, or ''."""
    if options.start_method != INLINE:
        return ""
    changed = options.changed()
    ignored = [f"{Option(name)}" for name in OF_PROCESSES if name in changed]
    if client is not None or current_client() is not None:
        ignored.append(f"{Option('client')}")
    has_none = f" Without effect: {', '.join(ignored)}." if ignored else ""
    return (
        f"{Option('start_method', INLINE)}: the script works in this process and thread. No "
        f"timeout ends it, and a crash of the script ends the program.{has_none}"
    )


class ErrorsHere:
    """The exceptions of a script in this process: the cause of the job's error is one of them.

    It keeps the first one of each class, with its frames, and passes each on.
    """

    def __init__(self, raised: Raised | None = None) -> None:
        self._raised = raised
        self._firsts: dict[str, BaseException] = {}

    def take(self, error: BaseException) -> None:
        """Take an exception while its frames are there."""
        if len(self._firsts) < MOST_KEPT:
            self._firsts.setdefault(type(error).__qualname__, error)
        if self._raised is not None:
            self._raised(error)

    def cause(self, failure: Failure | None) -> BaseException | None:
        """Return the exception that the job reports; None if it was raised in another process."""
        found = self._firsts.get("" if failure is None else failure.kind)
        self._firsts.clear()
        return found


def is_collection(data: Any) -> bool:
    """Return whether an input is a Dask collection, or a list of Delayed objects or futures."""
    return any(map(_is_of_dask, data if isinstance(data, (list, tuple)) else [data]))


def _is_of_dask(value: Any) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return not packages.isdisjoint({"dask", "distributed"})
