"""The main path: `parallel_run`, from the call to the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from daskprs.options.run_options import NoOtherOptions, RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs.job.result import ParallelRunResult

OWN_PARAMETERS = (
    *("data", "script", "client", "job_dir", "output_dir"),
    *("detach", "survive", "unknown"),
)


def parallel_run(
    data: Any,
    script: str | PathLike[str] | Callable[..., Any] | Any,
    *,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    source_directory: str | PathLike[str] | None = None,
    arguments: Sequence[str] = (),
    environment_variables: Mapping[str, str] | None = None,
    side_inputs: Mapping[str, str | PathLike[str]] | None = None,
    logging_level: str = "INFO",
    input_type: Literal["auto", "files", "table"] = "auto",
    mini_batch_size: int | str | None = None,
    partition_keys: Sequence[str] | str | None = None,
    partition_format: str | None = None,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    delimiter: str | None = None,
    header: (
        Literal[
            "all_files_same_headers", "all_files_different_headers", "from_first_file", "no_header"
        ]
        | None
    ) = None,
    encoding: str = "utf-8",
    support_multi_line: bool = True,
    include_path_column: bool = False,
    node_count: int | None = None,
    process_count_per_node: int | None = None,
    gpus_per_process: float = 1,
    start_method: Literal["fork", "spawn"] = "fork",
    agent_memory_limit: int | str | None = None,
    run_max_try: int = 3,
    allowed_failed_count: int = 0,
    allowed_failed_percent: float = 100,
    error_threshold: int = -1,
    max_node_losses: int = 3,
    fail_on_timeout: bool = False,
    run_invocation_timeout: float = 60,
    task_overhead_timeout: float = 600,
    init_timeout: float | None = None,
    shutdown_timeout: float = 30,
    first_task_creation_timeout: float = 600,
    progress_update_timeout: float | None = None,
    no_workers_timeout: float | None = None,
    output_action: Literal["append_row", "summary_only"] = "append_row",
    append_row_file_name: str = "parallel_run_step.txt",
    append_row_dataframe_header: bool = False,
    append_row_dataframe_sep: str = " ",
    keep_rows: bool = False,
    overwrite: bool = False,
    resume: bool | Literal["extend", "failed"] = False,
    accept_changes: Sequence[str] = (),
    progress: bool | None = None,
    detach: bool = False,
    survive: bool = True,
    **unknown: Unpack[NoOtherOptions],
) -> ParallelRunResult:
    """Run an entry script over the mini-batches of a table or a list of files.

    The input is cut into mini-batches, and the script's ``run(mini_batch)`` is called for each of
    them in agent processes, in parallel. Each mini-batch contributes the rows of exactly one
    successful attempt, in input order, to an output that is there whole or not at all.

    Parameters
    ----------
    data
        What to work on. *Tables*: a pandas DataFrame, a pyarrow Table, a dask DataFrame, or paths
        of Parquet, delimited text (CSV, TSV) or JSON lines, plain or compressed (``.gz``,
        ``.zst``). *Files*: any other paths, or a dask Bag of paths. A path may be a file, a
        folder (searched recursively), a glob, or an fsspec URL; several make a list. A folder with
        a file ``MLTable`` is what that says.
    script
        The entry script: a path (``"score.py"``), a dotted module (``"src.score"``), a callable,
        which is then `run`, or an object or class with ``run`` and, if it likes, ``init`` and
        ``shutdown``.
    client
        A ``distributed.Client`` or the address of a scheduler. Default: the current client if
        there is one, else an in-process cluster with a slot for each usable core.
    job_dir
        The job folder: logs, journal, and what a resume needs. Default:
        ``./daskprs-jobs/<script>-<utc>-<id>/``.
    output_dir
        The folder of the output file, or its URL (``"s3://bucket/folder"``). Default: no text is
        written, and what `run` returned is kept with its types for `ParallelRunResult.to_pandas`.
    source_directory
        The folder that the script imports from; a snapshot of it goes to the agents. Default: the
        folder of the script.
    arguments
        What the script finds in ``sys.argv`` after the system's own flags.
    environment_variables
        Set in the agents before their first import. Thread counts (``OMP_NUM_THREADS`` and the
        like) follow the agent's share of the cores unless they are set here.
    side_inputs
        Files and folders that the script reads besides, such as a model, by name. A node that does
        not see one gets a copy. The script finds them by ``EntryScript().side_inputs["name"]``;
        `arguments` and `environment_variables` that are their absolute paths, or paths below, are
        set to where they are.
    logging_level
        Level of the root logger in the agents.
    input_type
        ``"table"``, ``"files"``, or ``"auto"``: a table if all paths have one table suffix, files
        if none has, and an error for a mixture.
    mini_batch_size
        Bytes for tables, as an int or with a unit of 1024 (``"10 MB"``; default 1 MB); a count
        for files (default 10). A partition of a dask collection is one mini-batch unless a size
        is given.
    partition_keys
        Names of columns: one mini-batch for each combination of their values that exists, with
        all its rows in input order. For files, names of `partition_format`. Not together with
        `mini_batch_size`.
    partition_format
        How paths carry values, as in ``"{user}/{season}/{genre}.wav"``. They become columns,
        appended last.
    columns
        The columns to read, in this order. Default: all.
    dtypes
        Types of columns, by name. Default: those of text are fixed by samples before the start,
        other tables have types of their own.
    delimiter
        Between the fields of delimited text. Default: a tab for ``.tsv``, else a comma.
    header
        Which files have a header line: ``"all_files_same_headers"`` (default),
        ``"all_files_different_headers"``, ``"from_first_file"`` or ``"no_header"``.
    encoding
        Of text input.
    support_multi_line
        Whether a quoted field may contain line breaks.
    include_path_column
        Add the path of each row's file as the column ``Path``.
    node_count
        How many nodes to use. Default: all of the cluster.
    process_count_per_node
        Agent processes on each node. Default: the threads that its Dask workers declare;
        in-process: the usable cores, by affinity and cgroup; on a GPU node 1.
    gpus_per_process
        GPUs of each agent process: a whole number, or a part such as 0.5, so that two share one.
        0 hides them. Agents find theirs in ``CUDA_VISIBLE_DEVICES``.
    start_method
        ``"fork"``: agents are forked from a process that has imported pandas and pyarrow once.
        ``"spawn"``: each agent is a fresh interpreter, for libraries that do not stand a fork.
    agent_memory_limit
        Bytes, or with a unit as in ``"2 GB"``: an agent that holds more, its sub-processes
        included, is killed. Default: none.
    run_max_try
        Attempts at one mini-batch.
    allowed_failed_count
        The job fails when more mini-batches than this have failed; -1: never for that.
    allowed_failed_percent
        The same in percent of all mini-batches, judged once each of them has been tried.
    error_threshold
        The job fails when more items than this have failed; -1: never for that.
    max_node_losses
        A mini-batch fails after the loss of this many workers that ran it: it may be the cause.
    fail_on_timeout
        A mini-batch that runs out of time in each of its attempts fails the job, whatever the
        thresholds say: so do batch deployments.
    run_invocation_timeout
        Seconds for one call of `run`, iterating what it returned included; then the agent is
        killed and the attempt has failed.
    task_overhead_timeout
        Seconds for loading one mini-batch.
    init_timeout
        Seconds for importing the script and ``init()``. Default: three times
        `run_invocation_timeout`, and 30.
    shutdown_timeout
        Seconds for ``shutdown()``.
    first_task_creation_timeout
        Seconds within which the input must give its first mini-batch.
    progress_update_timeout
        The job fails after this many seconds without a settled mini-batch. Default: twice the
        timeouts of loading and running, and that of `init`.
    no_workers_timeout
        Seconds to wait for workers. Default: for ever; progress says that it waits.
    output_action
        ``"append_row"``: what `run` returns is output. ``"summary_only"``: it is counted and
        dropped, and the script writes files of its own.
    append_row_file_name
        Name of the output file in `output_dir`.
    append_row_dataframe_header
        Write the header of the frames, once.
    append_row_dataframe_sep
        Between the fields of frames.
    keep_rows
        With an `output_dir`: keep typed rows for `to_pandas` too.
    overwrite
        Replace an existing output file, at the moment of publishing.
    resume
        Go on with the job in `job_dir`: what is committed in its journal is not run again. With
        True, all that is left is run, and what has failed gets fresh tries. ``"extend"``: the input
        has grown, and only what is new by content is run. ``"failed"``: only what has failed in
        the end is run, by a script that may have been mended. The output is written anew, with all
        rows in input order.
    accept_changes
        With `resume`: which of ``"script"``, ``"input"`` and ``"options"`` may have changed. What
        is done is kept on purpose; of a changed input, what is the same by content.
    progress
        Show progress. Default: in a terminal and in notebooks a live display, else a line now and
        then.
    detach
        Hand the driver to the cluster and return at once, with a result that says ``"Running"``:
        `attach` and `cancel`, and the commands ``daskprs status``, ``attach``, ``cancel`` and
        ``result`` take it from there. Needs a cluster, a job folder that its workers see, and a
        call that can be kept: paths as input, a file as script.
    survive
        With `detach`: the death of the worker that carries the driver moves it to another one, and
        a job folder that only one worker sees is refused. False takes that risk.
    **unknown
        Refused, with the nearest known name.

    Returns
    -------
    ParallelRunResult
        Counts, places of the output and the logs, and `to_pandas`.

    Raises
    ------
    UsageError
        An option, the script, the input or the output cannot be used; nothing was started.
    JobFolderError
        The job folder is in use, or its journal was written for something else.
    ParallelRunFailed
        The job ended as Failed; carries the result. Nothing was published, the journal is kept.
    ParallelRunCanceled
        Ctrl-C ended it (a `KeyboardInterrupt`); carries the result.

    """
    given = {name: value for name, value in locals().items() if name not in OWN_PARAMETERS}
    options = RunOptions.from_names(**given, **unknown)
    places: dict[str, Any] = {"client": client, "job_dir": job_dir, "output_dir": output_dir}
    if detach:
        from daskprs.job.detached import submit
        from daskprs.job.request import check_call

        return submit(check_call(data, script, options, **places), survive=survive)
    from daskprs.job.prestart import prestart

    with prestart(options, client):
        from daskprs.job.job import Job
        from daskprs.job.request import check_call

        return Job(check_call(data, script, options, **places)).run()
