"""The cluster that a job runs on."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import weakref
from contextlib import ExitStack
from itertools import product
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
import pytest
import toolz
from distributed import Client, LocalCluster, utils
from distributed.comm import inproc

import daskprs
from daskprs._agent.node.site import DriverInfo, ProbeFile
from daskprs._cluster.connect import (
    IN_PROCESS,
    QUIET,
    _in_process,
    check_scheduler,
    connected,
    scheduler_address,
)
from daskprs._cluster.session import Session
from daskprs.errors import DaskprsError, OptionError
from tests.support.by_hand import ByHand
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec


def test_a_cluster_that_has_gone_is_told_in_plain_words(a_job: JobSpec) -> None:
    """Not by what some part of Dask says that was closed with it."""
    with connected(None, 1) as client:
        origin = DriverInfo("", ProbeFile("", ""), b"")
        session = Session(client, a_job, origin, lambda _: None)
        assert not session.lost
    with pytest.raises(DaskprsError, match="the cluster has gone"):
        _ = session.lost


def test_two_jobs_at_a_time_leave_the_settings_of_dask_as_they_were() -> None:
    """The one that began first ends first, in a thread of its own. The log is one of them."""
    before = {name: dask.config.get(name) for name in QUIET}
    shown, log = logging.StreamHandler(), logging.getLogger("distributed")
    with ExitStack() as last, ExitStack() as first, ExitStack() as second:
        log.addHandler(shown)
        last.callback(log.removeHandler, shown)
        first.enter_context(connected(None, 1))
        second.enter_context(connected(None, 1))
        first.close()
        assert {name: dask.config.get(name) for name in QUIET} == QUIET
        assert shown.level == logging.CRITICAL
    assert {name: dask.config.get(name) for name in QUIET} == before
    assert shown.level == logging.NOTSET


@pytest.mark.parametrize("given", [True, False], ids=["given", "current"])
def test_a_client_of_the_running_event_loop_is_refused_and_works_from_a_thread(
    tmp_path: Path, *, given: bool
) -> None:
    """The call would block the loop that the client needs; the message says what to write."""
    rows = pd.DataFrame({"number": range(4)})

    def call(client: Client) -> pd.DataFrame:
        result = daskprs.parallel_run(
            rows,
            lambda mini_batch: mini_batch,
            job_dir=tmp_path / "job",
            client=client if given else None,
            progress=False,
        )
        return result.to_pandas()

    async def work() -> pd.DataFrame:
        async with (
            LocalCluster(**IN_PROCESS, threads_per_worker=1, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(daskprs.OptionError, match=r"client: .* await daskprs\.start\("):
                call(client)
            assert not (tmp_path / "job").exists()
            return await asyncio.to_thread(call, client)

    pd.testing.assert_frame_equal(asyncio.run(work()), rows)


def test_a_closed_client_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    """It cannot be opened again."""
    with LocalCluster(**IN_PROCESS) as cluster, Client(cluster, set_as_default=False) as client:
        pass
    frame = pd.DataFrame({"n": [1]})
    with pytest.raises(OptionError, match=r"client: it is closed, .*Make a new distributed.Client"):
        daskprs.parallel_run(frame, lambda rows: rows, client=client, job_dir=tmp_path / "job")
    assert not list(tmp_path.iterdir())


IN_TIME_S = 60.0
UNREACHABLE = [
    ("localhost", "missing port number in address 'localhost'"),
    ("127.0.0.1", "missing port number in address '127.0.0.1'"),
    ("foo://x:1", "unknown address scheme 'foo'"),
    ("tcp://127.0.0.1:1", "nothing listens at tcp://127.0.0.1:1: the connection was refused"),
]


@pytest.mark.parametrize(
    ("command", "address", "why"),
    mostly_long(
        [(command, *case) for command, case in product(["run", "submit"], UNREACHABLE)],
        suite=[
            ("run", "foo://x:1", "unknown address scheme 'foo'"),
            ("submit", "tcp://127.0.0.1:1", "nothing listens at tcp://127.0.0.1:1"),
        ],
    ),
)
def test_an_address_without_a_scheduler_is_refused_before_anything_starts(
    tmp_path: Path, command: str, address: str, why: str
) -> None:
    """The process ends by itself with 2, and leaves no job folder."""
    (tmp_path / "script.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (tmp_path / "table.csv").write_text("a\n1\n")
    words = ("script.py", "table.csv", "--client", address)
    done = subprocess.run(
        [sys.executable, "-m", "daskprs", command, *words],
        cwd=tmp_path,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"},
        capture_output=True,
        text=True,
        timeout=IN_TIME_S,
        check=False,
    )
    assert done.returncode == 2
    assert f"--client {address}: no Dask scheduler can be reached: {why}" in done.stderr
    assert "Give the address that the scheduler prints" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "table.csv"]


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "No such file"), ("tcp://host:8786", "no address"), ("[1]", "no address")],
)
def test_a_scheduler_file_without_an_address_is_refused(
    tmp_path: Path, text: str | None, why: str
) -> None:
    """The scheduler has not started yet, or the file is another one."""
    file = tmp_path / "cluster.json"
    if text is not None:
        file.write_text(text)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(OptionError, match=f"client='{file}': the scheduler file .*{why}"),
    ):
        check_scheduler(str(file))


def test_a_scheduler_file_may_come_a_little_later(tmp_path: Path) -> None:
    """The scheduler was started in the line before."""
    file = tmp_path / "cluster.json"
    later = threading.Timer(0.2, lambda: file.write_text('{"address": "tcp://127.0.0.1:1"}'))
    later.start()
    assert scheduler_address(str(file)) == "tcp://127.0.0.1:1"
    later.join()


def test_a_server_that_never_answers_is_refused_within_the_timeout() -> None:
    """The port is another program's: it takes the connection, and says nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(OptionError, match="there was no answer within 1 s"),
    ):
        check_scheduler(f"tcp://127.0.0.1:{silent.getsockname()[1]}")


WITH_FEW_FILES = """
import os, resource, sys
import dask
from daskprs._cluster.connect import check_scheduler
from daskprs.errors import DaskprsError

dask.config.set({"distributed.comm.timeouts.connect": "2s"})
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
for _ in range(int(sys.argv[1])):
    os.close(taken.pop())
try:
    check_scheduler("tcp://127.0.0.1:1")
except DaskprsError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("free", mostly_long(range(4), suite=[0]))
def test_no_descriptors_for_an_event_loop_is_told_with_the_limit(free: int) -> None:
    """The scheduler is asked in a thread, which cannot make its event loop."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_FEW_FILES, str(free)],
        capture_output=True,
        text=True,
        timeout=IN_TIME_S,
        check=False,
    )
    assert done.stdout.startswith("AgentError The scheduler at tcp://127.0.0.1:1 "), done.stderr
    assert "RLIMIT_NOFILE allows 200 open files in a process, and all are in use" in done.stdout


def test_the_address_of_a_worker_is_none_of_a_scheduler(tmp_path: Path) -> None:
    """Both are in the log of a cluster, and are mixed up easily."""
    (tmp_path / "file").touch()
    cluster = ByHand(tmp_path)
    try:
        cluster.worker()
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            (worker,) = client.scheduler_info()["workers"]
        check_scheduler(cluster.address)
        (tmp_path / "cluster.json").write_text(json.dumps({"address": cluster.address}))
        check_scheduler(str(tmp_path / "cluster.json"))
        with connected(str(tmp_path / "cluster.json"), threads=0) as client:
            assert client.scheduler.address == cluster.address
        with pytest.raises(OptionError, match=f"client='{worker}': .*: a Worker answers there"):
            daskprs.parallel_run(
                [tmp_path / "file"], lambda files: files, client=worker, job_dir=tmp_path / "job"
            )
        assert not (tmp_path / "job").exists()
    finally:
        cluster.close()


def test_a_scheduler_with_tls_and_no_certificates_here_names_what_has_to_be_set() -> None:
    """Nothing is connected to: Dask has no certificates to connect with."""
    with pytest.raises(OptionError, match=r"TLS expects .* distributed\.comm\.tls\.ca-file"):
        check_scheduler("tls://127.0.0.1:1")


def test_a_wait_that_was_over_when_the_loop_ended_is_not_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any other error that nothing has received is."""
    with connected(None, 1) as client:
        loop = client.loop.asyncio_loop
    for error in (TimeoutError("a wait"), ValueError("a mistake")):
        future = loop.create_future()
        future.set_exception(error)
        del future
    gc.collect()
    assert "a mistake" in caplog.text
    assert "a wait" not in caplog.text


@pytest.mark.parametrize("owned", [LocalCluster, Client])
def test_a_program_that_ends_and_can_start_no_thread_still_cancels_its_job(
    monkeypatch: pytest.MonkeyPatch, owned: type[Client | LocalCluster]
) -> None:
    """Under Python 3.12.0 to 3.12.2, the end of the cluster's or the client's loop fails there."""
    close = owned.close

    def closed(self: Any) -> None:
        close(self)
        msg = "can't create new thread at interpreter shutdown"
        raise RuntimeError(msg)

    with LocalCluster(**IN_PROCESS) as cluster:
        monkeypatch.setattr(owned, "close", closed)
        client = cluster.scheduler_address if owned is Client else None
        with pytest.raises(KeyboardInterrupt), connected(client, 1):
            raise KeyboardInterrupt
        monkeypatch.undo()


def test_the_worker_of_a_job_without_a_cluster_has_no_profiler() -> None:
    """It may freeze the process of the caller under Python 3.11."""
    with dask.config.set({"distributed.worker.profile.enabled": True}), _in_process(1) as client:
        (worker,) = client.cluster.workers.values()
        assert "profile" not in worker.periodic_callbacks


def test_the_scheduler_of_a_job_does_not_stay_in_memory() -> None:
    """Nor does the worker: a notebook and a service have thousands of jobs in a process."""
    with _in_process(1) as client:
        (worker,) = client.cluster.workers.values()
        kept = [weakref.ref(client.cluster.scheduler), weakref.ref(worker)]
        client.submit(int, 1).result()
    del client, worker
    gc.collect()
    assert [one() for one in kept] == [None, None]


class Asked:
    """A finder that finds nothing, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, *more: Any) -> None:
        """Keep the name of a module that is imported."""
        del more
        self.names.append(name)


def test_no_worker_of_ours_imports_a_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bokeh is missing, the first jobs of two threads failed now and then."""
    asked = Asked()
    monkeypatch.setattr(sys, "meta_path", [asked, *sys.meta_path])
    with _in_process(1):
        pass
    assert "distributed.dashboard.worker" not in asked.names


def test_a_host_without_a_route_gets_no_warning(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """No other host has to reach what is in this process."""

    def connect(here: socket.socket, address: Any) -> None:
        if address[0] == "8.8.8.8":
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        super(socket.socket, here).connect(address)

    monkeypatch.setattr(utils, "_get_ip", toolz.memoize(utils._get_ip.__wrapped__))
    monkeypatch.setattr(inproc.global_manager, "_ip", None)
    monkeypatch.setattr(socket.socket, "connect", connect, raising=False)
    with connected(None, 1) as client:
        assert client.submit(len, "ab").result() == 2
    assert not [one for one in recwarn if one.category is RuntimeWarning]
