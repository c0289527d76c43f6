"""The options as arguments of a call: their types, and those that a call names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, time, timedelta
    from os import PathLike

    from daskprs._core.rate_limit import RateLimit
    from daskprs._inputs.source.read_options import BatchFormat, Header, InputType
    from daskprs._output.spec import OutputFormat

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Default:
    """The default of an option in a signature: a call that has it does not name the option.

    A number alone would not do. The site's config counts for an option that a call leaves out, but
    not for one that a call sets to the default of the table.
    """

    value: Any

    def __repr__(self) -> str:
        """Return the default as the signature shows it."""
        return f"default({self.value!r})"


def default(value: T) -> T:
    """Return the default of an option that Dask's config may replace."""
    return cast("T", Default(value))


def named(**options: Any) -> dict[str, Any]:
    """Return the options that a call names."""
    return {name: value for name, value in options.items() if not isinstance(value, Default)}


class NoOtherOptions(TypedDict):
    """The options of a call beside its parameters: an empty set.

    ``**unknown: Unpack[NoOtherOptions]`` lets type checkers find a misspelt option, while the call
    itself receives the name and answers with the nearest known one.
    """


class _RareOptions(TypedDict, total=False):
    """The options behind `more` that a job behind a lazy collection has, too."""

    python: str | PathLike[str] | None
    secrets: Sequence[str] | None
    logging_level: str
    input_type: InputType
    mini_batch_cost: str | Callable[..., Any] | None
    partition_format: str | None
    delimiter: str | None
    header: Header | None
    encoding: str
    support_multi_line: bool
    csv_options: Mapping[str, Any] | None
    include_path_column: bool
    node_count: int | None
    preload: Sequence[str] | None
    agent_memory_limit: int | str | None
    agent_max_mini_batches: int | None
    preprocess: str | Callable[..., Any] | None
    postprocess: str | Callable[..., Any] | None
    preprocess_processes: int | None
    concurrency_per_process: int | None
    rate_limit: Mapping[str, Any] | RateLimit | None
    store_requests: int
    retry_delay: float | str
    independent_rows: bool
    allowed_failed_percent: float
    error_threshold: int
    max_node_losses: int
    fail_on_timeout: bool
    task_overhead_timeout: float | str
    init_timeout: float | str | None
    init_idle_timeout: float | str
    shutdown_timeout: float | str
    first_task_creation_timeout: float | str
    progress_update_timeout: float | str | None
    no_workers_timeout: float | str | None
    retain: Literal["results", "all"]
    usage_limits: Mapping[str, float] | None
    resource_monitor_interval: float | str
    profiling_module: Literal["cProfile", "profile"] | None
    metrics_file: str | PathLike[str] | None
    shared: bool
    report: Literal["auto", "always", "never"]


class MoreOptions(_RareOptions, total=False):
    """The options of a job that the signature of `parallel_run` does not spell out.

    ``help(daskprs.RunOptions)`` describes all but one, which only a detached job has.

    Parameters
    ----------
    survive
        With `detach`: if the worker that runs the driver dies, the driver moves to another worker.
        So a job folder that only one worker can see is refused. False accepts such a folder.
        Default: True.

    """

    meta: Mapping[str, Any] | Any | None
    on_error: Literal["raise", "drop", "isolate", "null"]
    output_action: Literal["append_row", "summary_only"]
    output_format: OutputFormat
    append_row_file_name: str
    append_row_dataframe_header: bool
    append_row_dataframe_sep: str
    output_file_size: int | str
    output_partition_by: Sequence[str] | str | None
    output_single_file: bool
    keep_rows: bool
    deadline: str | float | timedelta | time | datetime | None
    accept_changes: Sequence[str]
    trust: bool
    survive: bool


class LazyOptions(_RareOptions, total=False):
    """The options that `map_batches` takes beside its own parameters."""

    source_directory: str | PathLike[str] | None
    arguments: Sequence[str]
    environment_variables: Mapping[str, str] | None
    side_inputs: Mapping[str, str | PathLike[str]] | None
    batch_format: BatchFormat
    mini_batch_size: float | str | None
    partition_keys: Sequence[str | int] | str | None
    columns: Sequence[str | int] | None
    dtypes: Mapping[str, Any] | None
    process_count_per_node: int | None
    gpus_per_process: float | None
    start_method: Literal["fork", "spawn", "inline"]
    run_max_try: int
    allowed_failed_count: int
    run_invocation_timeout: float | str
    include_columns: Sequence[str] | None
    show_output: bool
