"""NVIDIA's library for its devices (NVML), where the driver has installed it."""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = "libnvidia-ml.so.1"
MOST_PROCESSES = 256
UNKNOWN = (1 << 64) - 1
"""The memory of a process where the driver does not say it."""
MOST_SAMPLES = 512
OF_LOAD = 1
"""The kind of samples that say how busy a device is: ``NVML_GPU_UTILIZATION_SAMPLES``."""
UUID_CHARS = 96


class Gpu(NamedTuple):
    """One device."""

    number: int
    """Its number for NVML."""
    uuid: str
    """``GPU-…``; empty where the driver does not say it."""
    instances: tuple[str, ...]
    """The UUIDs of its instances (``MIG-…``), if it is divided: processes use only these."""
    kind: str
    """The name of its model."""


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
    is_mean: bool = False
    """Whether `percent` is the mean since the last look, and not a value of the last moment."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class _Sample(ctypes.Structure):
    _fields_ = (("taken_us", ctypes.c_ulonglong), ("value", ctypes.c_uint), ("more", ctypes.c_uint))
    """The value is a union of eight bytes, whose first four are the percent."""


class _GpuProcess(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def gpus() -> tuple[Gpu, ...]:
    """Return the devices that NVIDIA's driver reports; nothing without a driver."""
    with _opened() as library:
        return tuple(_gpu(library, number) for number in range(_count(library)))


def gpu_usage(for_s: float = 0.0) -> tuple[GpuUsage, ...]:
    """Return the usage of each device during the last seconds; nothing without a driver."""
    with _opened() as library:
        return tuple(
            usage
            for number in range(_count(library))
            if (usage := _usage(library, number, for_s)) is not None
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


def _done(library: Any, name: str, *arguments: Any) -> bool:
    """Call a function of the library; return False where it fails, or an older driver lacks it."""
    call = getattr(library, name, None)
    return call is not None and call(*arguments) == 0


def _gpu(library: Any, number: int) -> Gpu:
    device = ctypes.c_void_p()
    if not _done(library, "nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(device)):
        return Gpu(number, "", (), "")
    uuid = _text(library, "nvmlDeviceGetUUID", device)
    kind = _text(library, "nvmlDeviceGetName", device)
    return Gpu(number, uuid, tuple(_instances(library, device)), kind)


def _text(library: Any, name: str, device: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(UUID_CHARS)
    return text.value.decode() if _done(library, name, device, text, UUID_CHARS) else ""


def _instances(library: Any, device: ctypes.c_void_p) -> Iterator[str]:
    """Yield the UUIDs of a device's instances, if it is divided now."""
    now, later, most = ctypes.c_uint(0), ctypes.c_uint(0), ctypes.c_uint(0)
    references = ctypes.byref(now), ctypes.byref(later)
    if not _done(library, "nvmlDeviceGetMigMode", device, *references) or not now.value:
        return
    _done(library, "nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
    for number in range(most.value):
        one = ctypes.c_void_p()
        at = ctypes.byref(one)
        if _done(library, "nvmlDeviceGetMigDeviceHandleByIndex", device, number, at) and (
            uuid := _text(library, "nvmlDeviceGetUUID", one)
        ):
            yield uuid


def _usage(library: Any, number: int, for_s: float) -> GpuUsage | None:
    device, memory, utilization = ctypes.c_void_p(), _Memory(), _Utilization()
    if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)) != 0:
        return None
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) != 0:
        return None
    percent = _mean_load(library, device, for_s)
    is_mean = percent is not None
    rates = device, ctypes.byref(utilization)
    if not is_mean and _done(library, "nvmlDeviceGetUtilizationRates", *rates):
        percent = utilization.gpu
    used, total = memory.used, memory.total
    return GpuUsage(number, percent, used, total, _processes(library, device), is_mean)


def _mean_load(library: Any, device: ctypes.c_void_p, for_s: float) -> int | None:
    """Return the mean load of the last seconds, of which the driver keeps some samples.

    A value of one moment says little: a device that works for a tenth of each second is busy by 0 %
    or by 100 % then.
    """
    since_us = int((time.time() - for_s) * 1e6)
    kind, count = ctypes.c_uint(0), ctypes.c_uint(MOST_SAMPLES)
    samples = (_Sample * MOST_SAMPLES)()
    out = ctypes.byref(kind), ctypes.byref(count), samples
    since = ctypes.c_ulonglong(since_us)
    if not for_s or not _done(library, "nvmlDeviceGetSamples", device, OF_LOAD, since, *out):
        return None
    found = samples[: min(count.value, MOST_SAMPLES)]
    loads = [one.value for one in found if one.taken_us >= since_us and one.value <= 100]  # noqa: PLR2004
    return round(sum(loads) / len(loads)) if loads else None


def _processes(library: Any, device: ctypes.c_void_p) -> dict[int, int]:
    count, table = ctypes.c_uint(MOST_PROCESSES), (_GpuProcess * MOST_PROCESSES)()
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    if not _done(library, name, device, ctypes.byref(count), table):
        return {}
    return {one.pid: one.used for one in table[: count.value] if one.used != UNKNOWN}
