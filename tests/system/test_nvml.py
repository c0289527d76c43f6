"""NVIDIA's library, in whose place a small one stands."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from daskprs._system import nvml
from daskprs._system.nvml import GpuUsage, gpu_count, gpu_usage

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = r"""
typedef unsigned long long big;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { big total, free, used; } memory;
typedef struct { unsigned pid; big used; unsigned instance, compute_instance; } process;
static char devices[2];
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = devices + i; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *m) {
    m->total = 80ull << 30; m->used = 5ull << 30; m->free = m->total - m->used; return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization *u) {
    if (device != devices) return 3;
    u->gpu = 42; u->memory = 7; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *p) {
    if (*count < 2) return 7;
    *count = 2;
    p[0].pid = 11; p[0].used = 3ull << 30;
    p[1].pid = 12; p[1].used = ~0ull;
    return 0;
}
"""


def test_what_is_used_of_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not say how busy a device is, or what a process holds, says nothing."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / "nvml.so"
    subprocess.run([compiler, "-shared", "-o", library, tmp_path / "nvml.c"], check=True)
    monkeypatch.setattr(nvml, "LIBRARY", str(library))
    assert gpu_count() == 2
    gb = 1 << 30
    assert gpu_usage() == (
        GpuUsage(0, 42, 5 * gb, 80 * gb, {11: 3 * gb}),
        GpuUsage(1, None, 5 * gb, 80 * gb, {11: 3 * gb}),
    )


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on most machines."""
    monkeypatch.setattr(nvml, "LIBRARY", "libnothing-of-this-name.so")
    assert (gpu_count(), gpu_usage()) == (0, ())
