"""What holds for every test: it leaves nothing behind."""

from __future__ import annotations

import gc
import io
import multiprocessing.util
import os
import signal
import types
from typing import TYPE_CHECKING

import dask
import pytest
from hypothesis import HealthCheck, settings
from pyarrow import csv

from daskprs._driver import dispatch
from daskprs._options.site_defaults import site_defaults
from daskprs._system.linux import adopt_orphans
from daskprs._system.nvml import gpu_usage

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a suite that runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start is interrupted

from tests.support.cases import SUITE_EXAMPLES
from tests.support.leftovers import Leftovers
from tests.support.polling import poll_for
from tests.support.warm_start import leave_out_syncs, warm_start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 30.0
"""What was told to end may take so long; nothing waits for it when all has gone well."""

settings.register_profile(
    "suite",
    deadline=None,  # the machine may be busy
    max_examples=SUITE_EXAMPLES,
    print_blob=True,  # a failure elsewhere can be repeated here
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Some tests say what other users may read: what they make is as most users make it.
os.umask(0o022)

# A job that fails would start a process that writes its report, and outlives the test.
os.environ["DASK_DASKPRS__REPORT"] = "never"  # for programs of the tests
dask.config.set({"daskprs.report": "never"})

# Arrow keeps a pipe for signals from the first CSV on that a main thread reads.
csv.read_csv(io.BytesIO(b"a\n1\n"))

# It may freeze this process: `daskprs._cluster.connect.QUIET` says why.
dask.config.set({"distributed.worker.profile.enabled": False})

# Workers that are processes of their own are forked from one that has imported Dask.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})

# Sockets of the fork server lie in a folder that is made once. Made within a test that sets TMPDIR,
# its path may be too long for them in all tests that follow.
multiprocessing.util.get_temp_dir()

# A nanny gives its worker variables by setting them in this process, where they would stay. What is
# started later would need templates of its own, since they are read as an interpreter starts.
OF_NANNIES = {
    name: os.environ.get(name)
    for name in (
        *("PYTHONHASHSEED", "MALLOC_TRIM_THRESHOLD_"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    )
}

# NVML keeps two pipes from its first use on, where there is a GPU.
gpu_usage()

# Where there is a GPU, each process with a worker would keep its device files open.
dask.config.set({"distributed.diagnostics.nvml": False})

# An agent whose zygote was killed would otherwise be the child of nobody that a test can ask.
adopt_orphans()


def pytest_collection_finish() -> None:
    """Take what was imported out of the collections of garbage that tests look for leftovers by."""
    gc.freeze()
    # Each job in this process asks whether its caller has frozen something, and the answer takes
    # a walk through all of it: 30 ms, in some thousand jobs.
    dispatch.gc = types.SimpleNamespace(get_freeze_count=lambda: 1)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def templates() -> Iterator[None]:
    """Fork what tests start from templates, which end with the tests."""
    if "DASKPRS_TESTS_COLD" not in os.environ:
        leave_out_syncs()
        warm_start.install()
    yield
    warm_start.close()


@pytest.fixture(autouse=True, scope="session")
def state_of_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the user's own key out of the tests, and theirs out of the user's folders."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves a process, a thread, an open descriptor or half a file."""
    warm_start.enabled = request.node.get_closest_marker("cold") is None
    before = Leftovers()
    yield
    now = before

    def nothing_left() -> bool:
        nonlocal now
        now = Leftovers()
        now.reap(before)
        if not now.since(before):
            return True
        gc.collect()  # what is in a circle is held by nobody; to look each time takes minutes
        now = Leftovers()
        return not now.since(before)

    poll_for(nothing_left, PATIENCE_S)
    left = now.since(before)
    now.end_processes(before)
    for name, value in OF_NANNIES.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    left += [f"half a file, {path}" for path in tmp_path.rglob("*.part")]
    assert not left, f"the test has left {'; '.join(left)}"


@pytest.fixture
def inline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the jobs of a test work in its own process, by the site's default.

    Such a job takes a tenth of the processor time. It fits questions of meaning: which rows, which
    message, which refusal. Deaths, timeouts, nodes and Dask collections need processes: in a module
    that uses this fixture, `@pytest.mark.processes` leaves a test with them.
    """
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setenv("DASK_DASKPRS__START_METHOD", "inline")  # for programs of the test
        site_defaults()  # loads them once: at its end, the block would drop what it has loaded
        with dask.config.set({"daskprs.start-method": "inline"}):
            yield
    else:
        yield
