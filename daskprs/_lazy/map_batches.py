"""`map_batches`: from a collection and a script to a lazy Dask collection."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import dask.bag as db
import dask.dataframe as dd
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from daskprs._agent.script.checked_interpreter import check_interpreter
from daskprs._agent.script.checked_preload import check_preload
from daskprs._agent.script.plugin_stand_ins import plugin_stand_ins
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.rows_seal import key_for, variables_key_for
from daskprs._inputs.source.included import included_columns
from daskprs._job.inline_call import refuse_inline
from daskprs._job.request import absolute_paths, script_of
from daskprs._lazy.committed_job import JobCall, read_part, run_job
from daskprs._lazy.committed_parts import NAME, frame_of_parts
from daskprs._lazy.lazy_call import LazyCall, OnError
from daskprs._lazy.lazy_input import holds_delayed, partition_count, partitions_of
from daskprs._lazy.partition_run import run_numbered, run_partition
from daskprs._lazy.result_form import ResultForm, schema_of_meta
from daskprs._options.rules import check_job_dir, check_one_of
from daskprs._options.run_options import OUTPUT, TABLE, RunOptions
from daskprs._options.site_defaults import default_job_dir, site_defaults
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    import pandas as pd

    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._lazy.lazy_input import InputPartitions
    from daskprs._options.arguments import LazyOptions

IN_TASKS = sorted(name for name, row in TABLE.items() if row.is_of_task)
"""The options that have a meaning where partitions run in tasks of Dask."""
NOT_OF_TASKS = {
    "columns": "Take the columns of the data: data[[…]]",
    "partition_keys": "The rows of a key may lie in several partitions, and a job brings them "
    "together: leave out committed=False, or shuffle the data by the keys first",
    "side_inputs": "Only a job sends files to its workers: leave out committed=False, or put them "
    "where all workers see them, and give their paths by arguments",
}
"""The next steps for some of the options that do not apply to tasks."""
NOT_OF_JOBS = {
    **dict.fromkeys(
        (name for name, row in TABLE.items() if row.group == OUTPUT and not row.is_of_task),
        "whose rows Dask writes, such as by to_parquet()",
    ),
    **dict.fromkeys(("resume", "trust"), "which resumes its job by itself"),
    "accept_changes": "whose rows are those of one script and one set of options",
    "progress": "whose progress Dask shows",
    "deadline": "whose job runs as long as the computation that needs it",
}
"""The options that a job behind a collection does not have, and why."""


def map_batches(
    data: Any,
    script: str | PathLike[str] | Callable[..., Any] | Any,
    *,
    schema: Any = None,
    meta: Mapping[str, Any] | Any | None = None,
    collection: Literal["dataframe", "bag"] = "dataframe",
    committed: bool = True,
    on_error: OnError = "raise",
    job_dir: str | PathLike[str] | None = None,
    **options: Unpack[LazyOptions],
) -> Any:
    """Return a lazy Dask collection of the rows that an entry script returns for mini-batches.

    Nothing runs before Dask computes the collection. There are two forms.

    ``committed=True``: one job runs behind the collection, with the first partition that Dask
    computes, and its partitions are the committed rows of that job. Another computation of the
    collection, by any client, reads these rows and calls no `run`. Another call runs another job,
    unless it has the same `job_dir`. ``head()`` runs the whole job.

    ``committed=False``: each partition runs in an agent process within a task of Dask, on the
    worker that has the partition. Timeouts, kills and retries are those of a job, and agents end a
    minute after their last task. Dask runs a partition again if its worker is lost.

    Parameters
    ----------
    data
        A dask DataFrame, Series, Bag or Array, a list of Delayed objects or futures, or a frame of
        pandas, polars or pyarrow. With ``committed=True`` also the paths that `parallel_run` takes.
    script
        The entry script, as `parallel_run` takes it.
    schema
        The columns of the result and their types, as `parallel_run` takes them: an Arrow schema,
        types by column name, or a frame without rows. Needed for a DataFrame.
    meta
        The same in Dask's form, as ``map_partitions`` takes it: a frame, or names with types, where
        ``object`` means text. Text is announced, and comes, in the type of its pandas: ``str``, or
        ``object`` before pandas 3. For Delayed objects and futures, it is about their frames, as
        for ``from_delayed``, and `schema` is about the result.
    collection
        ``"dataframe"``, or ``"bag"``: of the elements of lists and arrays, and of rows of frames as
        dicts.
    committed
        Whether a job keeps the rows.
    on_error
        ``"raise"``: a mini-batch that fails in all its tries fails the computation. ``"drop"``: its
        rows are left out, with a warning in the log. ``"isolate"``, with ``committed=True``: only
        those of its rows are left out that fail by themselves, as `parallel_run` does it. There is
        no ``"null"``.
    job_dir
        With ``committed=True``, the job folder, which all workers must see. Default: a new folder
        for each call, ``./daskprs-jobs/<script>-<time>-<id>``. If an earlier call with the same
        data, script and options has made rows in the folder, these rows are used, with a warning.
    **options
        Options of `parallel_run`. With ``committed=False`` those of the script, the agents, tries
        and timeouts.

    Returns
    -------
    dask.dataframe.DataFrame or dask.bag.Bag
        The partitions are those of a collection; a frame and paths are cut anew. The index of each
        partition of a DataFrame counts from 0.

    Raises
    ------
    UsageError
        Something given to the call cannot be used.

    """
    if str(on_error) == "null":
        msg = (
            f"{Option('on_error', on_error)}: not for a lazy collection. Leave bad rows out by "
            f"{Option('on_error', 'isolate')}, or call parallel_run, which puts rows of nulls in "
            "their place."
        )
        raise OptionError(msg)
    check_one_of(*get_args(OnError))("on_error", on_error)
    given: dict[str, Any] = {**options} if schema is None else {**options, "schema": schema}
    if meta is not None and holds_delayed(data):
        given["meta"] = meta
    elif meta is not None:
        given["schema"] = schema_of_meta(meta, schema, collection)
    if committed:
        return _of_a_job(data, script, collection, on_error, job_dir, given)
    if job_dir is not None:
        msg = f"{Option('job_dir', str(job_dir))}: not with committed=False, which keeps no rows."
        raise OptionError(msg)
    if on_error == "isolate":
        msg = f"{Option('on_error', on_error)}: not with committed=False, which keeps no record."
        raise OptionError(msg)
    return _in_tasks(data, script, collection, on_error, given)


def _checked_script(data: Any, script: Any, options: RunOptions) -> CheckedScript:
    checked = script_of(data, script, options)
    check_preload(options.imported_once, checked.root, elsewhere=True)
    checked.look(exclude=())
    return checked


# ---- by a job ----


def _of_a_job(
    data: Any,
    script: Any,
    collection: str,
    on_error: OnError,
    job_dir: str | PathLike[str] | None,
    given: Mapping[str, Any],
) -> Any:
    """Return a collection of the rows that one job commits."""
    options = _options_of_job(given, on_error).with_secrets(os.environ)
    result = ResultForm.of(options["schema"], collection)
    checked = _checked_script(data, script, options)
    data = absolute_paths(data) or data
    check_job_dir(job_dir)
    count, has_partitions, of_data = partition_count(data, options)
    token = tokenize(checked.fingerprint(), options.of_results(), of_data, result)
    call_id = secrets.token_hex(8)
    folder = job_dir or default_job_dir(checked.name, call_id)
    call = JobCall(
        token,
        call_id,
        data,
        checked,
        checked.packed(),
        options,
        str(JobFolder(folder)),
        count,
        has_partitions=has_partitions and not options.partition_keys,
        key=variables_key_for(token) if options.environment_variables else None,
        rows_key=key_for(token),
    )
    # Each call has a key of its own: a token names data by its path, which may have other rows now.
    key = f"{NAME}-job-{call_id}"
    job = Delayed(key, {key: Task(key, run_job, call)})
    return _parts(job, result, count)


def _parts(job: Delayed, result: ResultForm, count: int) -> Any:
    """Return a collection whose tasks read the rows of a job."""
    if result.meta is not None:
        return frame_of_parts(job, result, count)
    name = f"{NAME}-{tokenize(job.key, count)}"
    layer = {
        (name, number): Task((name, number), read_part, TaskRef(job.key), result, number)
        for number in range(count)
    }
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[job])
    return db.Bag(graph, name, count)


def _options_of_job(given: Mapping[str, Any], on_error: OnError) -> RunOptions:
    """Return the options of a job; some are the collection's own business."""
    for name, value in given.items():
        if name in TABLE and name in NOT_OF_JOBS:
            msg = f"{Option(name, value)}: not for a lazy collection, {NOT_OF_JOBS[name]}."
            raise OptionError(msg)
    if on_error != "raise":
        given = {**given, "on_error": on_error}
    apart = {*NOT_OF_JOBS, "allowed_failed_count"} if on_error == "drop" else NOT_OF_JOBS
    of_site = {name: value for name, value in site_defaults().items() if name not in apart}
    return _in_processes({**of_site, **given})


# ---- within tasks of Dask ----


def _in_tasks(
    data: Any, script: Any, collection: str, on_error: OnError, given: Mapping[str, Any]
) -> Any:
    """Return a collection whose partitions run in tasks of their own."""
    options = _options_in_tasks(given).with_secrets(os.environ)
    result = ResultForm.of(options["schema"], collection)
    checked = _checked_script(data, script, options)
    parts = partitions_of(data, options)
    check_interpreter(options, checked, parts.unit, may_be_elsewhere=True)
    source: Any = parts  # it knows of its columns what a source does
    included = included_columns(source, options.include_columns)
    form = [getattr(parts.form, name) for name in ("kind", "size", "meta", "batch_format")]
    digests = options.of_results()["environment_variables"]
    changed = options.changed() | {"environment_variables": digests}
    token = tokenize(checked.fingerprint(), changed, form, result, on_error)
    call = LazyCall(
        token,
        checked,
        checked.packed(),
        options,
        parts.form,
        parts.unit,
        included,
        result,
        on_error,
        plugin_stand_ins(elsewhere=options.python is not None),
    )
    key = f"{NAME}-call-{token}"
    needed = Delayed(key, {key: call})
    if isinstance(parts.collection, dd.DataFrame) and result.meta is not None:
        return parts.collection.map_partitions(
            run_numbered,
            needed,
            meta=result.meta,
            enforce_metadata=False,
            clear_divisions=True,
            token=NAME,
        )
    return _collection(parts, needed, result.meta)


def _options_in_tasks(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a call, with the site's defaults of those that have a meaning."""
    for name, value in given.items():
        if name in TABLE and name not in IN_TASKS:
            instead = NOT_OF_TASKS.get(name, f"These have a meaning: {', '.join(IN_TASKS)}")
            msg = (
                f"{Option(name, value)}: not with committed=False, where Dask runs each partition "
                f"in a task of its own. {instead}."
            )
            raise OptionError(msg)
    of_site = {name: value for name, value in site_defaults().items() if name in IN_TASKS}
    return _in_processes({**of_site, **given})


def _collection(parts: InputPartitions, call: Delayed, meta: pd.DataFrame | None) -> Any:
    """Return a collection with a task for each partition: a DataFrame, or without `meta` a Bag."""
    keys = parts.keys
    name = f"{NAME}-{tokenize(keys, call.key)}"
    layer = {
        (name, number): Task((name, number), run_partition, TaskRef(key), TaskRef(call.key), number)
        for number, key in enumerate(keys)
    }
    collections = parts.collection if isinstance(parts.collection, list) else [parts.collection]
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[*collections, call])
    if meta is None:
        return db.Bag(graph, name, len(keys))
    divisions = (None,) * (len(keys) + 1)
    return dd.from_graph(graph.to_dict(), meta, divisions, list(layer), NAME)


def _in_processes(names: Mapping[str, Any]) -> RunOptions:
    """Return options; a script runs in a process of its own, not in the thread of a Dask task."""
    options = RunOptions(**names)
    refuse_inline(options, "which the tasks of Dask share. Call parallel_run")
    return options
