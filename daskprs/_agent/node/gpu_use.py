"""The GPU use of a script's processes: the libraries that they have loaded, and open devices."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from daskprs._core.lease import GpuUse
from daskprs._system.linux import descendants

LIBRARIES = (
    ("torch", r"/torch/lib/lib(?:torch|c10)|/libtorch(?:_cpu|_cuda|_hip)?\.so"),
    ("tensorflow", r"-packages/tensorflow/|/libtensorflow"),
    ("jax", r"-packages/jaxlib/|/jax_cuda|/xla_extension|/jaxlib/\w*\.so"),
    ("cupy", r"/cupy/\w+/\w+[.\w-]*\.so|/cupy_backends/"),
    ("cudf", r"/libcudf\.so"),
    ("rmm", r"/librmm\.so"),
    ("cuml", r"/libcuml"),
    ("onnxruntime", r"/libonnxruntime_providers_(?:cuda|tensorrt|rocm)"),
    ("tensorrt", r"/libnvinfer"),
    ("paddle", r"-packages/paddle/|/libpaddle"),
    ("mxnet", r"/libmxnet"),
    ("llama.cpp", r"/libggml-(?:cuda|hip|vulkan)"),
    ("pycuda", r"-packages/pycuda/"),
    ("CUDA", r"/lib(?:cuda|cudart|nvrtc|cublas|cudnn)[-.]"),
    ("ROCm", r"/libamdhip64"),
)
"""Libraries that can use a GPU, by the paths of their files. Whatever else uses CUDA, such as
numba.cuda, has loaded the driver's own library by then."""
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in LIBRARIES)
DEVICE = re.compile(r"/dev/(?:nvidia\d+|dri/renderD\d+|kfd)$")
"""A device of NVIDIA or AMD. /dev/nvidiactl alone is opened by whoever only counts devices."""


def gpu_use_of(pid: int) -> GpuUse:
    """Return how a process and its descendants use GPUs now."""
    pids = (pid, *descendants(pid))
    loaded = (_library_of(one) for one in pids)
    return GpuUse(next(filter(None, loaded), ""), any(map(holds_device, pids)))


def _library_of(pid: int) -> str:
    """Return the name of a library in the process that can use a GPU; empty without one."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
    return next((name for name, pattern in _PATTERNS if pattern.search(maps)), "")


def holds_device(pid: int) -> bool:
    """Return whether a process holds a device open."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # the process has ended
        for name in os.listdir(folder):  # noqa: PTH208 - names, not paths
            with suppress(OSError):  # it has been closed meanwhile
                if DEVICE.search(os.readlink(f"{folder}/{name}")):  # noqa: PTH115 - a text
                    return True
    return False
