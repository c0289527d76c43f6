"""Run a Python script over a table or a list of files, in parallel, on Dask.

`parallel_run` cuts the input into mini-batches and runs the entry script over them in agent
processes, with timeouts, retries, error budgets, and output that is exactly once. `start` does so
in the background. `plan` shows the mini-batches beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from daskprs._agent.foreign.entry_script import EntryScript, MiniBatchContext
    from daskprs._api import parallel_run, start
    from daskprs._core.rate_limit import RateLimit
    from daskprs._job.detached import attach, cancel
    from daskprs._job.parallel_run import ParallelRun, RunProgress
    from daskprs._job.plan import Plan, plan
    from daskprs._job.result import ParallelRunResult
    from daskprs._lazy.map_batches import map_batches
    from daskprs._options.run_options import RunOptions
    from daskprs.errors import (
        DaskprsError,
        OptionError,
        ParallelRunCanceled,
        ParallelRunFailed,
        ParallelRunInterrupted,
        UsageError,
    )

__version__ = "0.1.0"

# Imported when they are asked for: `import daskprs` costs milliseconds, pandas most of a second.
_NAMES = {
    "._agent.foreign.entry_script": "EntryScript MiniBatchContext",
    "._api": "parallel_run start",
    "._core.rate_limit": "RateLimit",
    "._job.detached": "attach cancel",
    "._job.parallel_run": "ParallelRun RunProgress",
    "._job.plan": "Plan plan",
    "._job.result": "ParallelRunResult",
    "._lazy.map_batches": "map_batches",
    "._options.run_options": "RunOptions",
    ".errors": """DaskprsError OptionError ParallelRunCanceled ParallelRunFailed
        ParallelRunInterrupted UsageError""",
}

__all__ = [
    "DaskprsError",
    "EntryScript",
    "MiniBatchContext",
    "OptionError",
    "ParallelRun",
    "ParallelRunCanceled",
    "ParallelRunFailed",
    "ParallelRunInterrupted",
    "ParallelRunResult",
    "Plan",
    "RateLimit",
    "RunOptions",
    "RunProgress",
    "UsageError",
    "attach",
    "cancel",
    "map_batches",
    "parallel_run",
    "plan",
    "start",
]

__getattr__, __dir__ = lazy_exports(__name__, _NAMES, globals())
