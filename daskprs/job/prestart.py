"""Prestart: a process imports the agents' modules while the call is checked and Dask imported."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs.agent.node.environment import agent_environment, usable_cores, visible_devices
from daskprs.agent.supervision.zygote import started_ahead
from daskprs.options.rules import current_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

    from daskprs.options.run_options import RunOptions


@contextmanager
def prestart(options: RunOptions, client: Client | str | None) -> Iterator[None]:
    """Start a zygote within the block, if agents are to be children of this process.

    Its start is half of the time until the first mini-batch. The zygote runs no code of the
    caller; it ends at once when the check of the call fails.
    """
    if client is not None or current_client() is not None:
        yield
        return
    share = usable_cores() // agent_count(options, client)
    environment = agent_environment(os.environ, options.environment_variables, threads=share)
    with started_ahead(environment, options.start_method):
        yield


def agent_count(options: RunOptions, client: Client | str | None) -> int:
    """Return the number of agents for a cluster in this process."""
    if options.process_count_per_node:
        return options.process_count_per_node
    on_gpus = client is None and options.gpus_per_process and visible_devices()
    return 1 if on_gpus else usable_cores()
