"""The names that other libraries and files have for options, for the answer to an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

ALIASES = {
    "mini_batch_error_threshold": "allowed_failed_count",
    "max_concurrency_per_instance": "process_count_per_node",
    "instance_count": "node_count",
    "max_retries": "run_max_try (tries, one more than retries)",
    "timeout": "run_invocation_timeout",
    "output_file_name": "append_row_file_name",
    "program_arguments": "arguments",
    **dict.fromkeys(
        (
            "n_jobs",
            "num_workers",
            "max_workers",
            "n_workers",
            "num_cpus",
            "num_proc",
            "concurrency",
            "max_concurrency",
        ),
        "process_count_per_node",
    ),
    "verbose": "progress",
    **dict.fromkeys(("by", "groupby"), "partition_keys"),
    **dict.fromkeys(("timeout_s", "task_timeout", "run_timeout"), "run_invocation_timeout"),
    **dict.fromkeys(
        ("batch_size", "batch_rows", "rows_per_batch", "chunk_size", "chunksize"),
        'mini_batch_size (such as "100 rows", "10 MB" or "20 files")',
    ),
    **dict.fromkeys(("retries", "max_restarts"), "run_max_try (tries, one more than retries)"),
}
"""Names of options in other libraries and files, and ours for them."""

WITHOUT_COUNTERPART = dict.fromkeys(
    ("rate", "rps", "qps", "requests_per_second", "max_requests_per_second"),
    "Give rate_limit=daskprs.RateLimit(requests_per_minute=600), and let run() ask for permits, by "
    "context.permit()",
)
"""Names of options in other libraries that have no counterpart here, and what to do instead."""


def hint_at(name: str, known: Iterable[str]) -> str:
    """Return a sentence with our name for an unknown option, or with what to do instead."""
    if name in WITHOUT_COUNTERPART:
        return f" {WITHOUT_COUNTERPART[name]}."
    if name in ALIASES:
        return f" Did you mean {ALIASES[name]}?"
    return did_you_mean(name, known)
