"""The GPUs that this process may use, by the names that ``CUDA_VISIBLE_DEVICES`` takes."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from daskprs.core.agent_allocation import COUNT_VARIABLE, DEVICES_VARIABLE, HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

NVML = "libnvidia-ml.so.1"


def visible_devices(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the devices that this process was given, else those of the machine.

    Parameters
    ----------
    environment
        The environment of this process. The entries of ``CUDA_VISIBLE_DEVICES`` are taken as they
        are: numbers, UUIDs or MIG instances. Like CUDA, this stops at the first invalid entry.

    Returns
    -------
    tuple of str or None
        The names of the devices. None where neither the environment nor NVML names any: then only
        the resource ``GPU`` of the Dask workers says how many the machine has.

    """
    given = environment.get(DEVICES_VARIABLE)
    if given is not None:
        return _listed(given)
    told = environment.get(COUNT_VARIABLE, "")
    if told.isdecimal():
        return tuple(map(str, range(int(told))))
    return tuple(map(str, range(_counted()))) or None


def _listed(given: str) -> tuple[str, ...]:
    devices: list[str] = []
    for entry in map(str.strip, given.split(",")):
        if entry in ("", HIDDEN) or entry == "NoDevFiles":
            break
        devices.append(entry)
    return tuple(devices)


def _counted() -> int:
    """Return the number of GPUs that NVIDIA's driver reports; 0 without a driver."""
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return 0
    count = ctypes.c_uint(0)
    if library.nvmlInit_v2() != 0:
        return 0
    try:
        failed = library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
    finally:
        library.nvmlShutdown()
    return 0 if failed else count.value
