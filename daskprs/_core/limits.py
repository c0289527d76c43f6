"""The limits of a job: tries, failures and seconds, as plain numbers.

`options.run_options` has the texts and defaults that a user sees. The driver's ledger and the
agents' supervisors use these checked numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs._core.spending import Amounts

NEVER_S = 1e9
"""Seconds after which nothing happens: some calls of the system take no infinity."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Checked limits of one job; ``None`` means no limit, and -1 ignores a threshold."""

    run_max_try: int = 3
    retry_delay_s: float | None = 0.0
    """Seconds before an attempt that follows a charged one; None for a delay that grows."""
    error_threshold: int = -1
    allowed_failed_count: int = 0
    allowed_failed_percent: float = 100.0
    fail_on_timeout: bool = False
    max_node_losses: int = 3
    isolates: bool = False
    """Whether a mini-batch that fails in all its tries costs only the items that fail in it."""
    independent_rows: bool = False
    """Whether items are independent of each other, as the user says or an earlier job has found."""
    at_most: int | None = None
    """Largest number of items of a call of `run` that an earlier job found to fit the memory."""
    columns: tuple[str, ...] | None = None
    """The columns of what `run` returns that an earlier run of the job has found."""
    gpus_per_process: float = 1.0
    finds_gpu_use: bool = False
    """Whether the first mini-batch shows if the script uses GPUs; if not, they are hidden."""

    run_timeout_s: float = 60.0
    load_timeout_s: float = 600.0
    init_timeout_s: float = 3600.0
    init_idle_timeout_s: float = 210.0
    shutdown_timeout_s: float = 30.0
    first_task_creation_timeout_s: float = 600.0
    progress_update_timeout_s: float = 1530.0
    first_progress_timeout_s: float = 4920.0
    """The same while no process has come up: `init` may take longer than a mini-batch."""
    no_workers_timeout_s: float | None = None
    agent_memory_bytes: int | None = None
    agent_max_mini_batches: int | None = None
    calls: int = 1
    """Number of mini-batches that a process has at a time."""
    usage_limits: Amounts = ()
    """The largest amounts that the job may use by the script's own count, in all its runs."""

    def without_kills(self) -> Limits:
        """Return the limits of a script that works in the driver's process."""
        return replace(
            self,
            finds_gpu_use=False,
            run_timeout_s=NEVER_S,
            load_timeout_s=NEVER_S,
            init_timeout_s=NEVER_S,
            init_idle_timeout_s=NEVER_S,
            shutdown_timeout_s=NEVER_S,
            progress_update_timeout_s=NEVER_S,
            first_progress_timeout_s=NEVER_S,
            no_workers_timeout_s=None,
            agent_memory_bytes=None,
            agent_max_mini_batches=None,
            calls=1,
        )
