"""The options of a job: every name, default and rule."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from daskprs.core.limits import Limits
from daskprs.errors import Option, OptionError
from daskprs.inputs.source.read_options import ReadOptions
from daskprs.inputs.source.sizes import parse_bytes
from daskprs.options.rules import RULES

if TYPE_CHECKING:
    from os import PathLike

OF_AZURE = {
    "mini_batch_error_threshold": "allowed_failed_count",
    "max_concurrency_per_instance": "process_count_per_node",
    "instance_count": "node_count",
    "max_retries": "run_max_try (tries, one more than retries)",
    "timeout": "run_invocation_timeout",
    "output_file_name": "append_row_file_name",
    "program_arguments": "arguments",
}
"""What the YAML files call options: near in spelling may be far in meaning."""
NEVER_IN_RESULTS = {
    "node_count",
    "process_count_per_node",
    "gpus_per_process",
    "start_method",
    "error_threshold",
    "allowed_failed_count",
    "allowed_failed_percent",
    "run_invocation_timeout",
    "run_max_try",
    "task_overhead_timeout",
    "first_task_creation_timeout",
    "progress_update_timeout",
    "init_timeout",
    "shutdown_timeout",
    "no_workers_timeout",
    "agent_memory_limit",
    "max_node_losses",
    "fail_on_timeout",
    "logging_level",
    "source_directory",
    "side_inputs",
    "overwrite",
    "resume",
    "accept_changes",
    "progress",
}
"""Options that change how a job runs, not what comes out: a resume may change them."""


class NoOtherOptions(TypedDict):
    """The options of a call beside its parameters: there are none.

    ``**unknown: Unpack[NoOtherOptions]`` lets type checkers find a misspelt option, while the call
    itself receives the name and answers with the nearest known one.
    """


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All options of `daskprs.parallel_run`, checked, for use more than once.

    It is a mapping, so that ``parallel_run(data, script, **options)`` takes it, and
    ``RunOptions(**options, run_max_try=1)`` or `replace` changes it. Names, meanings and defaults
    are those of `daskprs.parallel_run`.

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

    source_directory: str | PathLike[str] | None = None
    arguments: Sequence[str] = ()
    environment_variables: Mapping[str, str] | None = None
    side_inputs: Mapping[str, str | PathLike[str]] | None = None
    logging_level: str = "INFO"
    input_type: Literal["auto", "files", "table"] = "auto"
    mini_batch_size: int | str | None = None
    partition_keys: Sequence[str] | str | None = None
    partition_format: str | None = None
    columns: Sequence[str] | None = None
    dtypes: Mapping[str, Any] | None = None
    delimiter: str | None = None
    header: (
        Literal[
            "all_files_same_headers", "all_files_different_headers", "from_first_file", "no_header"
        ]
        | None
    ) = None
    encoding: str = "utf-8"
    support_multi_line: bool = True
    include_path_column: bool = False
    node_count: int | None = None
    process_count_per_node: int | None = None
    gpus_per_process: float = 1
    start_method: Literal["fork", "spawn"] = "fork"
    error_threshold: int = -1
    allowed_failed_count: int = 0
    allowed_failed_percent: float = 100
    run_invocation_timeout: float = 60
    run_max_try: int = 3
    task_overhead_timeout: float = 600
    first_task_creation_timeout: float = 600
    progress_update_timeout: float | None = None
    init_timeout: float | None = None
    shutdown_timeout: float = 30
    no_workers_timeout: float | None = None
    agent_memory_limit: int | str | None = None
    max_node_losses: int = 3
    fail_on_timeout: bool = False
    output_action: Literal["append_row", "summary_only"] = "append_row"
    append_row_file_name: str = "parallel_run_step.txt"
    append_row_dataframe_header: bool = False
    append_row_dataframe_sep: str = " "
    keep_rows: bool = False
    overwrite: bool = False
    resume: bool | Literal["extend", "failed"] = False
    accept_changes: Sequence[str] = ()
    progress: bool | None = None

    def __post_init__(self) -> None:
        """Check every value, and bring names and lists into one form."""
        for name, rule in RULES.items():
            object.__setattr__(self, name, rule(name, getattr(self, name)))
        if self.partition_keys and self.mini_batch_size is not None:
            raise OptionError(
                Option("mini_batch_size", self.mini_batch_size),
                ": not with ",
                Option("partition_keys"),
                ", which make one mini-batch for each combination of values.",
            )
        if self.keep_rows and self.output_action == "summary_only":
            raise OptionError(
                Option("keep_rows", value=True),
                ": not with ",
                Option("output_action", "summary_only"),
                ", which drops what run() returns.",
            )

        if self.accept_changes and not self.resume:
            raise OptionError(
                Option("accept_changes", self.accept_changes),
                ": only with ",
                Option("resume", value=True),
                ": a new job has nothing to keep.",
            )

    @classmethod
    def from_names(cls, **given: Any) -> RunOptions:
        """Return options by name; an unknown name is an error with the nearest known one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                near = [OF_AZURE[name]] if name in OF_AZURE else []
                near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" Did you mean {near[0]}?" if near else ""
                msg = f"{name}: there is no such option.{hint}"
                raise OptionError(msg)
        return cls(**given)

    def replace(self, **changes: Any) -> RunOptions:
        """Return the same options with some of them changed."""
        return self.from_names(**{**self, **changes})

    def keys(self) -> Iterator[str]:
        """Return the names of all options."""
        return (field.name for field in dataclasses.fields(self))

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option."""
        return getattr(self, name)

    def changed(self) -> dict[str, Any]:
        """Return the options that are not at their defaults."""
        fields = dataclasses.fields(self)
        return {
            field.name: value
            for field in fields
            if (value := getattr(self, field.name)) not in (field.default, None)
        }

    def of_results(self) -> dict[str, Any]:
        """Return, as JSON values, the options that change what comes out."""
        values = {name: self[name] for name in self.keys() if name not in NEVER_IN_RESULTS}
        if self.mini_batch_size is not None:
            values["mini_batch_size"] = parse_bytes(self.mini_batch_size, "mini_batch_size")
        return {name: _json(value) for name, value in values.items()}

    def limits(self) -> Limits:
        """Return what the job may spend."""
        run, load = float(self.run_invocation_timeout), float(self.task_overhead_timeout)
        init = 3 * run + 30 if self.init_timeout is None else self.init_timeout
        stall = self.progress_update_timeout
        memory = self.agent_memory_limit
        return Limits(
            run_max_try=self.run_max_try,
            error_threshold=self.error_threshold,
            allowed_failed_count=self.allowed_failed_count,
            allowed_failed_percent=self.allowed_failed_percent,
            max_node_losses=self.max_node_losses,
            fail_on_timeout=self.fail_on_timeout,
            gpus_per_process=self.gpus_per_process,
            run_timeout_s=run,
            load_timeout_s=load,
            init_timeout_s=init,
            shutdown_timeout_s=self.shutdown_timeout,
            first_task_creation_timeout_s=self.first_task_creation_timeout,
            progress_update_timeout_s=2 * (load + run) + init if stall is None else stall,
            no_workers_timeout_s=self.no_workers_timeout,
            agent_memory_bytes=None
            if memory is None
            else parse_bytes(memory, "agent_memory_limit"),
        )

    def reading(self) -> ReadOptions:
        """Return how the input is read and cut."""
        return ReadOptions(
            input_type=self.input_type,
            mini_batch_size=self.mini_batch_size,
            partition_keys=tuple(self.partition_keys or ()),
            partition_format=self.partition_format,
            columns=None if self.columns is None else tuple(self.columns),
            dtypes=self.dtypes or {},
            include_path_column=self.include_path_column,
            delimiter=self.delimiter,
            header=self.header,
            encoding=self.encoding,
            support_multi_line=self.support_multi_line,
        )


def _json(value: Any) -> Any:
    """Return a value in the one form in which it is compared from run to run."""
    if isinstance(value, Mapping):
        return {name: str(value[name]) for name in sorted(value)}
    return list(value) if isinstance(value, tuple) else value
