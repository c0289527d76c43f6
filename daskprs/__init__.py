"""Run a Python script over a table or a list of files, in parallel, on Dask.

`parallel_run` cuts the input into mini-batches and runs the entry script over them in agent
processes, with timeouts, retries, error budgets, and output that is exactly once. `start` does so
in the background. `plan` shows the mini-batches beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from daskprs.agent.foreign.entry_script import EntryScript, MiniBatchContext
    from daskprs.api import parallel_run, start
    from daskprs.errors import (
        DaskprsError,
        OptionError,
        ParallelRunCanceled,
        ParallelRunFailed,
        UsageError,
    )
    from daskprs.job.detached import attach, cancel
    from daskprs.job.parallel_run import ParallelRun, RunProgress
    from daskprs.job.plan import Plan, plan
    from daskprs.job.result import ParallelRunResult
    from daskprs.lazy.map_batches import map_batches
    from daskprs.options.run_options import RunOptions

__version__ = "0.1.0"

# Imported when they are asked for: `import daskprs` costs milliseconds, pandas most of a second.
_HOMES = {
    "DaskprsError": "daskprs.errors",
    "EntryScript": "daskprs.agent.foreign.entry_script",
    "MiniBatchContext": "daskprs.agent.foreign.entry_script",
    "OptionError": "daskprs.errors",
    "ParallelRun": "daskprs.job.parallel_run",
    "ParallelRunCanceled": "daskprs.errors",
    "ParallelRunFailed": "daskprs.errors",
    "ParallelRunResult": "daskprs.job.result",
    "Plan": "daskprs.job.plan",
    "RunOptions": "daskprs.options.run_options",
    "RunProgress": "daskprs.job.parallel_run",
    "UsageError": "daskprs.errors",
    "attach": "daskprs.job.detached",
    "cancel": "daskprs.job.detached",
    "map_batches": "daskprs.lazy.map_batches",
    "parallel_run": "daskprs.api",
    "plan": "daskprs.job.plan",
    "start": "daskprs.api",
}

__all__ = [
    "DaskprsError",
    "EntryScript",
    "MiniBatchContext",
    "OptionError",
    "ParallelRun",
    "ParallelRunCanceled",
    "ParallelRunFailed",
    "ParallelRunResult",
    "Plan",
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

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, globals())
