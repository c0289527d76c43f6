"""The options of a job: every name, default and rule, in one table."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta  # noqa: TC003 - as below
from os import PathLike  # noqa: TC003 - the table reads the types of its fields
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from daskprs import _plugins
from daskprs._core.calls import MOST_AT_ONCE
from daskprs._core.limits import Limits
from daskprs._core.rate_limit import RateLimit
from daskprs._core.stages import Stages, name_of
from daskprs._inputs.source.read_options import BatchFormat, Header, InputType, ReadOptions
from daskprs._inputs.source.sizes import parse_bytes, size_in_costs, size_in_one_form
from daskprs._options.names_elsewhere import hint_at
from daskprs._options.output_path import (
    TABULAR,
    check_output,
    meant_by,
    output_alone,
    split,
    suffix_of,
)
from daskprs._options.rules import (
    LEVELS,
    announced_columns,
    check_amounts,
    check_cost,
    check_csv_options,
    check_encoding,
    check_file_name,
    check_fit_for_nulls,
    check_function,
    check_gpus,
    check_metrics_file,
    check_mini_batch_size,
    check_number,
    check_one_of,
    check_parts,
    check_path,
    check_percent,
    check_python,
    check_rate_limit,
    check_separator,
    check_size,
    check_text,
    folder_columns,
    given_schema,
    labels,
    modules,
    named_paths,
    names,
    optional,
    strings,
    types_of_columns,
    variable_names,
    variables,
)
from daskprs._options.time_rules import (
    EXPONENTIAL,
    check_deadline,
    check_delay,
    check_interval,
    check_seconds,
)
from daskprs._output.spec import OutputFormat  # noqa: TC001 - the same
from daskprs._suggest import refuses_unknown
from daskprs._system.masks import Mask, mask_of
from daskprs._system.store_calls import STORE_REQUESTS
from daskprs._system.user_key import keyed_digest
from daskprs.errors import Option, OptionError

SCRIPT, INPUT, PROCESSES, FAILURES, TIMES, OUTPUT, THE_JOB = GROUPS = (
    "Script",
    "Input",
    "Processes",
    "Failures",
    "Times",
    "Output",
    "The job",
)
"""The headings under which help and documentation show the options, in this order."""
OF_TEXT = ("append_row_dataframe_header", "append_row_dataframe_sep")
OF_DATASETS = ("output_file_size", "output_partition_by", "output_single_file")
"""Options that only text has, and those that only a data set has."""
OF_CALL = ("client", "job_dir", "output_dir", "detach")
"""Parameters of `parallel_run` beside the options."""
OF_ROWS = ("keep_rows", "include_columns", "schema")
"""Options of what `run` returns."""
BESIDE_OUTPUT = (*OF_TEXT, "append_row_file_name", "output_format", "output_single_file")
"""Options that say what `output` says."""

OF_STAGES = ("preprocess", "postprocess")
OF_DASKPRS = ("DASKPRS_ASSETS", "DASKPRS_RUN")
"""Environment variables whose values are places, and are kept; plugins have more of them."""
INIT_S = 3600.0
"""Seconds for `init` if nothing says otherwise: models take long to be loaded or fetched."""
SHORTEST_SECRET = 4
"""Characters of the shortest secret: the mask of a shorter one would hide half of the logs."""

Rule = Callable[[str, Any], Any]
Digest = Callable[[str], list[str]]
"""Returns the name of a key, and the digest of a text by this key."""


class OptionRow(NamedTuple):
    """A row of the table of options. The help is the option's text in `RunOptions`."""

    group: str
    rule: Rule
    """Returns the value in its standard form, or rejects it."""
    changes_results: bool
    """Whether another value gives other rows. A resume may change all other options."""
    is_of_one_run: bool
    """Whether a resume forgets the value of the original call, such as that of `overwrite`."""
    flag: str
    """The flag on the command line, where it is repeated for each value; else empty."""
    is_generated: bool
    """Whether the command line makes its flag from this row; `resume` has flags of its own."""
    is_site_default: bool
    """Whether Dask's config may set a default. An option that describes the data, the paths or the
    result of one call has none, and no such default contradicts an option of a call."""
    is_of_task: bool
    """Whether it has a meaning where `map_batches` runs a partition within a task of Dask."""
    default: Any = None
    types: tuple[Any, ...] = ()
    """The type of the values, or the types of a union."""


def _one_of_type(name: str, value: Any) -> Any:
    """Reject a value that the type of the option, such as `bool` or `Literal`, does not name."""
    fixed = {bool: (True, False), NoneType: (None,)}
    choices = [one for kind in TABLE[name].types for one in fixed.get(kind) or get_args(kind)]
    return check_one_of(*choices)(name, value)


def option(
    default: Any,
    group: str,
    rule: Rule | None = None,
    *,
    changes_results: bool = True,
    is_of_one_run: bool = False,
    flag: str = "",
    is_generated: bool = True,
    is_site_default: bool | None = None,
    is_of_task: bool = False,
) -> Any:
    """Return the dataclass field of an option; see `OptionRow` for the parameters.

    Without a `rule`, the value has to be one of those that its type, `bool` or `Literal`, names.
    Dask's config may set a default for any option but those of the input, unless the row says it.
    """
    row = OptionRow(
        group,
        rule or _one_of_type,
        changes_results,
        is_of_one_run,
        flag,
        is_generated,
        group != INPUT if is_site_default is None else is_site_default,
        is_of_task,
    )
    return dataclasses.field(default=default, metadata={"row": row})


def _no_option(name: str) -> OptionError:
    return OptionError(f"{name}: there is no such option.{hint_at(name, [*TABLE, *OF_CALL])}")


# Its fields are the table of options: checks, the command line, the reference and `plan` come from
# them. CONTRIBUTING.md says how an option is added.
@refuses_unknown(_no_option)
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All options of `daskprs.parallel_run`, checked, for use more than once.

    It is a mapping: ``parallel_run(data, script, **options)`` takes it, and
    ``RunOptions(**options, run_max_try=1)`` or `replace` changes it. In such a call, an option at
    its default counts as not given, so Dask's config may set another value.

    Parameters
    ----------
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
        Environment variables of the agents, set before their first import. Thread counts
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
        What the input is: ``"table"``, ``"files"``, or ``"auto"``. With ``"auto"``, the input is a
        table if all paths have the suffix of one kind of table, and files if no path has such a
        suffix. A mixture is an error.
    mini_batch_size
        For tables, ``"100 rows"``, or a size such as ``"10 MB"`` (units are powers of 1024; a
        number alone means bytes). For files, ``"20 files"`` or ``20``; for other objects,
        ``"20 items"``. Without this option, each partition of a dask collection is one mini-batch.
        With `mini_batch_cost`, a number without a unit. Default: 1 MB, or 10 files.
    mini_batch_cost
        What a row of a table costs: the name of a column of numbers, or of a function of the script
        that gets rows and returns a number for each of them. A mini-batch is then rows that follow
        each other, whose costs add up to `mini_batch_size` at most. A row that costs more is a
        mini-batch of its own. A script that is an object may have the function itself here.
        Default: none.
    partition_keys
        Columns that divide the rows: a mini-batch for each combination of values. It has all rows
        of the combination, in input order. In a frame, the names of columns may be whole numbers
        (``[0]``). For files, these are names from `partition_format`. This option cannot be
        combined with `mini_batch_size`.
    partition_format
        The form of paths that contain values, as in ``"{user}/{season}/{genre}.wav"``. The values
        become the last columns.
    columns
        The columns to read, in this order. In a frame, their names may be whole numbers. Default:
        all.
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
        The number of agent processes on each node. Default: if the script uses GPUs, 1 on a GPU
        node, or 1 for each Dask worker that has GPUs of its own or declares some; on any other node
        of a cluster, the threads that its Dask workers declare; without a cluster, the usable
        cores, by affinity and cgroup.
    gpus_per_process
        The number of GPUs of each agent process: a whole number, or a fraction. With 0.5, two
        processes share a GPU. With 0, all GPUs are hidden. An agent finds its GPUs in
        ``CUDA_VISIBLE_DEVICES``. The option has no effect on nodes without GPUs. Default: 1 if the
        script has loaded a library that can use a GPU, or opened a GPU, by the end of its first
        mini-batch; 0 if not.
    start_method
        How the agents start. ``"fork"``: from a process that has imported pandas and pyarrow once.
        ``"spawn"``: each agent is a fresh interpreter, for libraries that do not survive a fork.
        ``"inline"``: the script works in the process and thread of the call, for debugging. No
        timeout ends it, and it uses no cluster.
    preload
        Installed packages that are imported once, before agents are forked:
        ``["torch", "transformers"]``. A package that starts threads or opens a device when it is
        imported, or whose import takes longer than two minutes, is named in the log, and each agent
        imports it. Without effect under another interpreter, and with a `start_method` other than
        ``"fork"``, where each agent does all imports. Default: none.
    agent_memory_limit
        The memory limit of an agent together with its sub-processes, in bytes, or with a unit as in
        ``"2 GB"``. Memory that they share counts once. An agent that exceeds it is killed. One that
        has grown to 80 % of it ends between two mini-batches, and a new one takes its place.
        Default: none.
    agent_max_mini_batches
        The number of mini-batches after which an agent ends, and a new one takes its place: for
        scripts, or libraries, that keep something of each mini-batch. Default: no limit.
    preprocess
        A function of the script, by its name: it gets the mini-batch, and its context if it asks
        for it, and returns what `run` gets in place of the mini-batch. It runs in processes of its
        own, which see no GPU, while `run` works on other mini-batches. A script that is an object
        may have the function itself here. ``init_preprocess()``, if the script has it, stands for
        ``init()`` in these processes.
    postprocess
        A function of the script, likewise: it gets what `run` returned, and returns the rows, in
        the processes of `preprocess`.
    preprocess_processes
        The number of processes on each node for `preprocess` and `postprocess`: up to 1,000.
        Default: the usable cores, without one for each agent process; on a node without a GPU that
        runs `preprocess` for others, the threads of its Dask workers.
    concurrency_per_process
        The number of mini-batches that a process works on at the same time, where `run` is an
        ``async def``, or the script has the line ``thread_safe = True``: up to 1,000. It is for
        scripts that wait for something else, such as an endpoint. Default: 64 in such a script, and
        1 in any other.
    rate_limit
        The limits of an endpoint, which all processes of the job keep together: a
        ``daskprs.RateLimit``, or its parameters as a mapping: ``requests_per_minute``,
        ``tokens_per_minute``, ``in_flight`` and ``name``. The script asks for a permit before each
        request, by ``context.permit()``. Default: none.
    store_requests
        The largest number of files that each agent fetches from an object store at the same time.
        The call itself lists as many paths, and reads as many footers and header lines, at the same
        time.
        The library of a store may open fewer connections.
    run_max_try
        The largest number of charged attempts at one mini-batch. An attempt is not charged if its
        machine was lost, if it ran on a GPU or node that daskprs has put into quarantine, if
        another mini-batch may have broken its process before, or if its agent died and another
        mini-batch may have caused that.
    retry_delay
        Seconds before an attempt at a mini-batch whose last attempt has failed and was charged.
        Meanwhile, the process works on other mini-batches. ``"exponential"``: 1 second after the
        first charged attempt, then 2, 4, 8 and so on, at most 60, each shortened by a random share
        of up to one half, so that mini-batches that failed together are not retried together. A
        resume tries at once.
    on_error
        What becomes of a mini-batch that has failed in all its attempts. ``"raise"``: it counts as
        failed, and the job fails if that is more than `allowed_failed_count`. ``"drop"``: the job
        goes on without it, however many there are. ``"isolate"``: the rows or files that fail in it
        are found by halves, and it is done but for them. They are in ``failed_rows.parquet`` of the
        job folder and in `ParallelRunResult.failed_rows`, and count for `error_threshold` only.
        ``"null"``: the same, and rows of nulls stand in their place in the output, where all rows
        have a column ``_error``. For both, rows have to be independent of each other: the first
        search finds out whether they are, and no further one is made if not.
    independent_rows
        Whether `run` returns for the rows or files of a mini-batch what it returns for parts of it,
        put together. With True, ``on_error="isolate"`` does not find out by itself.
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
        The number of lost workers at which a mini-batch fails. A lost worker counts if it was
        running this mini-batch and no other one of the job, since this one may be the cause.
    fail_on_timeout
        A mini-batch that times out in each of its attempts fails the job, even if the thresholds
        allow failures. Batch deployments set this option.
    run_invocation_timeout
        Seconds for one call of `run`, including the time to iterate over its result. After this
        time the agent is killed, and the attempt fails. Like all times, it may be in words, such as
        ``"5m"`` or ``"2 hours"``.
    task_overhead_timeout
        Seconds for loading one mini-batch. With `partition_keys`, the limit also applies to each
        step that brings the rows of a key together: dealing out a piece of the table, and gathering
        a part.
    init_timeout
        Seconds for importing the script and ``init()``. Default: 3600.
    init_idle_timeout
        Seconds after which an ``init()`` is ended that does nothing: it uses less than 1 % of a
        core, reads and writes nothing, and prints nothing, and neither do its sub-processes. It may
        wait for another ``init()`` of its node that works.
    shutdown_timeout
        Seconds for ``shutdown()``.
    first_task_creation_timeout
        Seconds until the first mini-batch of the input must be known.
    progress_update_timeout
        The job fails when no mini-batch has succeeded or failed for this many seconds. Time without
        workers does not count. Default: 2 × (`task_overhead_timeout` + `run_invocation_timeout`) +
        `init_idle_timeout`. While no process has come up yet, `init_timeout` counts in its place.
    no_workers_timeout
        Seconds to wait for workers. Default: no limit; the progress display says that the job
        waits.
    deadline
        The end of the job: a duration such as ``"2h"``, a time of day such as ``"06:30"``, or a
        time such as ``"2030-01-31T06:30"``. Near it, the job starts only what still fits. Then it
        is Interrupted, and a resume continues it. ``"never"``: no end, also in a batch job.
        Default: the end of the batch job, if Slurm names it.
    output
        The path of the output, or its URL; the suffix is its format. ``"scores.parquet"``,
        ``"scores.arrow"``, ``"scores.csv"`` (with a header and commas) and ``"scores.jsonl"`` (an
        object in each line) are one file each. A path without a suffix is a folder of Parquet
        files. `to_pandas` returns the rows with their types after each of them. The call cannot
        also have `output_dir`, `append_row_file_name`, `append_row_dataframe_header`,
        `append_row_dataframe_sep`, `output_format` or `output_single_file`. Default: none.
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
        has grown. ``"failed"`` runs only the mini-batches that have failed in the end, and of those
        that are done but for some rows just these. For this, the script may be corrected.
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
    usage_limits
        The largest amounts that the job may use, in all its runs, of what its script counts by
        ``context.count``: ``{"tokens_in": 5e7}``. Near a limit, the job starts only what still fits
        by the mean of the mini-batches so far. Then it is Interrupted, and a resume with a higher
        limit continues it. Default: none.
    resource_monitor_interval
        Seconds between two rows in ``logs/perf``, which record how each node and process uses the
        processor, memory, disk, network and GPUs. The first intervals are shorter. At least 1; with
        0, no rows are written, and there is no advice on GPUs and cores.
    profiling_module
        The Python module that profiles `run` in each process: ``"cProfile"`` or ``"profile"``. The
        profile is in ``logs/sys/node/<node>/<process>.profile``. Default: none.
    metrics_file
        A file for the metrics of the job, in the folder of text files of a Prometheus node
        exporter. Its name ends with ``.prom``. It is replaced every five seconds and at the end of
        the job, and it stays. Default: none.
    shared
        Make the job folder with the permissions that the umask allows. Without this option, only
        the owner may enter a new job folder. An `output_dir` outside of the job folder always has
        the permissions that the umask allows.
    report
        When the job writes the page `report.html` into the job folder, by a process of its own
        after its end. ``"auto"``: after ten seconds of work, or a failure. ``"always"`` and
        ``"never"``. ``daskprs report FOLDER`` writes it at any time.
    progress
        Show progress. Default: a live display in a terminal or a notebook, otherwise a line from
        time to time.
    show_output
        While the job runs, show what `run` prints, each line with its mini-batch. If lines come too
        fast for a screen, some are left out. `ParallelRunResult.stdout` has the whole output of a
        mini-batch.

    Raises
    ------
    OptionError
        For a value out of range; it names the option, the rule and the value.

    Examples
    --------
    >>> options = RunOptions(mini_batch_size="10 MB", run_max_try=1)
    >>> options["run_max_try"]
    1

    """

    source_directory: str | PathLike[str] | None = option(
        None, SCRIPT, check_path, changes_results=False, is_site_default=False, is_of_task=True
    )
    arguments: Sequence[str] = option(
        (), SCRIPT, strings, is_generated=False, is_site_default=False, is_of_task=True
    )
    python: str | PathLike[str] | None = option(
        None, SCRIPT, check_python, is_site_default=False, is_of_task=True
    )
    environment_variables: Mapping[str, str] | None = option(
        None, SCRIPT, variables, flag="environment_variable", is_of_task=True
    )
    secrets: Sequence[str] | None = option(
        None, SCRIPT, variable_names, flag="secret", changes_results=False, is_of_task=True
    )
    side_inputs: Mapping[str, str | PathLike[str]] | None = option(
        None,
        SCRIPT,
        named_paths,
        flag="side_input",
        changes_results=False,
        is_site_default=False,
    )
    batch_format: BatchFormat = option("pandas", SCRIPT, is_site_default=False, is_of_task=True)
    logging_level: str = option(
        "INFO", SCRIPT, check_one_of(*LEVELS, any_case=True), changes_results=False, is_of_task=True
    )
    input_type: InputType = option("auto", INPUT)
    mini_batch_size: float | str | None = option(
        None, INPUT, check_mini_batch_size, is_of_task=True
    )
    mini_batch_cost: str | Callable[..., Any] | None = option(None, INPUT, check_cost)
    partition_keys: Sequence[str | int] | str | None = option(None, INPUT, labels)
    partition_format: str | None = option(None, INPUT, check_text)
    columns: Sequence[str | int] | None = option(None, INPUT, labels)
    dtypes: Mapping[str, Any] | None = option(
        None, INPUT, types_of_columns, flag="dtype", is_of_task=True
    )
    meta: Mapping[str, Any] | Any | None = option(
        None, INPUT, announced_columns, is_generated=False, is_of_task=True
    )
    delimiter: str | None = option(None, INPUT, check_separator)
    header: Header | None = option(None, INPUT)
    encoding: str = option("utf-8", INPUT, check_encoding)
    support_multi_line: bool = option(True, INPUT)
    csv_options: Mapping[str, Any] | None = option(
        None, INPUT, check_csv_options, flag="csv_option"
    )
    include_path_column: bool = option(False, INPUT)
    node_count: int | None = option(None, PROCESSES, check_number(1), changes_results=False)
    process_count_per_node: int | None = option(
        None, PROCESSES, check_number(1), changes_results=False
    )
    gpus_per_process: float | None = option(
        None, PROCESSES, check_gpus, changes_results=False, is_of_task=True
    )
    start_method: Literal["fork", "spawn", "inline"] = option(
        "fork", PROCESSES, changes_results=False, is_of_task=True
    )
    preload: Sequence[str] | None = option(
        None, PROCESSES, modules, changes_results=False, is_of_task=True
    )
    agent_memory_limit: int | str | None = option(
        None, PROCESSES, check_size, changes_results=False, is_of_task=True
    )
    agent_max_mini_batches: int | None = option(
        None, PROCESSES, check_number(1), changes_results=False
    )
    preprocess: str | Callable[..., Any] | None = option(
        None, PROCESSES, check_function, is_site_default=False
    )
    postprocess: str | Callable[..., Any] | None = option(
        None, PROCESSES, check_function, is_site_default=False
    )
    preprocess_processes: int | None = option(
        None, PROCESSES, check_number(1, 1000), changes_results=False, is_site_default=False
    )
    concurrency_per_process: int | None = option(
        None, PROCESSES, check_number(1, MOST_AT_ONCE), changes_results=False, is_site_default=False
    )
    rate_limit: Mapping[str, Any] | RateLimit | None = option(
        None, PROCESSES, check_rate_limit, changes_results=False, is_site_default=False
    )
    store_requests: int = option(
        STORE_REQUESTS, PROCESSES, check_number(1), changes_results=False, is_of_task=True
    )
    run_max_try: int = option(3, FAILURES, check_number(1), changes_results=False, is_of_task=True)
    retry_delay: float | str = option(
        0, FAILURES, check_delay, changes_results=False, is_of_task=True
    )
    on_error: Literal["raise", "drop", "isolate", "null"] = option(
        "raise", FAILURES, changes_results=False, is_site_default=False
    )
    independent_rows: bool = option(False, FAILURES, changes_results=False, is_site_default=False)
    allowed_failed_count: int = option(0, FAILURES, check_number(-1), changes_results=False)
    allowed_failed_percent: float = option(100, FAILURES, check_percent, changes_results=False)
    error_threshold: int = option(-1, FAILURES, check_number(-1), changes_results=False)
    max_node_losses: int = option(3, FAILURES, check_number(1), changes_results=False)
    fail_on_timeout: bool = option(False, FAILURES, changes_results=False)
    run_invocation_timeout: float | str = option(
        60, TIMES, check_seconds, changes_results=False, is_of_task=True
    )
    task_overhead_timeout: float | str = option(
        600, TIMES, check_seconds, changes_results=False, is_of_task=True
    )
    init_timeout: float | str | None = option(
        None, TIMES, check_seconds, changes_results=False, is_of_task=True
    )
    init_idle_timeout: float | str = option(
        210, TIMES, check_seconds, changes_results=False, is_of_task=True
    )
    shutdown_timeout: float | str = option(
        30, TIMES, check_seconds, changes_results=False, is_of_task=True
    )
    first_task_creation_timeout: float | str = option(
        600, TIMES, check_seconds, changes_results=False
    )
    progress_update_timeout: float | str | None = option(
        None, TIMES, check_seconds, changes_results=False
    )
    no_workers_timeout: float | str | None = option(
        None, TIMES, check_seconds, changes_results=False
    )
    deadline: str | float | timedelta | time | datetime | None = option(
        None,
        TIMES,
        check_deadline,
        changes_results=False,
        is_of_one_run=True,
        is_site_default=False,
    )
    output: str | PathLike[str] | None = option(None, OUTPUT, check_output, is_site_default=False)
    output_action: Literal["append_row", "summary_only"] = option(
        "append_row", OUTPUT, is_site_default=False
    )
    output_format: OutputFormat = option("text", OUTPUT, is_site_default=False)
    append_row_file_name: str = option("parallel_run_step.txt", OUTPUT, check_file_name)
    append_row_dataframe_header: bool = option(False, OUTPUT)
    append_row_dataframe_sep: str = option(" ", OUTPUT, check_separator)
    output_file_size: int | str = option(
        "256 MB", OUTPUT, check_size, changes_results=False, is_site_default=False
    )
    output_partition_by: Sequence[str] | str | None = option(
        None, OUTPUT, folder_columns, is_site_default=False
    )
    output_single_file: bool = option(False, OUTPUT, is_site_default=False)
    keep_rows: bool = option(False, OUTPUT, is_site_default=False)
    include_columns: Sequence[str] | None = option(
        None, OUTPUT, names, is_site_default=False, is_of_task=True
    )
    schema: Mapping[str, Any] | Any | None = option(
        None, OUTPUT, given_schema, is_site_default=False, is_of_task=True
    )
    overwrite: bool = option(
        False, OUTPUT, changes_results=False, is_of_one_run=True, is_site_default=False
    )
    resume: bool | Literal["extend", "failed"] = option(
        False,
        THE_JOB,
        is_generated=False,
        changes_results=False,
        is_of_one_run=True,
        is_site_default=False,
    )
    accept_changes: Sequence[str] = option(
        (),
        THE_JOB,
        check_parts,
        changes_results=False,
        is_of_one_run=True,
        is_site_default=False,
    )
    trust: bool = option(
        False, THE_JOB, changes_results=False, is_of_one_run=True, is_site_default=False
    )
    retain: Literal["results", "all"] = option("results", THE_JOB, changes_results=False)
    usage_limits: Mapping[str, float] | None = option(
        None,
        THE_JOB,
        check_amounts,
        flag="usage_limit",
        changes_results=False,
        is_site_default=False,
    )
    resource_monitor_interval: float | str = option(
        600, THE_JOB, check_interval, changes_results=False
    )
    profiling_module: Literal["cProfile", "profile"] | None = option(
        None, THE_JOB, changes_results=False
    )
    metrics_file: str | PathLike[str] | None = option(
        None, THE_JOB, check_metrics_file, changes_results=False, is_site_default=False
    )
    shared: bool = option(False, THE_JOB, changes_results=False)
    report: Literal["auto", "always", "never"] = option("auto", THE_JOB, changes_results=False)
    progress: bool | None = option(
        None, THE_JOB, is_generated=False, changes_results=False, is_of_one_run=True
    )
    show_output: bool = option(False, THE_JOB, changes_results=False)

    def __post_init__(self) -> None:
        """Check every value, and bring names and lists into their standard form."""
        for name, row in TABLE.items():
            object.__setattr__(self, name, row.rule(name, getattr(self, name)))
        self._take_output()
        self._check_size()
        if self.partition_keys and self.mini_batch_size is not None:
            why = "which make one mini-batch for each combination of values"
            raise self._not_with("mini_batch_size", Option("partition_keys"), why)
        self._check_output()
        self._check_on_error()
        self._check_stages()
        if self.trust and not self.resume:
            msg = f"{Option('trust', value=True)}: only with {Option('resume', value=True)}."
            raise OptionError(msg)
        if self.accept_changes and not self.resume:
            msg = (
                f"{Option('accept_changes', self.accept_changes)}: only with "
                f"{Option('resume', value=True)}: a new job has nothing to keep."
            )
            raise OptionError(msg)

    def _not_with(self, name: str, other: Option, why: str) -> OptionError:
        """Return the error for an option that another one leaves without a meaning."""
        value = name_of(self[name]) if callable(self[name]) else self[name]
        return OptionError(f"{Option(name, value)}: not with {other}, {why}.")

    def _check_size(self) -> None:
        """Reject a size that has another unit than what mini-batches are cut by."""
        size, cost = self.mini_batch_size, self.mini_batch_cost
        if cost is None:
            if size is not None:
                size_in_one_form(size)
            return
        if self.partition_keys:
            why = "which cut by the values of keys"
            raise self._not_with("mini_batch_cost", Option("partition_keys"), why)
        if size is None:
            given = Option("mini_batch_cost", cost if isinstance(cost, str) else name_of(cost))
            msg = (
                f"{given}: the largest sum of costs is missing. Give it as a number by "
                f"{Option('mini_batch_size')}."
            )
            raise OptionError(msg)
        size_in_costs(size)
        if not isinstance(cost, str) and self.python is not None:
            why = "since a function runs in daskprs's interpreter"
            raise self._not_with("mini_batch_cost", Option("python", self.python), why)

    def _check_on_error(self) -> None:
        """Reject options that `on_error` leaves without effect, and searches without a meaning."""
        given = Option("on_error", self.on_error)
        if self.on_error == "drop" and "allowed_failed_count" in self.changed():
            why = "which allows all. Say either"
            raise self._not_with("allowed_failed_count", given, why)
        if self.on_error not in ("isolate", "null"):
            return
        if self.partition_keys:
            why = "since run() gets all rows of a key at once, and no part of them"
            raise self._not_with("on_error", Option("partition_keys"), why)
        if self.on_error == "null" and self.schema:
            check_fit_for_nulls(self["schema"], self.include_columns or ())
        if self.output_action == "summary_only" and not self.independent_rows:
            msg = (
                f"{given}: with {Option('output_action', 'summary_only')} nothing is kept of what "
                "run() returns, so that it cannot be found out whether rows are independent. If "
                f"they are, add {Option('independent_rows', value=True)}."
            )
            raise OptionError(msg)

    def _check_stages(self) -> None:
        """Reject options that stages leave without effect, or have no form for."""
        stages = [Option(name, self[name]) for name in OF_STAGES if self[name] is not None]
        if self.preprocess_processes is not None and not stages:
            processes = Option("preprocess_processes", self.preprocess_processes)
            msg = (
                f"{processes}: without {Option('preprocess')} or {Option('postprocess')} there is "
                "nothing for these processes to do."
            )
            raise OptionError(msg)
        if stages and self.python is not None:
            why = "whose functions run in daskprs's interpreter"
            raise self._not_with("python", stages[0], why)
        if self.rate_limit is not None and self.python is not None:
            why = "whose processes get no permits"
            raise self._not_with("rate_limit", Option("python", self.python), why)

    @property
    def limit_of_rate(self) -> RateLimit | None:
        """The limits of the endpoint; None: there are none."""
        return None if self.rate_limit is None else RateLimit(**self["rate_limit"])

    @property
    def stages(self) -> Stages | None:
        """The functions beside `run`; None: there are none."""
        before, after = (
            one if one is None or isinstance(one, str) else name_of(one)
            for one in (self.preprocess, self.postprocess)
        )
        if before is None and after is None:
            return None
        return Stages(before, after, self.preprocess_processes)

    def _take_output(self) -> None:
        """Set the options that `output` stands for; reject them beside it."""
        beside = [one for one in BESIDE_OUTPUT if self[one] != TABLE[one].default]
        if self.output is not None and beside:
            raise output_alone(self.output, *(Option(one, self[one]) for one in beside))
        for name, value in meant_by(self["output"]).items():
            object.__setattr__(self, name, value)

    def _check_output(self) -> None:
        """Reject options of the output that another one leaves without effect."""
        is_dataset = self.output_format != "text"
        changed = self.changed()
        of_rows = [name for name in ("output", *OF_ROWS) if self[name]]
        of_rows += ["output_format"] if is_dataset else []
        of_rows += ["on_error"] if self.on_error == "null" else []
        if of_rows and self.output_action == "summary_only":
            dropped = Option("output_action", "summary_only")
            raise self._not_with(of_rows[0], dropped, "which drops what run() returns")
        output = None if self.output is None else Option("output", self.output)
        for name in OF_TEXT if is_dataset else OF_DATASETS:
            if name in changed:
                why = "a data set has no such lines" if is_dataset else "text is one file of lines"
                form = output or Option("output_format", self.output_format)
                raise self._not_with(name, form, f"since {why}")
        for name in ("output_file_size", "output_partition_by"):
            if self.output_single_file and name in changed:
                one = output or Option("output_single_file", value=True)
                raise self._not_with(name, one, "which makes one file of all rows")

    @property
    def imported_once(self) -> tuple[str, ...]:
        """The packages of `preload`, if agents are forked; else none."""
        is_forked = self.start_method == "fork" and self.python is None
        return tuple(self.preload or ()) if is_forked else ()

    @property
    def finds_gpu_use(self) -> bool:
        """Whether the first mini-batch shows if the script uses GPUs: the user has not said it."""
        return self.gpus_per_process is None and self.process_count_per_node is None

    @property
    def output_folder(self) -> str | None:
        """The folder of `output`, or its URL; None without that option."""
        return None if self.output is None else split(self["output"])[0]

    @property
    def is_tabular(self) -> bool:
        """Whether text is a table, with a header, whatever `run` returns."""
        return self.output is not None and suffix_of(self["output"]) == TABULAR

    @property
    def output_name(self) -> str:
        """The name of the output in its folder; a data set has another default than text."""
        name, format_ = self.append_row_file_name, self.output_format
        if format_ != "text" and name == TABLE["append_row_file_name"].default:
            return f"{name.removesuffix('.txt')}.{format_}"
        return name

    def replace(self, **changes: Any) -> RunOptions:
        """Return the same options with some of them changed."""
        return RunOptions(**{**self, **changes})

    def keys(self) -> Iterator[str]:
        """Return the names of the options that are not at their defaults."""
        return iter(self.changed())

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option."""
        return getattr(self, name)

    def changed(self) -> dict[str, Any]:
        """Return the options that are not at their defaults, without what `output` stands for."""
        meant = meant_by(self["output"])
        return {
            name: self[name]
            for name, row in TABLE.items()
            if self[name] not in (row.default, None) and name not in meant
        }

    def with_secrets(self, environment: Mapping[str, str]) -> RunOptions:
        """Return the options with the values of `secrets` among the environment variables.

        They are those of `environment`, unless `environment_variables` has them.
        """
        if not self.secrets:
            return self
        given = {name: environment[name] for name in self.secrets if name in environment}
        known = {**given, **(self.environment_variables or {})}
        lacking = [name for name in self.secrets if name not in known]
        if lacking:
            msg = (
                f"{Option('secrets', tuple(lacking))}: the environment of this call has none. "
                f"Set it there, or give its value by {Option('environment_variables')}."
            )
            raise OptionError(msg)
        for name in self.secrets:
            refuse_short_secret(name, known[name])
        return self.replace(environment_variables=known)

    @property
    def mask(self) -> Mask:
        """Masks the secrets whose values are among the environment variables."""
        variables = self.environment_variables or {}
        return mask_of(*(variables[name] for name in self.secrets or () if name in variables))

    def of_results(self, digest: Digest = keyed_digest, unit: str = "row") -> dict[str, Any]:
        """Return, as JSON values, the options that change the results of an input of a unit.

        In place of values of environment variables there are digests. Another value of a secret
        makes no other rows.
        """
        values = {name: self[name] for name, row in TABLE.items() if row.changes_results}
        if self.mini_batch_size is not None:
            values["mini_batch_size"] = (
                size_in_one_form(self.mini_batch_size, unit)
                if self.mini_batch_cost is None
                else size_in_costs(self.mini_batch_size)
            )
        if self.output is not None:  # a resume may write to another folder
            name = TABLE["append_row_file_name"].default
            values |= {"output": self.output_name, "append_row_file_name": name}
        digests = variable_digests(self._not_secret(self.environment_variables), digest)
        json_values = {name: _json(value) for name, value in values.items()}
        return {**json_values, "environment_variables": digests or None}

    def comparable(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recorded options of an earlier run, without values of secrets."""
        kept = self._not_secret(before.get("environment_variables"))
        return {**before, "environment_variables": kept or None}

    def _not_secret(self, variables: Mapping[str, Any] | None) -> dict[str, Any]:
        secrets = self.secrets or ()
        return {name: one for name, one in (variables or {}).items() if name not in secrets}

    def limits(self) -> Limits:
        """Return the limits of the job."""
        run, load = float(self.run_invocation_timeout), float(self.task_overhead_timeout)
        init = INIT_S if self.init_timeout is None else float(self.init_timeout)
        idle = min(init, float(self.init_idle_timeout))
        stall, wait = self.progress_update_timeout, self.no_workers_timeout
        work = 2 * (load + run)
        memory = self.agent_memory_limit
        return Limits(
            run_max_try=self.run_max_try,
            retry_delay_s=None if self.retry_delay == EXPONENTIAL else float(self.retry_delay),
            error_threshold=self.error_threshold,
            allowed_failed_count=-1 if self.on_error == "drop" else self.allowed_failed_count,
            allowed_failed_percent=self.allowed_failed_percent,
            max_node_losses=self.max_node_losses,
            fail_on_timeout=self.fail_on_timeout,
            isolates=self.on_error in ("isolate", "null"),
            independent_rows=self.independent_rows,
            gpus_per_process=1 if self.gpus_per_process is None else self.gpus_per_process,
            finds_gpu_use=self.finds_gpu_use,
            run_timeout_s=run,
            load_timeout_s=load,
            init_timeout_s=init,
            init_idle_timeout_s=idle,
            shutdown_timeout_s=float(self.shutdown_timeout),
            first_task_creation_timeout_s=float(self.first_task_creation_timeout),
            progress_update_timeout_s=work + idle if stall is None else float(stall),
            first_progress_timeout_s=work + init if stall is None else float(stall),
            no_workers_timeout_s=None if wait is None else float(wait),
            agent_memory_bytes=None
            if memory is None
            else parse_bytes(memory, "agent_memory_limit"),
            agent_max_mini_batches=self.agent_max_mini_batches,
            usage_limits=tuple((self.usage_limits or {}).items()),
        )

    def reading(self) -> ReadOptions:
        """Return how the input is read and cut."""
        values = {name: self[name] for name, row in TABLE.items() if row.group == INPUT}
        empty: dict[str, Any] = {"partition_keys": (), "dtypes": {}, "csv_options": {}}
        filled = {name: values[name] or empty[name] for name in empty}
        return ReadOptions(**{**values, **filled}, store_requests=self.store_requests)


def refuse_short_secret(name: str, value: str) -> None:
    """Refuse a secret whose value is so short that it would be masked in other words."""
    if len(value) < SHORTEST_SECRET:
        msg = (
            f"{Option('secrets', (name,))}: its value has {len(value)} characters, and so short a "
            f"text would be masked wherever it stands in the logs. Use one of {SHORTEST_SECRET} or "
            f"more, or leave it to {Option('environment_variables')}, which masks nothing."
        )
        raise OptionError(msg)


def variable_digests(variables: Mapping[str, Any], digest: Digest = keyed_digest) -> dict[str, Any]:
    """Return environment variables with digests in place of their values, in order of names.

    A digest stays, and so does the value of a variable that is a place.
    """
    return {
        name: one if is_place(name) or isinstance(one, list) else digest(f"{name}={one}")
        for name, one in sorted(variables.items())
    }


def is_place(name: str) -> bool:
    """Say whether the value of an environment variable is a place, and no secret."""
    if name in OF_DASKPRS:
        return True
    patterns = (plugin.place_variables for plugin in _plugins.own())
    return any(pattern and re.fullmatch(pattern, name) for pattern in patterns)


def _json(value: Any) -> Any:
    """Return a value in the standard form that is compared between runs."""
    if isinstance(value, Mapping):
        return {name: str(value[name]) for name in sorted(value)}
    if callable(value):
        return name_of(value)
    return list(value) if isinstance(value, tuple) else value


def _table() -> dict[str, OptionRow]:
    hints, table = get_type_hints(RunOptions), {}
    for field in dataclasses.fields(RunOptions):
        row: OptionRow = field.metadata["row"]
        types = _members(hints[field.name])
        rule = optional(row.rule) if NoneType in types else row.rule
        table[field.name] = row._replace(rule=rule, default=field.default, types=types)
    return table


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or a type alone."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


TABLE = _table()
"""All options by name: checks, command line and documentation come from these rows."""
