"""What holds for every test: it leaves nothing behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile(
    "suite",
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

LASTING_THREADS = (
    "Profile",  # Dask's profiler of the whole process
    "Dask-Default-Threads",  # Dask's own pools, kept for the next call
    "Dask-Offload",
    "Dask-Callback-Thread",
    "IO loop",  # Dask's loop of the whole process
    "AsyncProcess",
    "TCP-Executor",
    "asyncio_",
    "ThreadPoolExecutor",  # Dask's and pandas' own; ours have names
    "execnet",
    "pytest_timeout",
)


class Left:
    """What this process has at one moment."""

    def __init__(self) -> None:
        gc.collect()
        self.children = {child.pid for child in psutil.Process().children(recursive=True)}
        self.threads = {
            thread.name
            for thread in threading.enumerate()
            if not thread.name.startswith(LASTING_THREADS)
        }
        self.descriptors = {
            target
            for fd in os.listdir("/proc/self/fd")  # noqa: PTH208 - names
            if (target := _target(fd)) and target.startswith("/") and "/dev/" not in target
        }

    def more_than(self, before: Left) -> list[str]:
        """Return what was not there before."""
        return [
            *(f"process {pid}" for pid in self.children - before.children),
            *(f"thread {name}" for name in self.threads - before.threads),
            *(f"open file {path}" for path in self.descriptors - before.descriptors),
        ]


def _target(fd: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return ""


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves a process, a thread, an open file or half a file."""
    before = Left()
    yield
    poll_for(lambda: not Left().more_than(before), 5.0)
    left = Left().more_than(before)
    left += [f"half a file {path}" for path in tmp_path.rglob("*.part")]
    assert not left, f"the test has left {', '.join(left)}"
