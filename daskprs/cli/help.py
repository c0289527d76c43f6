"""The help of a command: its options under headings, examples, exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = {
    "Script": (
        "script",
        "source_directory",
        "environment_variables",
        "side_inputs",
        "logging_level",
    ),
    "Input": (
        "input_type",
        "mini_batch_size",
        "partition_keys",
        "partition_format",
        "columns",
        "dtypes",
        "delimiter",
        "header",
        "encoding",
        "support_multi_line",
        "include_path_column",
    ),
    "Processes": (
        "client",
        "here",
        "node_count",
        "process_count_per_node",
        "gpus_per_process",
        "start_method",
        "agent_memory_limit",
    ),
    "Failures": (
        "run_max_try",
        "allowed_failed_count",
        "allowed_failed_percent",
        "error_threshold",
        "max_node_losses",
        "fail_on_timeout",
    ),
    "Times": (
        "run_invocation_timeout",
        "task_overhead_timeout",
        "init_timeout",
        "shutdown_timeout",
        "first_task_creation_timeout",
        "progress_update_timeout",
        "no_workers_timeout",
    ),
    "Output": (
        "output_dir",
        "output_action",
        "append_row_file_name",
        "append_row_dataframe_header",
        "append_row_dataframe_sep",
        "keep_rows",
        "overwrite",
    ),
    "The job": ("job_dir", "resume", "extend", "accept_changes", "quiet"),
}
"""Options in the order in which they are shown; the headings are those of the documentation."""
EXTEND = "Go on where the input has grown: only what is new by content is run."
AFTER_RUN = """\b
Examples:
  daskprs run score.py pictures/ --mini-batch-size 25 --output-dir scored
  daskprs run clean.py 'visits/*.csv' --partition-keys customer -- --model m.pickle

\b
Exit codes:
  0    the job is Completed
  42   the job is Failed: the reason is shown, and in logs/job_result.txt
  130  the job is Canceled, by Ctrl-C or SIGTERM
  2    nothing was started: an option, the script, the input or a folder cannot be used
"""
AFTER_SUBMIT = """\b
Examples:
  daskprs submit score.py /shared/images --scheduler tcp://10.0.0.1:8786 --job-dir /shared/scored
  daskprs status /shared/scored
  daskprs attach /shared/scored
  daskprs cancel /shared/scored
  daskprs result /shared/scored
"""
AFTER_INVOKE = """\b
Examples:
  daskprs invoke deployment.yml --input pictures/
  daskprs invoke deployment.yml --input 'data/*.csv' --mini-batch-size 20 --output-path scored
  daskprs invoke deployment.yml --input data/ --asset heart-classifier=models/heart
  daskprs invoke pipeline-deployment.yml --input unlabeled=data/ --input mode=append

\b
Exit codes:
  those of daskprs run
"""
AFTER_RESUME = """\b
Examples:
  daskprs resume daskprs-jobs/score-20270115-080000-1a2b3c4d
  daskprs resume scored-job --run-invocation-timeout 600 --scheduler tcp://10.0.0.1:8786
  daskprs resume scored-job --extend

\b
Exit codes:
  those of daskprs run
"""
AFTER_RETRY = """\b
Examples:
  daskprs retry-failed scored-job --script mended/score.py

\b
Exit codes:
  those of daskprs run
"""
AFTER_STATUS = """\b
Exit codes:
  0    it is shown
  2    no job has begun in the folder
"""
AFTER_RESULT = """\b
Exit codes:
       those of the job, and
  2    the job has no result: it is running, or its driver died
"""
AFTER_SERVE = """\b
Examples:
  python -c 'import secrets; print(secrets.token_urlsafe(32))' > token && chmod 600 token
  daskprs serve deployment.yml --tokens token --root data=/srv/data
  daskprs serve a.yml b.yml --default a --tokens tokens.yml --root data=/srv/data --max-jobs 2

\b
Exit codes:
  0    it was ended, by Ctrl-C or SIGTERM
  2    nothing was served: an option, a file, a folder or the address cannot be used
"""
AFTER_PLAN = """\b
Examples:
  daskprs plan visits.csv --mini-batch-size '500 KB'
  daskprs plan pictures/ --partition-format '{year}/{camera}/{n}.jpg' --partition-keys camera

\b
Exit codes:
  0    the plan is shown
  2    an option or the input cannot be used
"""


class Grouped(click.Command):
    """A command whose help shows its options under the headings of `GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that the command has, heading by heading."""
        for heading, shown in self.grouped(ctx):
            with formatter.section(heading):
                formatter.write_dl(shown)

    def grouped(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield each heading with what is written under it."""
        records = {option.name: option.get_help_record(ctx) for option in self.get_params(ctx)}
        for heading, names in GROUPS.items():
            shown = [record for name in names if (record := records.get(name)) is not None]
            if shown:
                yield heading, shown
