"""The job that asks a function of the script what rows cost, before the plan of a job is known.

It is a job like any other: its agents import the script and call the function in the place of
`run`, with the timeouts, kills and retries of the job that needs the costs. It lives in a folder of
that job, and is removed once the plan is kept. A resume goes on with it.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskprs._agent.child.cost_call import COST
from daskprs._agent.protocol.messages import INLINE
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._job.control import JobControl
from daskprs._options.run_options import (
    OF_STAGES,
    PROCESSES,
    SCRIPT,
    TABLE,
    TIMES,
    RunOptions,
)
from daskprs._output.spec import OutputSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._core.events import Event
    from daskprs._inputs.costs import Costs, CostSource
    from daskprs._inputs.source.source import TableSource
    from daskprs._job.request import CheckedCall

OF_RUN = {"preprocess_processes", "concurrency_per_process", "profiling_module", *OF_STAGES}
"""Options that say how `run` works."""
OF_FAILURES = ("run_max_try", "retry_delay", "max_node_losses")


def costing_call(call: CheckedCall, source: CostSource, blocks: TableSource) -> CheckedCall:
    """Return the call of that job: it asks the function for the costs of the rows of each block."""
    folder = JobFolder(call.folder.costs, call.folder.key, is_trusted=call.folder.is_trusted)
    resumes = has_begun(folder)
    given = call.options.changed()
    groups = (SCRIPT, PROCESSES, TIMES)
    kept = {name: one for name, one in given.items() if TABLE[name].group in groups}
    kept |= {name: given[name] for name in OF_FAILURES if name in given}
    kept = {name: one for name, one in kept.items() if name not in OF_RUN}
    kept |= {"progress": False, "report": "never", "shared": call.options.shared}
    kept["trust"] = call.options.trust and resumes
    if call.options.start_method != INLINE:
        kept |= {"gpus_per_process": 0, "resource_monitor_interval": 0}
    what = f"the costs of the rows of {call.folder}, which the job itself asks for"
    return replace(
        call,
        begun_s=time.monotonic(),
        options=RunOptions(**kept, resume=resumes),
        script=replace(call.script, cost=source.cost),
        source=blocks,
        job_id=secrets.token_hex(4),
        folder=folder,
        output_dir=folder.output,
        output=OutputSpec(text=False, typed=True),
        target=None,
        kept={**call.kept, "objects": [what]},
        remote=None,
        included=None,
        listed="",
        may_be_empty=True,
        warning="",
        calls=None,
        has_labels=False,
    )


class CostingControl(JobControl):
    """Shows how far the costs are."""

    def __init__(self, source: CostSource) -> None:
        super().__init__()
        self._source = source

    def tell(self, event: Event) -> None:
        """Let the source say it."""
        super().tell(event)
        if self.standing is not None:
            items = self.standing.items
            self._source.how_far = (
                f"{self._source.cost}() has the costs of {items.succeeded:,} rows"
            )


def costs_in(folder: JobFolder, blocks: TableSource) -> Iterator[Costs]:
    """Yield the costs of the rows of each block, as the job in a folder has found them."""
    from daskprs._output.kept_rows import KeptRows  # it imports pandas, which takes time

    answers: Iterator[tuple[int, Any]] = KeptRows.of(folder).tables()
    ahead = next(answers, None)
    for block in blocks.mini_batches():
        costs = [np.empty(0)]
        while ahead is not None and ahead[0] == block.index:
            costs.append(ahead[1].column(COST).to_numpy())
            ahead = next(answers, None)
        yield np.concatenate(costs)
