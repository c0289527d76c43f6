"""The main path: `parallel_run`, from the call to the result, and `start`, which does not wait."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from daskprs.errors import FramesCut
from daskprs.options.run_options import TABLE, NoOtherOptions, RunOptions
from daskprs.options.site_defaults import SITE, options_of_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from distributed import Client

    from daskprs.inputs.source.read_options import BatchFormat, Header, InputType
    from daskprs.job.parallel_run import ParallelRun
    from daskprs.job.result import ParallelRunResult
    from daskprs.output.spec import OutputFormat

NOT_GIVEN: Any = object()
"""The value of an option that a call does not name."""
P = ParamSpec("P")
R = TypeVar("R")


def knows_what_is_given(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls another one with `NOT_GIVEN` for options that are not named.

    A signature shows the defaults of the table. By these values alone, a function could not tell
    an option that is set to the default from one that is left out.
    """

    @wraps(call)
    def with_marks(*args: P.args, **given: P.kwargs) -> R:
        with FramesCut():
            return call(*args, **{**dict.fromkeys(SITE, NOT_GIVEN), **given})

    return with_marks


@knows_what_is_given
def parallel_run(
    data: Any,
    script: str | PathLike[str] | Callable[..., Any] | Any,
    *,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    source_directory: str | PathLike[str] | None = None,
    arguments: Sequence[str] = (),
    python: str | PathLike[str] | None = None,
    environment_variables: Mapping[str, str] | None = None,
    secrets: Sequence[str] | None = None,
    side_inputs: Mapping[str, str | PathLike[str]] | None = None,
    batch_format: BatchFormat = "pandas",
    logging_level: str = "INFO",
    input_type: InputType = "auto",
    mini_batch_size: int | str | None = None,
    partition_keys: Sequence[str | int] | str | None = None,
    partition_format: str | None = None,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | Any | None = None,
    delimiter: str | None = None,
    header: Header | None = None,
    encoding: str = "utf-8",
    support_multi_line: bool = True,
    csv_options: Mapping[str, Any] | None = None,
    include_path_column: bool = False,
    node_count: int | None = None,
    process_count_per_node: int | None = None,
    gpus_per_process: float | None = None,
    start_method: Literal["fork", "spawn", "inline"] = "fork",
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
    output_format: OutputFormat = "text",
    append_row_file_name: str = "parallel_run_step.txt",
    append_row_dataframe_header: bool = False,
    append_row_dataframe_sep: str = " ",
    output_file_size: int | str = "256 MB",
    output_partition_by: Sequence[str] | str | None = None,
    output_single_file: bool = False,
    keep_rows: bool = False,
    include_columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | Any | None = None,
    overwrite: bool = False,
    resume: bool | Literal["extend", "failed"] = False,
    accept_changes: Sequence[str] = (),
    trust: bool = False,
    retain: Literal["results", "all"] = "results",
    resource_monitor_interval: float = 600,
    profiling_module: Literal["cProfile", "profile"] | None = None,
    shared: bool = False,
    progress: bool | None = None,
    show_output: bool = False,
    detach: bool = False,
    survive: bool = True,
    **unknown: Unpack[NoOtherOptions],
) -> ParallelRunResult:
    """Run an entry script over the mini-batches of a table or a list of files.

    The input is cut into mini-batches. Agent processes call the script's ``run(mini_batch)`` for
    each of them, in parallel. The output has the rows of exactly one successful attempt at each
    mini-batch, in input order. It appears as a whole, or not at all.

    An option that is not given has the default of Dask's config under ``daskprs:``, if there is
    one, else the default shown here.

    Parameters
    ----------
    data
        The input. *Tables*: a pandas or polars DataFrame or Series, a LazyFrame, a pyarrow Table,
        any other Arrow stream (``__arrow_c_stream__``), a dask DataFrame or Series, or paths of
        Parquet, delimited text (CSV, TSV) or JSON lines files, plain or compressed (``.gz``,
        ``.zst``). *Files*: any other paths, or a dask Bag of paths. *Objects*: any other Bag, a
        dask Array, or a list of Delayed objects or futures. A path may be a file, a folder
        (searched recursively), a glob, or an fsspec URL. Give several paths as a list. If a folder
        has a file ``MLTable``, the folder is read as that file describes.
    script
        The entry script: a path (``"score.py"``), a dotted module (``"src.score"``), a callable
        that is used as ``run``, or an object or class with ``run`` and optionally ``init`` and
        ``shutdown``.
    client
        A ``distributed.Client``, the address of a scheduler, or a scheduler file
        (``"cluster.json"``). Default: the current client if there is one, else an in-process
        cluster with one slot for each usable core.
    job_dir
        The job folder. It has the logs, the journal, and the records that a resume needs. Default:
        ``./daskprs-jobs/<script>-<utc>-<id>/``, unless Dask's config names another ``job-root``.
    output_dir
        The output folder, or its URL (``"s3://bucket/folder"``). Default: none. Then no text is
        written, and the rows that `run` returns are kept with their types for
        `ParallelRunResult.to_pandas`. A data set is then written to the folder ``output`` of the
        job folder.
    source_directory
        The folder that the script imports from. The agents get a snapshot of it. The snapshot
        leaves out the files that ``.amlignore`` names, or those that ``.gitignore`` names if there
        is no ``.amlignore``. It has links to files of more than 10 MiB. All other files have at
        most 300 MiB, and there are at most 50,000 files. On a node that does not see the originals
        of the links, the limit of 300 MiB is for all files. Default: the script's folder.
    arguments
        Arguments for the script. They come after the system flags in ``sys.argv``.
    python
        Another interpreter for the script, or the folder of its venv or conda environment. It must
        be Python 3.8 or newer. It needs neither daskprs nor the packages of daskprs. Unless
        the input is files, it needs pandas, or the package of another `batch_format`. The script
        must be a file. Default: the interpreter of the workers.
    environment_variables
        Environment variables that are set in the agents before their first import. Thread counts
        (``OMP_NUM_THREADS`` and similar variables) follow the agent's share of the cores unless
        they are set here. The job folder keeps the names, and a keyed digest of each value, but not
        the values: a resume takes these from its caller.
    secrets
        Names of environment variables that the job passes from the caller to the agents. Their
        values are masked in everything that the job writes, except in the rows that `run` returns
        and in the files that the script writes.
    side_inputs
        Other files and folders that the script reads, such as a model, by name. A node that cannot
        see a side input gets a copy of it. The script gets its path by
        ``EntryScript().side_inputs["name"]``. If a value of `arguments` or `environment_variables`
        is the absolute path of a side input, or a path below it, the agent gets the path on its own
        node instead.
    batch_format
        The type of the mini-batches of a table: a ``"pandas"`` frame, a ``"pyarrow"`` Table or a
        ``"polars"`` frame. With ``"numpy"``, a mini-batch is a dict with an array for each column.
    logging_level
        Level of the root logger in the agents.
    input_type
        ``"table"``, ``"files"``, or ``"auto"``. With ``"auto"``, the input is a table if all paths
        have the suffix of one kind of table, and files if no path has such a suffix. A mixture is
        an error.
    mini_batch_size
        For tables, a size in bytes, or with a unit (``"10 MB"``; units are powers of 1024). For
        files, a number of files. Without this option, each partition of a dask collection is one
        mini-batch. Default: 1 MB, or 10 files.
    partition_keys
        Names of columns, which may be whole numbers (``[0]``) in a frame. Each combination of their
        values that occurs is one mini-batch, with all its rows in input order. For files, these are
        names from `partition_format`. This option cannot be combined with `mini_batch_size`.
    partition_format
        The form of paths that contain values, as in ``"{user}/{season}/{genre}.wav"``. The values
        become the last columns.
    columns
        The columns to read, in this order. Default: all.
    dtypes
        Types of columns, by name. Tables in other formats than text already have types, and are
        converted. Default: for text, types that samples show before the start.
    meta
        The columns of the frames in a list of Delayed objects or futures: a frame without rows, or
        types by column name. Default: none, and `run` gets the value of each object unchanged.
    delimiter
        The character between the fields of delimited text. Default: a tab for ``.tsv``, else a
        comma.
    header
        Which files have a header line. With ``all_files_different_headers``, columns are matched by
        name. The other choices are ``from_first_file`` and ``no_header``. Default:
        ``all_files_same_headers``.
    encoding
        The encoding of text input.
    support_multi_line
        Whether a quoted field may contain line breaks.
    csv_options
        How cells of delimited text are read: ``na_values``, ``keep_default_na``, ``decimal`` and
        ``thousands``, with the meaning that they have in ``pandas.read_csv``. Default: as pandas,
        but in a column whose type in `dtypes` is text, only an empty cell is null.
    include_path_column
        Add the path of each row's file as the column ``Path``.
    node_count
        The largest number of nodes to use. Default: all nodes of the cluster.
    process_count_per_node
        The number of agent processes on each node. Default: on a GPU node 1 if the script uses
        GPUs; on any other node of a cluster, the threads that its Dask workers declare; without a
        cluster, the usable cores, by affinity and cgroup.
    gpus_per_process
        The number of GPUs of each agent process: a whole number, or a fraction. With 0.5, two
        processes share a GPU. With 0, all GPUs are hidden. An agent finds its GPUs in
        ``CUDA_VISIBLE_DEVICES``. The option has no effect on nodes without GPUs. Default: 1 if the
        script has loaded a library that can use a GPU, or opened a GPU, by the end of its first
        mini-batch; 0 if not.
    start_method
        ``"fork"``: agents are forked from a process that has imported pandas and pyarrow once.
        ``"spawn"``: each agent is a fresh interpreter, for libraries that do not survive a fork.
    agent_memory_limit
        The memory limit of an agent together with its sub-processes, in bytes, or with a unit as in
        ``"2 GB"``. An agent that exceeds it is killed. Default: none.
    run_max_try
        The largest number of charged attempts at one mini-batch. An attempt is not charged if its
        machine was lost, if it ran on a GPU or node that daskprs has put into quarantine, if
        another mini-batch may have broken its process before, or if it is only one of several
        possible causes of an agent's death.
    allowed_failed_count
        The number of mini-batches that may fail. The job fails when more mini-batches have failed.
        With -1, any number may fail.
    allowed_failed_percent
        The percentage of all mini-batches that may fail. It is checked only when all mini-batches
        have been tried.
    error_threshold
        The number of items (rows, files or elements of a list) that may fail. The job fails when
        more items have failed. With -1, any number may fail.
    max_node_losses
        The number of lost workers at which a mini-batch fails. A worker counts if it was lost while
        it had only this mini-batch of the job, since the mini-batch may be the cause.
    fail_on_timeout
        A mini-batch that times out in each of its attempts fails the job, even if the thresholds
        allow failures. Batch deployments set this option.
    run_invocation_timeout
        Seconds for one call of `run`, including the time to iterate over its result. After this
        time the agent is killed, and the attempt fails.
    task_overhead_timeout
        Seconds for loading one mini-batch. With `partition_keys`, the limit also applies to each
        step that brings the rows of a key together: dealing out a piece of the table, and gathering
        a part.
    init_timeout
        Seconds for importing the script and ``init()``. Default: 3 × `run_invocation_timeout` + 30.
    shutdown_timeout
        Seconds for ``shutdown()``.
    first_task_creation_timeout
        Seconds until the first mini-batch of the input must be known.
    progress_update_timeout
        The job fails when no mini-batch has succeeded or failed for this many seconds. Time without
        workers does not count. Default: 2 × (`task_overhead_timeout` + `run_invocation_timeout`) +
        `init_timeout`.
    no_workers_timeout
        Seconds to wait for workers. Default: no limit; the progress display says that the job
        waits.
    output_action
        ``"append_row"``: the rows that `run` returns are the output. ``"summary_only"``: these rows
        are counted and dropped, and the script writes its own files.
    output_format
        ``"text"``: one file of lines. ``"parquet"``, ``"arrow"`` or ``"jsonl"``: a data set, which
        is a folder of part files with typed rows. The part files, sorted by name, are in input
        order. The suffix of `append_row_file_name` has no effect on the format.
    append_row_file_name
        Name of the output in `output_dir`. Default for a data set: ``"parallel_run_step"`` with the
        format as its suffix. Lines of text cannot have the suffix of another format, such as
        ``.parquet``, ``.json`` or ``.xlsx``.
    append_row_dataframe_header
        Write the column names of the frames once, as a header line.
    append_row_dataframe_sep
        The character between the fields of a row of a frame in text output.
    output_file_size
        The size of the rows in a part file of a data set, in bytes of Arrow's format before
        compression, or with a unit as in ``"256 MB"``. A part ends with the
        mini-batch that reaches this size.
    output_partition_by
        Columns whose values become names of folders in a data set, as in
        ``town=Lima/part-….parquet``. The files do not contain these columns. The columns may hold
        whole numbers, text, booleans or dates.
    output_single_file
        Write a data set as one file instead of a folder.
    keep_rows
        With `output_dir`, also keep the rows with their types, for `to_pandas` in Python.
    include_columns
        Columns of the input that the output has before the columns from `run`. `run` must return
        one row for each row of the mini-batch, or rows that keep the index of the mini-batch.
        ``"path"`` is the path of each file, or of each row's file. ``"row_number"`` is the number
        of each row in the input.
    schema
        The columns and types of the output rows: an Arrow schema, types by column name, or a frame
        without rows. The rows of each mini-batch are converted to this schema. If the conversion
        would lose a value, the mini-batch fails. A job whose only output is text cannot have a
        schema, because text has no types. Default: the types of the rows that `run` returns.
    overwrite
        Replace an existing output file. It is replaced when the new file is published.
    resume
        Continue the job in `job_dir`. Committed mini-batches do not run again, and the output is
        written again, with all rows in input order. True runs all remaining mini-batches, and gives
        failed mini-batches new attempts. ``"extend"`` runs only the new content of an input that
        has grown. ``"failed"`` runs only the mini-batches that have failed in the end. For this,
        the script may be corrected.
    accept_changes
        With `resume`: which of script, input and options may have changed. Committed mini-batches
        are kept. After a change of the input, only those with the same content are kept. Default:
        none.
    trust
        With `resume`: continue even if `job_dir` belongs to another user, or if others may write to
        the records that name the script. Python objects in the result are loaded even if another
        user has written them.
    retain
        The files that remain in the job folder after the job is Completed without failures.
        ``"results"``: the output, the rows, the logs, the journal, and the records that a resume
        needs. ``"all"``: also the files that were written for the agents, such as a frame, rows by
        key and the snapshot of the script.
    resource_monitor_interval
        Seconds between two rows in ``logs/perf``, which record how each node and process uses the
        processor, memory, disk, network and GPUs. The first intervals are shorter. At least 1; with
        0, no rows are written.
    profiling_module
        The Python module that profiles `run` in each process: ``"cProfile"`` or ``"profile"``. The
        profile is in ``logs/sys/node/<node>/<process>.profile``. Default: none.
    shared
        Make the job folder with the permissions that the umask allows. Without this option, only
        the owner may enter a new job folder. An `output_dir` outside of the job folder always has
        the permissions that the umask allows.
    progress
        Show progress. Default: a live display in a terminal or a notebook, otherwise a line from
        time to time.
    show_output
        While the job runs, show what `run` prints, each line with its mini-batch. If lines come too
        fast for a screen, some are left out. `ParallelRunResult.stdout` has the whole output of a
        mini-batch.
    detach
        Hand the driver to the cluster, and return a result with the status ``"Running"`` at once.
        Then the functions `attach` and `cancel` work on the job folder, and so do the commands
        ``daskprs status``, ``attach``, ``cancel`` and ``result``. A detached job needs a cluster, a
        job folder that the workers can see, paths as input, and a file as script.
    survive
        With `detach`: if the worker that runs the driver dies, the driver moves to another worker.
        So a job folder that only one worker can see is refused. False accepts such a folder.
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
    options = {name: value for name, value in locals().items() if name in TABLE}
    given = {name: value for name, value in options.items() if value is not NOT_GIVEN} | unknown
    places: dict[str, Any] = {"client": client, "job_dir": job_dir, "output_dir": output_dir}
    if detach:
        from daskprs.job.detached import submit
        from daskprs.job.request import check_call

        call = check_call(data, script, options_of_call(given), **places)
        return submit(call, survive=survive)
    from daskprs.job.prestart import prestart

    early = RunOptions.from_names(**given)
    with prestart(early, client, partial(options_of_call, given)) as final:
        from daskprs.job.job import Job
        from daskprs.job.request import check_call

        return Job(check_call(data, script, final, **places)).run()


def _like(
    call: Callable[P, Any],
) -> Callable[[Callable[..., ParallelRun]], Callable[P, ParallelRun]]:
    """Give a function the parameters of another one, for help and type checkers."""

    def with_parameters(function: Callable[..., ParallelRun]) -> Callable[P, ParallelRun]:
        signature = inspect.signature(call).replace(return_annotation="ParallelRun")
        function.__signature__ = signature  # type: ignore[attr-defined]
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
    places: dict[str, Any] = {"client": client, "job_dir": job_dir, "output_dir": output_dir}
    from daskprs.job.prestart import prestart

    if detach:
        from daskprs.job.detached import submit
        from daskprs.job.parallel_run import ParallelRun
        from daskprs.job.request import check_call

        call = check_call(data, script, options_of_call(options), **places)
        result = submit(call, survive=survive)
        return ParallelRun.of(result.job_dir)
    with ExitStack() as ahead:
        early = RunOptions.from_names(**options)
        final = ahead.enter_context(prestart(early, client, partial(options_of_call, options)))
        from daskprs.job.inline_call import refuse_inline
        from daskprs.job.parallel_run import ParallelRun
        from daskprs.job.request import check_call

        refuse_inline(final, "and start() returns before the job ends. Call parallel_run.")
        call = check_call(data, script, final, **places, blocks=False)
        return ParallelRun.begun(call, ahead.pop_all())
