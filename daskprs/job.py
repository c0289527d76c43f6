"""One job in the driver: checked, prepared, run, published, told."""

from __future__ import annotations

import os
import pickle
import secrets
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent import warm
from daskprs.agent.checked_script import check_script
from daskprs.agent.environment import agent_environment, arguments, usable_cores
from daskprs.agent.messages import JobSpec, OutputSpec
from daskprs.core.events import JobEnded, JobStarted, OutputPublished
from daskprs.core.ledger import Ledger
from daskprs.errors import (
    DaskprsError,
    OptionError,
    ParallelRunCanceled,
    ParallelRunFailed,
)
from daskprs.inputs.open import open_source
from daskprs.job_folder import JobFolder
from daskprs.output.store import ResultStore
from daskprs.report.listeners import Listeners, listeners_for
from daskprs.result import ParallelRunResult

if TYPE_CHECKING:
    from os import PathLike

    from distributed import Client

    from daskprs.cluster.dispatch import Ending
    from daskprs.core.outcomes import Failure
    from daskprs.options import RunOptions


class Job:
    """A call of `parallel_run`.

    Whatever can be known cheaply is checked when it is made; nothing has been started then.
    """

    def __init__(  # noqa: PLR0913 - the parameters of parallel_run
        self,
        data: Any,
        script: Any,
        options: RunOptions,
        *,
        client: Client | str | None,
        job_dir: str | PathLike[str] | None,
        output_dir: str | PathLike[str] | None,
    ) -> None:
        self._begun_s = time.monotonic()
        self._options = options
        self._client = client
        self._script = check_script(script, options.source_directory)
        self._source = open_source(data, options.reading())
        if options.resume and job_dir is None:
            msg = "resume: name the job to continue with job_dir=."
            raise OptionError(msg)
        self._id = new_job_id()
        self._folder = JobFolder(Path(job_dir or default_job_dir(self._script.name, self._id)))
        self._output_dir = Path(output_dir or self._folder.output).absolute()
        rows = options.output_action == "append_row"
        self._output = OutputSpec(
            text=rows and output_dir is not None,
            typed=rows and (output_dir is None or options.keep_rows),
            header=options.append_row_dataframe_header,
            separator=options.append_row_dataframe_sep,
        )
        self._processes = options.process_count_per_node or usable_cores()

    def run(self) -> ParallelRunResult:
        """Do the work, and return or raise the result."""
        with ExitStack() as stack:
            stack.callback(warm.close)
            job = self._start(stack)
            ending = self._work(job)
        return self._end(ending)
