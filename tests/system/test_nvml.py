"""NVIDIA's library, in whose place a small one stands."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.node import environment, monitor
from daskprs._agent.node.environment import device_uuids, visible_devices
from daskprs._agent.node.monitor import NodeMonitor
from daskprs._system import nvml
from daskprs._system.nvml import Gpu, GpuUsage, gpu_usage, gpus

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = r"""
#include <string.h>
#include <time.h>
typedef unsigned long long big;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { big total, free, used; } memory;
typedef struct { unsigned pid; big used; unsigned instance, compute_instance; } process;
typedef struct { big taken_us; union { double d; unsigned ui; big ull; } value; } sample;
static char devices[4];
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
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    strncpy(text, "A100", length); return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    char *names[] = {"GPU-aa1", "GPU-aa2", "MIG-b1", "MIG-b2"};
    strncpy(text, names[(char *)device - devices], length); return 0;
}
int nvmlDeviceGetSamples(
    void *device, int kind, big since_us, unsigned *of, unsigned *count, sample *samples
) {
    if (device != devices || kind != 1 || *count < 3) return 3;
    big now_us = (big)time(0) * 1000000;
    big ages_s[] = {30, 2, 1};
    unsigned loads[] = {100, 10, 20};
    for (int i = 0; i < 3; i++) {
        samples[i].taken_us = now_us - ages_s[i] * 1000000;
        samples[i].value.ui = loads[i];
    }
    *count = 3;
    return 0;
}
"""
DIVIDED = r"""
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
    if (device == devices) return 3;
    *now = *later = 1; return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **instance) {
    if (i > 1) return 6;
    *instance = devices + 2 + i; return 0;
}
"""
"""The second device is divided into two instances."""


@pytest.fixture(params=[False, True], ids=["whole", "divided"])
def is_divided(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Put a library into the place of NVIDIA's; say whether its second device is divided."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "nvml.c").write_text(LIBRARY + (DIVIDED if request.param else ""))
    library = tmp_path / "nvml.so"
    subprocess.run([compiler, "-shared", "-o", library, tmp_path / "nvml.c"], check=True)
    monkeypatch.setattr(nvml, "LIBRARY", str(library))
    is_one: bool = request.param
    return is_one


@pytest.mark.usefixtures("is_divided")
def test_what_is_used_of_each_device() -> None:
    """A driver that does not say how busy a device is, or what a process holds, says nothing."""
    gb = 1 << 30
    other = GpuUsage(1, None, 5 * gb, 80 * gb, {11: 3 * gb})
    assert gpu_usage() == (GpuUsage(0, 42, 5 * gb, 80 * gb, {11: 3 * gb}), other)
    # Two samples are of the last ten seconds.
    mean = GpuUsage(0, 15, 5 * gb, 80 * gb, {11: 3 * gb}, is_mean=True)
    assert gpu_usage(10.0) == (mean, other)
    assert gpu_usage(time.time())[0].percent == 43


def test_instances_of_a_divided_card_are_devices(*, is_divided: bool) -> None:
    """CUDA finds them by their UUIDs alone; elsewhere the numbers are the names."""
    instances = ("MIG-b1", "MIG-b2") if is_divided else ()
    assert gpus() == (Gpu(0, "GPU-aa1", (), "A100"), Gpu(1, "GPU-aa2", instances, "A100"))
    assert visible_devices({}) == (("GPU-aa1", *instances) if is_divided else ("0", "1"))


def test_a_device_is_told_from_others_by_its_uuid(*, is_divided: bool) -> None:
    """Whatever the worker calls it; a beginning that fits several devices fits none."""
    names = ("0", "gpu-AA2", "GPU-aa", "GPU-cc")
    assert device_uuids(names, {}) == ("GPU-aa1", "GPU-aa2", "GPU-aa", "GPU-cc")
    if is_divided:
        assert device_uuids(("MIG-b2",), {}) == ("MIG-b2",)
    assert device_uuids(None, {}) == ()


def test_numbers_tell_no_device_where_cuda_may_number_them_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA begins with the fastest of different cards, NVML goes by their places."""
    kinds = (Gpu(0, "GPU-a", (), "T4"), Gpu(1, "GPU-b", (), "H100"))
    monkeypatch.setattr(environment, "gpus", lambda: kinds)
    assert device_uuids(("0", "GPU-b"), {}) == ("0", "GPU-b")
    assert device_uuids(("0",), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == ("GPU-a",)


@pytest.mark.parametrize(
    ("names", "own"), [(("0",), set()), (("0", "1"), {0, 1}), (("GPU-b",), {1}), ((), set())]
)
def test_the_load_of_another_card_is_not_taken_for_that_of_the_agents(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], own: set[int]
) -> None:
    """Of different cards, it is not known which one CUDA calls 0; but all of them are all."""
    kinds = (Gpu(0, "GPU-a", (), "T4"), Gpu(1, "GPU-b", (), "H100"))
    usages = tuple(GpuUsage(one.number, 5, 1, 2, {}) for one in kinds)
    for module, name, value in (
        (environment, "gpus", kinds),
        (monitor, "gpus", kinds),
        (monitor, "gpu_usage", usages),
    ):
        monkeypatch.setattr(module, name, lambda *_, value=value: value)
    found = NodeMonitor(lambda _: (), (), names).measure().devices
    assert {one.number for one in found if one.is_ours} == own


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("0, 1", ("0", "1")),
        ("GPU-a,mig-b", ("GPU-a", "mig-b")),
        ("1,-1,0", ("1",)),
        ("1,one,0", ("1",)),
        ("NoDevFiles", ()),
        ("", ()),
    ],
)
def test_devices_are_read_up_to_the_first_invalid_name(given: str, names: tuple[str, ...]) -> None:
    """CUDA sees none behind it, and an agent that had this name would see none at all."""
    assert visible_devices({"CUDA_VISIBLE_DEVICES": given}) == names


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on most machines."""
    monkeypatch.setattr(nvml, "LIBRARY", "libnothing-of-this-name.so")
    assert (gpus(), gpu_usage(), visible_devices({})) == ((), (), None)
