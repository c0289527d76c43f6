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
from daskprs.options.option import (
    FAILURES,
    INPUT,
    OUTPUT,
    PROCESSES,
    SCRIPT,
    THE_JOB,
    TIMES,
    option,
    table_of,
)
from daskprs.options.rules import (
    HEADERS,
    LEVELS,
    check_encoding,
    check_file_name,
    check_gpus,
    check_number,
    check_one_of,
    check_parts,
    check_path,
    check_percent,
    check_seconds,
    check_separator,
    check_size,
    check_text,
    named_paths,
    names,
    strings,
    types_of_columns,
    variables,
)

if TYPE_CHECKING:
    from os import PathLike

AZURE_ALIASES = {
    "mini_batch_error_threshold": "allowed_failed_count",
    "max_concurrency_per_instance": "process_count_per_node",
    "instance_count": "node_count",
    "max_retries": "run_max_try (tries, one more than retries)",
    "timeout": "run_invocation_timeout",
    "output_file_name": "append_row_file_name",
    "program_arguments": "arguments",
}
"""Option names of the YAML files: a name similar in spelling may differ in meaning."""


class NoOtherOptions(TypedDict):
    """The options of a call beside its parameters: an empty set.

    ``**unknown: Unpack[NoOtherOptions]`` lets type checkers find a misspelt option, while the call
    itself receives the name and answers with the nearest known one.
    """


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All options of `daskprs.parallel_run`, checked, for use more than once.

    It is a mapping, so that ``parallel_run(data, script, **options)`` takes it, and
    ``RunOptions(**options, run_max_try=1)`` or `replace` changes it. Names, meanings and defaults
    are those of `daskprs.parallel_run`.

    Its fields are the table of options: checks, the command line, the reference and `plan` come
    from it. A new option is a row here, a parameter of `daskprs.parallel_run`, and what uses it.

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
        None,
        check_path,
        SCRIPT,
        "The folder that the script imports from. A snapshot of it goes to the agents.",
        shown="the script's folder",
        changes_results=False,
    )
    arguments: Sequence[str] = option(
        (),
        strings,
        SCRIPT,
        "What the script finds in `sys.argv` after the system's own flags.",
        is_generated=False,
    )
    environment_variables: Mapping[str, str] | None = option(
        None,
        variables,
        SCRIPT,
        "Set in the agents before their first import. Thread counts (`OMP_NUM_THREADS` and the "
        "like) follow the agent's share of the cores unless they are set here.",
        flag="environment_variable",
        is_generated=False,
    )
    side_inputs: Mapping[str, str | PathLike[str]] | None = option(
        None,
        named_paths,
        SCRIPT,
        "Files and folders that the script reads besides, by name, such as a model. A node that "
        "does not see one gets a copy. The script finds it by `EntryScript().side_inputs[NAME]`.",
        flag="side_input",
        is_generated=False,
        changes_results=False,
    )
    logging_level: str = option(
        "INFO",
        check_one_of(*LEVELS, any_case=True),
        SCRIPT,
        "Level of the root logger in the agents.",
        changes_results=False,
    )
    input_type: Literal["auto", "files", "table"] = option(
        "auto",
        check_one_of("auto", "files", "table"),
        INPUT,
        '`"table"`, `"files"`, or `"auto"`: a table if all paths have one table suffix, files if '
        "none has, and an error for a mixture.",
    )
    mini_batch_size: int | str | None = option(
        None,
        check_size,
        INPUT,
        'Bytes for tables, with or without a unit of 1024 (`"10 MB"`); a count for files.',
        shown="1 MB, or 10 files",
    )
    partition_keys: Sequence[str] | str | None = option(
        None,
        names,
        INPUT,
        "Names of columns: one mini-batch for each existing combination of their values, with all "
        "its rows in input order. For files, names of `partition_format`. Not together with "
        "`mini_batch_size`.",
    )
    partition_format: str | None = option(
        None,
        check_text,
        INPUT,
        'How paths carry values, as in `"{user}/{season}/{genre}.wav"`. The values become '
        "columns, appended last.",
    )
    columns: Sequence[str] | None = option(
        None,
        names,
        INPUT,
        "The columns to read, in this order.",
        shown="all",
    )
    dtypes: Mapping[str, Any] | None = option(
        None,
        types_of_columns,
        INPUT,
        "Types of columns, by name. Tables other than text have types of their own.",
        flag="dtype",
        shown="types of text are fixed by samples before the start",
        is_generated=False,
    )
    delimiter: str | None = option(
        None,
        check_separator,
        INPUT,
        "The character between the fields of delimited text.",
        shown="a tab for `.tsv`, else a comma",
    )
    header: (
        Literal[
            "all_files_same_headers", "all_files_different_headers", "from_first_file", "no_header"
        ]
        | None
    ) = option(
        None,
        check_one_of(*HEADERS, None),
        INPUT,
        "Which files have a header line. `all_files_different_headers` puts columns together by "
        "name.",
        shown="all_files_same_headers",
    )
    encoding: str = option("utf-8", check_encoding, INPUT, "The encoding of text input.")
    support_multi_line: bool = option(
        True,
        check_one_of(True, False),
        INPUT,
        "Whether a quoted field may contain line breaks.",
    )
    include_path_column: bool = option(
        False,
        check_one_of(True, False),
        INPUT,
        "Add the path of each row's file as the column `Path`.",
    )
    node_count: int | None = option(
        None,
        check_number(1, optional=True),
        PROCESSES,
        "How many nodes to use.",
        shown="all of the cluster",
        changes_results=False,
    )
    process_count_per_node: int | None = option(
        None,
        check_number(1, optional=True),
        PROCESSES,
        "Agent processes on each node.",
        shown="the threads that its Dask workers declare; in-process the usable cores, by affinity "
        "and cgroup; on a GPU node 1",
        changes_results=False,
    )
    gpus_per_process: float = option(
        1,
        check_gpus,
        PROCESSES,
        "GPUs of each agent process: a whole number, or a part such as 0.5, so that two share one. "
        "0 hides them. It has no effect on nodes without GPUs.",
        changes_results=False,
    )
    start_method: Literal["fork", "spawn"] = option(
        "fork",
        check_one_of("fork", "spawn"),
        PROCESSES,
        '`"fork"`: agents are forked from a process that has imported pandas and pyarrow once. '
        '`"spawn"`: each agent is a fresh interpreter, for libraries that do not survive a fork.',
        changes_results=False,
    )
    agent_memory_limit: int | str | None = option(
        None,
        check_size,
        PROCESSES,
        'Bytes, or with a unit as in `"2 GB"`. An agent that holds more, its sub-processes '
        "included, is killed.",
        shown="none",
        changes_results=False,
    )
    run_max_try: int = option(
        3, check_number(1), FAILURES, "Attempts at one mini-batch.", changes_results=False
    )
    allowed_failed_count: int = option(
        0,
        check_number(-1),
        FAILURES,
        "The job fails when more mini-batches than this have failed; -1: never for that.",
        changes_results=False,
    )
    allowed_failed_percent: float = option(
        100,
        check_percent,
        FAILURES,
        "The same in percent of all mini-batches, judged once each of them has been tried.",
        changes_results=False,
    )
    error_threshold: int = option(
        -1,
        check_number(-1),
        FAILURES,
        "The job fails when more items than this have failed; -1: never for that.",
        changes_results=False,
    )
    max_node_losses: int = option(
        3,
        check_number(1),
        FAILURES,
        "A mini-batch fails when it was running on this many lost workers: it may be the cause.",
        changes_results=False,
    )
    fail_on_timeout: bool = option(
        False,
        check_one_of(True, False),
        FAILURES,
        "A mini-batch that runs out of time in each of its attempts fails the job, whatever the "
        "thresholds say.",
        changes_results=False,
    )
    run_invocation_timeout: float = option(
        60,
        check_seconds(),
        TIMES,
        "Seconds for one call of `run`, iterating its result included. Then the agent is killed, "
        "and the attempt has failed.",
        changes_results=False,
    )
    task_overhead_timeout: float = option(
        600, check_seconds(), TIMES, "Seconds for loading one mini-batch.", changes_results=False
    )
    init_timeout: float | None = option(
        None,
        check_seconds(optional=True),
        TIMES,
        "Seconds for importing the script and `init()`.",
        shown="3 × `run_invocation_timeout` + 30",
        changes_results=False,
    )
    shutdown_timeout: float = option(
        30, check_seconds(), TIMES, "Seconds for `shutdown()`.", changes_results=False
    )
    first_task_creation_timeout: float = option(
        600,
        check_seconds(),
        TIMES,
        "Seconds within which the input must give its first mini-batch.",
        changes_results=False,
    )
    progress_update_timeout: float | None = option(
        None,
        check_seconds(optional=True),
        TIMES,
        "The job fails when no mini-batch was settled for this many seconds. Time without workers "
        "does not count.",
        shown="2 × (`task_overhead_timeout` + `run_invocation_timeout`) + `init_timeout`",
        changes_results=False,
    )
    no_workers_timeout: float | None = option(
        None,
        check_seconds(optional=True),
        TIMES,
        "Seconds to wait for workers.",
        shown="for ever; progress says that the job waits",
        changes_results=False,
    )
    output_action: Literal["append_row", "summary_only"] = option(
        "append_row",
        check_one_of("append_row", "summary_only"),
        OUTPUT,
        '`"append_row"`: what `run` returns is output. `"summary_only"`: it is counted and '
        "dropped, and the script writes files of its own.",
    )
    append_row_file_name: str = option(
        "parallel_run_step.txt",
        check_file_name,
        OUTPUT,
        "Name of the output file in `output_dir`.",
    )
    append_row_dataframe_header: bool = option(
        False, check_one_of(True, False), OUTPUT, "Write the header of the frames, once."
    )
    append_row_dataframe_sep: str = option(
        " ", check_separator, OUTPUT, "The character between the fields of frames."
    )
    keep_rows: bool = option(
        False,
        check_one_of(True, False),
        OUTPUT,
        "With `output_dir`, keep the rows with their types too, for `to_pandas` in Python.",
    )
    overwrite: bool = option(
        False,
        check_one_of(True, False),
        OUTPUT,
        "Replace an existing output file, at the moment of publishing.",
        is_generated=False,
        changes_results=False,
        is_of_one_run=True,
    )
    resume: bool | Literal["extend", "failed"] = option(
        False,
        check_one_of(True, False, "extend", "failed"),
        THE_JOB,
        "Continue the job in `job_dir`: what is committed does not run again.",
        is_generated=False,
        changes_results=False,
        is_of_one_run=True,
    )
    accept_changes: Sequence[str] = option(
        (),
        check_parts,
        THE_JOB,
        "With `resume`: which of script, input and options may have changed. What is committed is "
        "kept; of a changed input, what is the same by content.",
        changes_results=False,
        shown="none",
        is_of_one_run=True,
    )
    progress: bool | None = option(
        None,
        check_one_of(True, False, None),
        THE_JOB,
        "Show progress.",
        is_generated=False,
        shown="in a terminal and in notebooks a live display, else a line now and then",
        changes_results=False,
        is_of_one_run=True,
    )

    def __post_init__(self) -> None:
        """Check every value, and bring names and lists into their standard form."""
        for name, row in TABLE.items():
            object.__setattr__(self, name, row.rule(name, getattr(self, name)))
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
                near = [AZURE_ALIASES[name]] if name in AZURE_ALIASES else []
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
        """Return, as JSON values, the options that change the results."""
        values = {name: self[name] for name in self.keys() if TABLE[name].changes_results}
        if self.mini_batch_size is not None:
            values["mini_batch_size"] = parse_bytes(self.mini_batch_size, "mini_batch_size")
        return {name: _json(value) for name, value in values.items()}

    def limits(self) -> Limits:
        """Return the limits of the job."""
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


TABLE = table_of(RunOptions)
"""All options by name: their rules, their help, and what else is made from the table."""


def _json(value: Any) -> Any:
    """Return a value in the standard form that is compared between runs."""
    if isinstance(value, Mapping):
        return {name: str(value[name]) for name in sorted(value)}
    return list(value) if isinstance(value, tuple) else value
