"""The main path: `parallel_run`, from the call to the result, and `start`, which does not wait."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Unpack

from daskprs._options.arguments import MoreOptions, default, named
from daskprs._options.run_options import RunOptions
from daskprs._options.site_defaults import options_of_call
from daskprs._system.interrupts import held_back
from daskprs.errors import FramesCut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs._inputs.source.read_options import BatchFormat
    from daskprs._job.parallel_run import ParallelRun
    from daskprs._job.result import ParallelRunResult

P = ParamSpec("P")


def parallel_run(
    data: Any,
    script: str | PathLike[str] | Callable[..., Any] | Any,
    *,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    detach: bool = False,
    # Script
    source_directory: str | PathLike[str] | None = None,
    arguments: Sequence[str] = (),
    environment_variables: Mapping[str, str] | None = default(None),
    side_inputs: Mapping[str, str | PathLike[str]] | None = None,
    batch_format: BatchFormat = "pandas",
    # Input
    mini_batch_size: float | str | None = None,
    partition_keys: Sequence[str | int] | str | None = None,
    columns: Sequence[str | int] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    # Processes
    process_count_per_node: int | None = default(None),
    gpus_per_process: float | None = default(None),
    start_method: Literal["fork", "spawn", "inline"] = default("fork"),
    # Failures
    run_max_try: int = default(3),
    allowed_failed_count: int = default(0),
    # Times
    run_invocation_timeout: float | str = default(60),
    # Output
    output: str | PathLike[str] | None = None,
    include_columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | Any | None = None,
    overwrite: bool = False,
    # The job
    resume: bool | Literal["extend", "failed"] = False,
    progress: bool | None = default(None),
    show_output: bool = default(False),
    **more: Unpack[MoreOptions],
) -> ParallelRunResult:
    """Run an entry script over the mini-batches of a table or a list of files.

    Agent processes call the script's ``run(mini_batch)``, in parallel. The output has the rows of
    exactly one successful attempt at each mini-batch, in input order. It appears as a whole, or not
    at all. ``help(daskprs.RunOptions)`` says more about each option. A ``default(3)`` is 3, unless
    Dask's config has another default under ``daskprs:``.

    Parameters
    ----------
    data
        *Tables*: a frame of pandas, polars or pyarrow, another Arrow stream, a dask DataFrame, or
        paths of Parquet, CSV, TSV or JSON lines. *Files*: other paths, or a dask Bag of paths.
        *Objects*: another Bag, a dask Array, a list of Delayed objects or futures. Paths may be
        folders, globs and fsspec URLs. Give several as a list.
    script
        The entry script: a path (``"score.py"``), a dotted module (``"src.score"``), a callable
        that is used as ``run``, or an object or class with ``run``, and maybe ``init`` and
        ``shutdown``.
    client
        A ``distributed.Client``, the address of a scheduler, or a scheduler file. Default: the
        current client if there is one, else an in-process cluster with a slot for each usable core.
    job_dir
        The folder of the logs, the journal, and the records that a resume needs. Default:
        ``./daskprs-jobs/<script>-<utc>-<id>/``, unless Dask's config names another ``job-root``.
    output_dir
        The folder, or its URL, of lines of text or a data set that other options name. Default:
        none; for a data set, ``output`` in the job folder.
    detach
        Hand the driver to the cluster, and return a result with the status ``"Running"`` at once:
        see `attach` and `cancel`. The job needs paths as input, and a file as script.
    output
        The file to write, or its URL: ``"scores.parquet"``, ``.csv``, ``.jsonl`` or ``.arrow``;
        ``"scores"`` is a folder of Parquet files. Default: none. The result has the rows.
    **more
        The options below after "Also", by name.

    Other Parameters
    ----------------
    Script
        source_directory: The folder that the script imports from.
        arguments: Arguments for the script.
        environment_variables: Environment variables of the agents, set before their first import.
        side_inputs: Other files and folders that the script reads, such as a model, by name.
        batch_format: The type of the mini-batches of a table.
        Also: python, secrets, logging_level.
    Input
        mini_batch_size: For tables, ``"100 rows"``, or a size such as ``"10 MB"``.
        partition_keys: Columns that divide the rows: a mini-batch for each combination of values.
        columns: The columns to read, in this order.
        dtypes: Types of columns, by name.
        Also: input_type, mini_batch_cost, partition_format, meta, delimiter, header, encoding,
        support_multi_line, csv_options, include_path_column.
    Processes
        process_count_per_node: The number of agent processes on each node.
        gpus_per_process: The number of GPUs of each agent process: a whole number, or a fraction.
        start_method: How the agents start.
        Also: node_count, preload, agent_memory_limit, agent_max_mini_batches, preprocess,
        postprocess, preprocess_processes, concurrency_per_process, rate_limit, store_requests.
    Failures
        run_max_try: The largest number of charged attempts at one mini-batch.
        allowed_failed_count: The number of mini-batches that may fail.
        Also: retry_delay, on_error, independent_rows, allowed_failed_percent, error_threshold,
        max_node_losses, fail_on_timeout.
    Times
        run_invocation_timeout: Seconds for one call of `run`.
        Also: task_overhead_timeout, init_timeout, init_idle_timeout, shutdown_timeout,
        first_task_creation_timeout, progress_update_timeout, no_workers_timeout, deadline.
    Output
        include_columns: Columns of the input that the output has before the columns from `run`.
        schema: The columns and types of the output rows.
        overwrite: Replace an existing output file.
        Also: output_action, output_format, append_row_file_name, append_row_dataframe_header,
        append_row_dataframe_sep, output_file_size, output_partition_by, output_single_file,
        keep_rows.
    The job
        resume: Continue the job in `job_dir`.
        progress: Show progress.
        show_output: While the job runs, show what `run` prints, each line with its mini-batch.
        Also: accept_changes, trust, retain, usage_limits, resource_monitor_interval,
        profiling_module, metrics_file, shared, report.

    Returns
    -------
    ParallelRunResult
        Counts, places of the output and the logs, and `to_pandas`.

    Raises
    ------
    UsageError, JobFolderError
        The call or its job folder cannot be used; nothing was started.
    ParallelRunFailed, ParallelRunCanceled, ParallelRunInterrupted
        The job failed, or Ctrl-C ended it. The error has the result, and the journal is kept.

    """
    with FramesCut():
        survive = more.pop("survive", True)
        given = named(
            source_directory=source_directory,
            arguments=arguments,
            environment_variables=environment_variables,
            side_inputs=side_inputs,
            batch_format=batch_format,
            mini_batch_size=mini_batch_size,
            partition_keys=partition_keys,
            columns=columns,
            dtypes=dtypes,
            process_count_per_node=process_count_per_node,
            gpus_per_process=gpus_per_process,
            start_method=start_method,
            run_max_try=run_max_try,
            allowed_failed_count=allowed_failed_count,
            run_invocation_timeout=run_invocation_timeout,
            output=output,
            include_columns=include_columns,
            schema=schema,
            overwrite=overwrite,
            resume=resume,
            progress=progress,
            show_output=show_output,
            **more,
        )
        places: dict[str, Any] = {"client": client, "job_dir": job_dir, "output_dir": output_dir}
        if detach:
            return _submitted(data, script, given, places, survive=survive)
        from daskprs._job.prestart import prestart

        early = RunOptions(**given)
        with prestart(early, client, partial(options_of_call, given)) as final:
            with held_back():
                from daskprs._job.job import Job
                from daskprs._job.request import check_call

            return Job(check_call(data, script, final, **places)).run()


def _submitted(
    data: Any, script: Any, given: dict[str, Any], places: dict[str, Any], *, survive: bool
) -> ParallelRunResult:
    """Hand a job to the cluster, and return its result as of now."""
    from daskprs._job.detached import submit
    from daskprs._job.request import check_call

    return submit(check_call(data, script, options_of_call(given), **places), survive=survive)


def _like(
    call: Callable[P, Any],
) -> Callable[[Callable[..., ParallelRun]], Callable[P, ParallelRun]]:
    """Give a function the parameters of another one, for help and type checkers."""

    def with_parameters(function: Callable[..., ParallelRun]) -> Callable[P, ParallelRun]:
        signature = inspect.signature(call).replace(return_annotation="ParallelRun")
        function.__signature__ = signature  # type: ignore[attr-defined]
        own, other = inspect.getdoc(function), inspect.getdoc(call)
        if own and other:  # `python -OO` has none
            sections = other[other.index("Parameters\n") : other.index("Returns\n")]
            function.__doc__ = own.replace("Returns\n", f"{sections}Returns\n", 1)
        return function

    return with_parameters


@_like(parallel_run)
def start(
    data: Any,
    script: Any,
    *,
    client: Any = None,
    job_dir: Any = None,
    output_dir: Any = None,
    detach: bool = False,
    survive: bool = True,
    **options: Any,
) -> ParallelRun:
    """Start a job, and return its handle at once.

    The parameters are those of `parallel_run`. The call is checked before `start` returns; the job
    then runs in a thread of this process, or with ``detach=True`` on the cluster. A client made by
    ``asynchronous=True`` may be used in its own event loop: ``await daskprs.start(...)``. A Dask
    task that calls `start` leaves its thread to other tasks.

    Returns
    -------
    ParallelRun
        Status, progress and result; `ParallelRun.cancel` and `ParallelRun.iter_batches`.

    Raises
    ------
    UsageError
        An option, the script, the input or the output cannot be used; nothing was started.
    JobFolderError
        The job folder is in use, or holds a job already.

    """
    given = named(**options)
    places: dict[str, Any] = {"client": client, "job_dir": job_dir, "output_dir": output_dir}
    from daskprs._job.prestart import prestart

    if detach:
        from daskprs._job.parallel_run import ParallelRun

        result = _submitted(data, script, given, places, survive=survive)
        return ParallelRun.of(result.job_dir)
    with ExitStack() as ahead:
        early = RunOptions(**given)
        final = ahead.enter_context(prestart(early, client, partial(options_of_call, given)))
        with held_back():
            from daskprs._job.inline_call import refuse_inline
            from daskprs._job.parallel_run import ParallelRun
            from daskprs._job.request import check_call

        refuse_inline(final, "and start() returns before the job ends. Call parallel_run")
        call = check_call(data, script, final, **places, blocks=False)
        return ParallelRun.begun(call, ahead.pop_all())
