"""NVIDIA's library for its devices (NVML), where the driver has installed it."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = "libnvidia-ml.so.1"
MOST_PROCESSES = 256
UNKNOWN = (1 << 64) - 1
"""The memory of a process where the driver does not say it."""


class GpuUsage(NamedTuple):
    """The usage of one device."""

    number: int
    """Its number for NVML."""
    percent: int | None
    """Percent of the time in which it has worked; None where the driver does not say it."""
    used_bytes: int
    total_bytes: int
    processes: dict[int, int]
    """Bytes by process id. In a container the driver may name other ids, or none."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _GpuProcess(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def gpu_count() -> int:
    """Return the number of devices that NVIDIA's driver reports; 0 without a driver."""
    with _opened() as library:
        return _count(library)


def gpu_usage() -> tuple[GpuUsage, ...]:
    """Return the usage of each device; nothing without a driver."""
    with _opened() as library:
        return tuple(
            usage
            for number in range(_count(library))
            if (usage := _usage(library, number)) is not None
        )


@contextmanager
def _opened() -> Iterator[Any]:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        yield None
        return
    if library.nvmlInit_v2() != 0:
        yield None
        return
    try:
        yield library
    finally:
        library.nvmlShutdown()


def _count(library: Any) -> int:
    count = ctypes.c_uint(0)
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _usage(library: Any, number: int) -> GpuUsage | None:
    device, memory, utilization = ctypes.c_void_p(), _Memory(), _Utilization()
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)) != 0:
        return None
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) != 0:
        return None
    is_known = library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(utilization)) == 0
    percent = utilization.gpu if is_known else None
    return GpuUsage(number, percent, memory.used, memory.total, _processes(library, device))


def _processes(library: Any, device: ctypes.c_void_p) -> dict[int, int]:
    count, table = ctypes.c_uint(MOST_PROCESSES), (_GpuProcess * MOST_PROCESSES)()
    try:
        call = library.nvmlDeviceGetComputeRunningProcesses_v3
    except AttributeError:  # an older driver
        return {}
    if call(device, ctypes.byref(count), table) != 0:
        return {}
    return {one.pid: one.used for one in table[: count.value] if one.used != UNKNOWN}
