"""Prestart: a process imports the agents' modules while the call is checked and Dask imported."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs._agent.node.environment import agent_environment, usable_cores, visible_devices
from daskprs._agent.protocol.messages import INLINE
from daskprs._agent.script.checked_preload import check_preload
from daskprs._agent.supervision.zygote import started_ahead
from daskprs._options.client_rules import current_client
from daskprs._system.interrupts import held_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client

    from daskprs._options.run_options import RunOptions


@contextmanager
def prestart(
    options: RunOptions,
    client: Client | str | None,
    final: Callable[[], RunOptions] | None = None,
) -> Iterator[RunOptions]:
    """Start a zygote within the block, if agents are to be children of this process.

    Its start is half of the time until the first mini-batch. The zygote runs no code of the
    caller; it ends at once when the check of the call fails. The block gets the `final` options,
    which may import Dask to read Dask's config: the zygote starts before, by the options as far as
    they are known, and is replaced where the final ones need another one, or none.
    """
    final = final or (lambda: options)
    if "dask" in sys.modules:  # Dask's config costs nothing then, and it may ask for no zygote
        known = final()
        options, final = known, lambda: known
    if options.start_method == INLINE or client is not None or current_client() is not None:
        yield final()
        return
    early = _zygote(options)
    with started_ahead(*early):
        # NumPy starts threads, and ends the import where a limit has left none. The zygote, which
        # needs threads a moment later, says which limit that is.
        with held_back():
            import numpy  # noqa: F401, ICN001

        options = final()
        if options.start_method != INLINE and _zygote(options) == early:
            yield options
            return
    if options.start_method == INLINE:
        yield options
    else:
        with started_ahead(*_zygote(options)):
            yield options


def _zygote(options: RunOptions) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Return the environment, the start method and the packages of a zygote in this process."""
    check_preload(options.imported_once, elsewhere=True)  # before it imports code of the caller
    on_gpus = options.gpus_per_process != 0 and visible_devices()
    share = usable_cores() // (1 if on_gpus else agent_count(options))
    environment = agent_environment(
        os.environ, options.environment_variables, threads=share, python=options.python
    )
    return environment, options.start_method, options.imported_once


def agent_count(options: RunOptions) -> int:
    """Return the largest number of agents for a cluster in this process."""
    return options.process_count_per_node or usable_cores()
