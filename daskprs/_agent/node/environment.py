"""The cores and devices of this process, and the environment and arguments of its agents."""

from __future__ import annotations

import json
import math
import os
import re
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._core.agent_allocation import COUNT_VARIABLE, DEVICES_VARIABLE
from daskprs._system.interpreter import OF_AN_INTERPRETER
from daskprs._system.nvml import gpus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from os import PathLike

    from daskprs._options.run_options import RunOptions
    from daskprs._system.nvml import Gpu

THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
OUTPUT_PATH = "AZUREML_BI_OUTPUT_PATH"
"""The variable by which scripts find the output folder."""
RUN_ID = "AZUREML_RUN_ID"
"""The variable with the id of the run, by which scripts see that they run in a job."""
ASSETS = "DASKPRS_ASSETS"
"""Holds, as JSON, where the job's named assets lie: ``{"my-model": "/path"}``."""
ORDER_VARIABLE, BY_PLACE = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""NVML numbers devices by their place. CUDA does, too, where they are alike or the variable is so;
else it begins with the fastest one."""
NAME = re.compile(r"\d+|(?:GPU|MIG)-.*", re.IGNORECASE)
"""The name of a device. At any other one, such as -1 or NoDevFiles, CUDA stops reading the list."""
CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Return how many cores this process may use, by affinity and by the quota of its cgroup."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Return the quota in cores, of version 2 or 1; None without one."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)


def visible_devices(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the devices that this process was given, else those of the machine.

    Each has its name in ``CUDA_VISIBLE_DEVICES``: a number, a UUID or a MIG instance. Like CUDA,
    this stops at the first invalid name. Where a card is divided, CUDA finds its instances only by
    their UUIDs. Without any name only the resource ``GPU`` of the Dask workers says how many
    devices the machine has.
    """
    given = environment.get(DEVICES_VARIABLE)
    if given is not None:
        return tuple(takewhile(NAME.fullmatch, map(str.strip, given.split(","))))
    count = environment.get(COUNT_VARIABLE, "")
    if count.isdecimal():
        return tuple(map(str, range(int(count))))
    found = gpus()
    if any(one.instances for one in found):
        return tuple(name for one in found for name in one.instances or (one.uuid,) if name)
    return tuple(str(one.number) for one in found) or None


def device_uuids(
    names: tuple[str, ...] | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the UUID of each of these devices; the name where it is not known.

    Workers of one host may call a card by different names, and in containers two cards by one.
    """
    found = gpus() if names else ()
    are_told = numbers_tell(found, environment)
    numbered = {str(one.number): one.uuid for one in found if are_told and not one.instances}
    uuids = [uuid for one in found for uuid in (one.uuid, *one.instances) if uuid]

    def uuid_of(name: str) -> str:
        if name in numbered:
            return numbered[name] or name
        begun = [uuid for uuid in uuids if uuid.lower().startswith(name.lower())]
        return begun[0] if len(begun) == 1 else name

    return tuple(map(uuid_of, names or ()))


def numbers_tell(found: Collection[Gpu], environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether CUDA numbers these devices as NVML does."""
    return len({one.kind for one in found}) == 1 or environment.get(ORDER_VARIABLE) == BY_PLACE


def agent_environment(
    base: Mapping[str, str],
    user: Mapping[str, str] | None,
    *,
    threads: int,
    python: str | PathLike[str] | None = None,
) -> dict[str, str]:
    """Return the complete environment of the agents of a node.

    The option `environment_variables` wins. The share of the cores overrides `base`: Dask workers
    set ``OMP_NUM_THREADS=1`` for themselves, which looks like a choice of the user. What tells
    another interpreter of the script, `python`, where its modules are is for that one only.
    """
    counts = dict.fromkeys(THREAD_COUNTS, str(max(1, threads)))
    hidden = OF_AN_INTERPRETER if python is not None else ()
    given = {name: value for name, value in (user or {}).items() if name not in hidden}
    return {**base, **counts, **given}


def system_arguments(options: RunOptions, output_dir: str | None) -> tuple[str, ...]:
    """Return the arguments after ``argv[0]``: the system flags, then the user's arguments.

    A system flag that the user gives too is left out, and so is one without a value.
    """
    keys = options.partition_keys
    flags = {
        "--logging_level": options.logging_level,
        "--output": output_dir,
        "--mini_batch_size": options.mini_batch_size,
        "--error_threshold": options.error_threshold,
        "--run_invocation_timeout": options.run_invocation_timeout,
        "--run_max_try": options.run_max_try,
        "--process_count_per_node": options.process_count_per_node,
        "--partition_keys": json.dumps(list(keys)) if keys else None,
    }
    given = {word.partition("=")[0] for word in options.arguments}
    system = [
        word
        for flag, value in flags.items()
        if value is not None and flag not in given
        for word in (flag, str(value))
    ]
    return (*system, *options.arguments)
