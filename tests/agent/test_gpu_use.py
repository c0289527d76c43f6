"""What a process has to do with GPUs, as its maps and its descriptors show it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.node import gpu_use
from daskprs._agent.node.gpu_use import gpu_use_of
from daskprs._core.lease import GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.read()
"""
OPENS = """
import sys
file = open(sys.argv[1], "rb")
print("open", flush=True)
sys.stdin.read()
"""
AS_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """End what a test has started."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for one in processes:
        one.communicate()


def pid_of(started: list[subprocess.Popen[str]], *arguments: str) -> int:
    """Start a program, wait for its first line, and return its process id."""
    command = [sys.executable, "-c", *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process.pid


@pytest.mark.parametrize("is_child", [False, True])
@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("site-packages/torch/lib/libtorch_cpu.so", "torch"),
        ("tensorflow/libtensorflow_framework.so.2", "tensorflow"),
        ("jaxlib/_jax.so", "jax"),
        ("cupy/_core/core.cpython-311-x86_64-linux-gnu.so", "cupy"),
        ("onnxruntime/capi/libonnxruntime_providers_cuda.so", "onnxruntime"),
        ("lib/libcuda.so.580.1", "CUDA"),
        ("numpy/_core/_multiarray_umath.so", ""),
        ("pyarrow/libarrow.so.2600", ""),
    ],
)
def test_a_loaded_library_is_found_in_a_process_and_in_its_children(
    tmp_path: Path,
    started: list[subprocess.Popen[str]],
    path: str,
    library: str,
    *,
    is_child: bool,
) -> None:
    """By the file that it is mapped from."""
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(b"library")
    arguments = (AS_A_CHILD, MAPS) if is_child else (MAPS,)
    pid = pid_of(started, *arguments, str(file))
    assert gpu_use_of(pid) == GpuUse(library, is_open=False)


def test_an_open_device_is_found(
    tmp_path: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands for the device: there may be none here."""
    device = tmp_path / "nvidia0"
    device.touch()
    pid = pid_of(started, OPENS, str(device))
    assert gpu_use_of(pid) == GpuUse("", is_open=False)
    monkeypatch.setattr(gpu_use, "DEVICE", re.compile(r"/nvidia\d+$"))
    assert gpu_use_of(pid) == GpuUse("", is_open=True)


@pytest.mark.parametrize(
    ("path", "is_device"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia13", True),
        ("/dev/nvidiactl", False),
        ("/dev/nvidia-uvm", False),
        ("/dev/dri/renderD128", True),
        ("/dev/null", False),
    ],
)
def test_who_counts_devices_has_opened_none(path: str, *, is_device: bool) -> None:
    """NVML opens /dev/nvidiactl to count them."""
    assert bool(gpu_use.DEVICE.search(path)) is is_device


def test_a_process_that_has_ended_uses_nothing() -> None:
    """It may end while it is looked at."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert gpu_use_of(process.pid) == GpuUse("", is_open=False)
