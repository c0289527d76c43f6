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
    partition_keys: Sequence[str] | str | None = None,
    partition_format: str | None = None,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | Any | None = None,
    delimiter: str | None = None,
    header: Header | None = None,
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

    The input is cut into mini-batches, and the script's ``run(mini_batch)`` is called for each of
    them in agent processes, in parallel. Each mini-batch contributes the rows of exactly one
    successful attempt, in input order, to an output that is there whole or not at all.

    An option that is not given has the default of Dask's config under ``daskprs:``, if there is
    one, else the default shown here.

    Parameters
    ----------
    data
        What to work on. *Tables*: a DataFrame or Series of pandas or polars, a LazyFrame, a pyarrow
        Table, any other Arrow stream (``__arrow_c_stream__``), a dask DataFrame or Series, or paths
        of Parquet, delimited text (CSV, TSV) or JSON lines, plain or compressed (``.gz``,
        ``.zst``). *Files*: any other paths, or a dask Bag of paths. *Objects*: any other Bag, a
        dask Array, and a list of Delayed objects or futures. A path may be a file, a folder
        (searched recursively), a glob, or an fsspec URL; several make a list. A folder with a file
        ``MLTable`` is read as that file says.
    script
        The entry script: a path (``"score.py"``), a dotted module (``"src.score"``), a callable,
        which is then `run`, or an object or class with ``run`` and, if it likes, ``init`` and
        ``shutdown``.
    client
        A ``distributed.Client``, the address of a scheduler, or a scheduler file
        (``"cluster.json"``), which has the address. Default: the current client if
        there is one, else an in-process cluster with a slot for each usable core.
    job_dir
        The job folder: logs, journal, and what a resume needs. Default:
        ``./daskprs-jobs/<script>-<utc>-<id>/``, where Dask's config names no other ``job-root``.
    output_dir
        The folder of the output, or its URL (``"s3://bucket/folder"``). Default: no text is
        written, and what `run` returned is kept with its types for `ParallelRunResult.to_pandas`.
        A data set lies in the folder ``output`` of the job folder then.
    source_directory
        The folder that the script imports from. A snapshot of it goes to the agents. Default: the
        script's folder.
    arguments
        What the script finds in ``sys.argv`` after the system's own flags.
    python
        Another interpreter for the script, or the folder of its environment, of venv or conda. It
        has to be Python 3.8 or newer, and needs none of the packages of daskprs; rows of tables
        need pandas there. The script has to be a file. Default: the interpreter of the workers.
    environment_variables
        Set in the agents before their first import. Thread counts (``OMP_NUM_THREADS`` and the
        like) follow the agent's share of the cores unless they are set here. The job folder keeps
        their names, not their values: a resume takes these from its caller.
    secrets
        Names of environment variables of the caller that the agents get, too. Their values are
        masked in all that the job writes, but for the rows that `run` returns and the files that
        the script writes.
    side_inputs
        Files and folders that the script reads besides, by name, such as a model. A node that does
        not see one gets a copy. The script finds it by ``EntryScript().side_inputs["name"]``;
        `arguments` and `environment_variables` that are its absolute path, or a path below, are
        set to where it is.
    batch_format
        What `run` gets for a table: a ``"pandas"`` frame, a ``"pyarrow"`` Table, a ``"polars"``
        frame, or for ``"numpy"`` a dict with an array for each column.
    logging_level
        Level of the root logger in the agents.
    input_type
        ``"table"``, ``"files"``, or ``"auto"``: a table if all paths have one table suffix, files
        if none has, and an error for a mixture.
    mini_batch_size
        Bytes for tables, with or without a unit of 1024 (``"10 MB"``); a count for files. A
        partition of a dask collection is one mini-batch unless a size is given. Default: 1 MB, or
        10 files.
    partition_keys
        Names of columns: one mini-batch for each existing combination of their values, with all
        its rows in input order. For files, names of `partition_format`. Not together with
        `mini_batch_size`.
    partition_format
        How paths carry values, as in ``"{user}/{season}/{genre}.wav"``. The values become columns,
        appended last.
    columns
        The columns to read, in this order. Default: all.
    dtypes
        Types of columns, by name. Tables other than text have types of their own. Default: types
        of text are fixed by samples before the start.
    meta
        The columns of frames that a list of Delayed objects or futures gives: a frame without rows,
        or types by column name. Default: `run` gets what each of them gives, as it is.
    delimiter
        The character between the fields of delimited text. Default: a tab for ``.tsv``, else a
        comma.
    header
        Which files have a header line. ``all_files_different_headers`` puts columns together by
        name; the other choices are ``from_first_file`` and ``no_header``. Default:
        ``all_files_same_headers``.
    encoding
        The encoding of text input.
    support_multi_line
        Whether a quoted field may contain line breaks.
    include_path_column
        Add the path of each row's file as the column ``Path``.
    node_count
        How many nodes to use. Default: all of the cluster.
    process_count_per_node
        Agent processes on each node. Default: the threads that its Dask workers declare;
        in-process the usable cores, by affinity and cgroup; on a GPU node 1.
    gpus_per_process
        GPUs of each agent process: a whole number, or a part such as 0.5, so that two share one.
        0 hides them. Agents find theirs in ``CUDA_VISIBLE_DEVICES``. It has no effect on nodes
        without GPUs.
    start_method
        ``"fork"``: agents are forked from a process that has imported pandas and pyarrow once.
        ``"spawn"``: each agent is a fresh interpreter, for libraries that do not survive a fork.
    agent_memory_limit
        Bytes, or with a unit as in ``"2 GB"``. An agent that holds more, its sub-processes
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
        A mini-batch fails when it was running on this many lost workers: it may be the cause.
    fail_on_timeout
        A mini-batch that runs out of time in each of its attempts fails the job, whatever the
        thresholds say. Batch deployments work like this.
    run_invocation_timeout
        Seconds for one call of `run`, iterating its result included. Then the agent is killed, and
        the attempt has failed.
    task_overhead_timeout
        Seconds for loading one mini-batch; with `partition_keys` also for dealing out a piece of
        the table, or gathering a part of it.
    init_timeout
        Seconds for importing the script and ``init()``. Default: 3 × `run_invocation_timeout` + 30.
    shutdown_timeout
        Seconds for ``shutdown()``.
    first_task_creation_timeout
        Seconds within which the input must give its first mini-batch.
    progress_update_timeout
        The job fails when no mini-batch was settled for this many seconds. Time without workers
        does not count. Default: 2 × (`task_overhead_timeout` + `run_invocation_timeout`) +
        `init_timeout`.
    no_workers_timeout
        Seconds to wait for workers. Default: for ever; progress says that the job waits.
    output_action
        ``"append_row"``: what `run` returns is output. ``"summary_only"``: it is counted and
        dropped, and the script writes files of its own.
    output_format
        ``"text"``: one file of lines. ``"parquet"``, ``"arrow"`` or ``"jsonl"``: a data set, which
        is a folder of part files with typed rows, in input order by name. The suffix of a name
        decides nothing.
    append_row_file_name
        Name of the output in `output_dir`. Default for a data set: ``"parallel_run_step"`` with the
        format as its suffix.
    append_row_dataframe_header
        Write the header of the frames, once.
    append_row_dataframe_sep
        The character between the fields of frames.
    output_file_size
        The size of the rows in a part file of a data set, in bytes of Arrow, before compression: a
        part ends with the mini-batch that reaches it.
    output_partition_by
        Columns that make folders in a data set, as in ``town=Lima/part-….parquet``. The files lack
        these columns. Whole numbers, text, booleans and dates make folders.
    output_single_file
        Make one file in place of the folder of a data set.
    keep_rows
        With `output_dir`, keep the rows with their types too, for `to_pandas` in Python.
    include_columns
        Columns of the input that stand before those that `run` returned, as many rows as it gets
        or rows with the index of the mini-batch. ``"path"`` is the path of each file, or that of
        each row's file, and ``"row_number"`` the number of each row in the input.
    schema
        The columns and types of the rows: an Arrow schema, types by column name, or a frame without
        rows. Each mini-batch is brought into it, and one that would lose a value fails. Default:
        what `run` returns says the types. Not for text alone, which has no types.
    overwrite
        Replace an existing output file, at the moment of publishing.
    resume
        Continue the job in `job_dir`: what is committed does not run again, and the output is
        written anew, with all rows in input order. True runs all that is left, and gives what has
        failed fresh tries. ``"extend"`` runs what is new by content in an input that has grown.
        ``"failed"`` runs what has failed in the end, by a script that may be a corrected one.
    accept_changes
        With `resume`: which of script, input and options may have changed. What is committed is
        kept; of a changed input, what is the same by content. Default: none.
    trust
        With `resume`: go on though `job_dir` belongs to another user, or though others may write
        to the records that name the script. Python objects in the result are loaded, too, whoever
        has written them.
    retain
        What stays of a Completed job in which no mini-batch has failed. ``"results"``: output and
        rows, logs, journal, and the records of a resume. ``"all"``: what was written for the agents
        too, such as a frame, rows by key and the snapshot of the script.
    resource_monitor_interval
        Seconds between two rows about the processor, memory, disk, network and GPUs of each node
        and process, in ``logs/perf``. The first rows follow each other more closely. 0: no rows.
    profiling_module
        ``"cProfile"`` or ``"profile"``: profile `run` in each process by this module of Python.
        The profile is in ``logs/sys/node/<node>/<process>.profile``. Default: none.
    shared
        Make the job folder with the permissions that the umask allows. Otherwise only its owner
        may enter a new job folder. The umask always decides for an `output_dir` elsewhere.
    progress
        Show progress. Default: in a terminal and in notebooks a live display, else a line now and
        then.
    show_output
        Show what `run` prints while the job runs, each line with its mini-batch, as far as a
        screen can hold it. `ParallelRunResult.stdout` has all that a mini-batch has printed.
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
        from daskprs.job.parallel_run import ParallelRun
        from daskprs.job.request import check_call

        call = check_call(data, script, final, **places, blocks=False)
        return ParallelRun.begun(call, ahead.pop_all())
