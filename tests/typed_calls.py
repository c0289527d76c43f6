"""Calls of the public names as a user types them: `make style` checks them by mypy.

Nothing runs this file. `make lint-package` checks it by pyright, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import pandas as pd

import daskprs
from daskprs.azure import BatchDeployment, PipelineResult, run_pipeline


def run(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return the mini-batch."""
    return mini_batch


def calls_of_jobs() -> None:
    """From the plan to the result."""
    assert_type(daskprs.plan("a.csv", mini_batch_size="1 MB"), daskprs.Plan)
    assert_type(daskprs.parallel_run("a.csv", run), daskprs.ParallelRunResult)
    options = daskprs.RunOptions(run_max_try=1, output_format="parquet")
    assert_type(options.replace(run_max_try=2), daskprs.RunOptions)
    assert_type(
        daskprs.parallel_run("a.csv", run, run_max_try=1, python="/py"), daskprs.ParallelRunResult
    )
    daskprs.parallel_run("a.csv", run, detach=True, survive=False, error_threshold=3)
    result = daskprs.parallel_run(
        pd.DataFrame(), Path("score.py"), client="tcp://h:1", schema={"a": "int64"}, **options
    )
    assert_type(result.status, str)
    assert_type(result.to_pandas(), pd.DataFrame)
    assert_type(result.failed, pd.DataFrame)
    assert_type(result.output_file, Path | str | None)
    assert_type(result.iter_batches(), Iterator[pd.DataFrame])


def calls_of_jobs_in_the_background() -> None:
    """A handle, and what it gives."""
    job = daskprs.start("a.csv", "score.py", job_dir="job", init_timeout=9)
    assert_type(job, daskprs.ParallelRun)
    assert_type(job.result(), daskprs.ParallelRunResult)
    assert_type(job.progress, daskprs.RunProgress)
    assert_type(daskprs.attach("job"), daskprs.ParallelRunResult)
    try:
        job.result(timeout_s=1)
    except daskprs.ParallelRunFailed as error:
        if error.result is not None:
            assert_type(error.result.mini_batches.failed, int)


def calls_in_scripts() -> None:
    """What a script finds."""
    script = daskprs.EntryScript()
    script.logger.info("here")
    model: Any = script.side_inputs["model"]
    print(model)


def calls_of_azure() -> None:
    """Files of Azure Machine Learning."""
    assert_type(run_pipeline("pipeline.yml"), PipelineResult)
    deployment = BatchDeployment.load("deployment.yml")
    assert_type(deployment.invoke("data"), daskprs.ParallelRunResult)
