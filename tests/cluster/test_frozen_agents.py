"""Workers whose agents, or the zygotes of these, are stopped: the loop of the worker goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import psutil
import pytest
from distributed import Client
from distributed.threadpoolexecutor import threads_lock

import daskprs
from daskprs._cluster.thread_pool import drop_threads_that_never_began
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAST = 10
"""Answers at least: a worker sends a heartbeat meanwhile, however quick the rest is."""
ANSWER_S = 4.0
"""Seconds in which a worker answers: who waits for a stopped process waits five at least."""
ENDS_S = 30.0
"""Seconds in which a stopped agent and its zygote are ended."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a cluster of one worker, with two threads."""
    by_hand = ByHand(tmp_path_factory.mktemp("cluster"))
    try:
        by_hand.worker("--nthreads", "2")
        # A worker that still starts its own processes would seem to leave them.
        with Client(by_hand.address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
        yield by_hand.address
    finally:
        by_hand.close()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """Yield a client of the cluster."""
    with Client(address, set_as_default=False) as client:
        yield client


class Script:
    """A script that says which process it is in, and works for ever."""

    def __init__(self, told: Path) -> None:
        self.told = str(told)

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Work."""
        with open(f"{self.told}.{os.getpid()}", "w"):  # noqa: PTH123 - it runs in an agent
            pass
        time.sleep(600)
        return rows


def frozen_agent(folder: Path) -> list[psutil.Process]:
    """Wait for an agent, stop it and its zygote, and return both."""
    assert poll_for(lambda: any(folder.glob("told.*")), 60)
    agent = psutil.Process(int(next(folder.glob("told.*")).suffix[1:]))
    zygote = agent.parent()
    assert zygote is not None
    for process in (zygote, agent):
        process.send_signal(signal.SIGSTOP)
    return [agent, zygote]


def gone(process: psutil.Process) -> bool:
    """Say whether a process has ended."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def last_seen(dask_scheduler: Any) -> float:
    """Return when the scheduler heard of the worker."""
    return max(worker.last_seen for worker in dask_scheduler.workers.values())


@contextmanager
def answering(client: Client) -> Iterator[None]:
    """Ask the worker again and again: its loop answers, and it computes and sends heartbeats."""
    over, waited_s, failed = threading.Event(), [0.0], []

    def ask() -> None:
        try:
            while not over.is_set() or len(waited_s) < LEAST:
                time.sleep(0.1)
                begun_s = time.monotonic()
                client.run(os.getpid)
                client.submit(abs, -1, pure=False).result(60)
                waited_s.append(time.monotonic() - begun_s)
        except Exception as error:  # noqa: BLE001 - it is shown below
            failed.append(error)

    asking = threading.Thread(target=ask)
    before_s = client.run_on_scheduler(last_seen)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    assert not failed
    assert max(waited_s) < ANSWER_S
    assert client.run_on_scheduler(last_seen) > before_s


def test_a_worker_answers_while_the_agents_of_a_cancelled_job_do_not(
    tmp_path: Path, client: Client
) -> None:
    """Its leases are withdrawn, their agents are killed, and the plugin is torn down."""
    run = daskprs.start(
        pd.DataFrame({"number": range(8)}),
        Script(tmp_path / "told"),
        job_dir=tmp_path / "job",
        client=client,
        mini_batch_size=1,
        progress=False,
    )
    stopped = frozen_agent(tmp_path)
    with answering(client):
        run.cancel()
        assert run.wait(ENDS_S)
        assert poll_for(lambda: all(map(gone, stopped)), ENDS_S)


def test_a_worker_answers_while_the_agent_of_a_cancelled_task_does_not(
    tmp_path: Path, client: Client
) -> None:
    """Its zygote kills nobody, since it is stopped: the agent is killed all the same."""
    data = dd.from_pandas(pd.DataFrame({"number": range(2)}), npartitions=1)
    script = Script(tmp_path / "told")
    lazy = daskprs.map_batches(data, script, schema={"number": "int64"}, committed=False)
    future = client.compute(lazy)
    agent, zygote = frozen_agent(tmp_path)
    try:
        with answering(client):
            future.cancel()
            assert poll_for(lambda: gone(agent), ENDS_S)
    finally:
        zygote.kill()


def test_a_loop_does_not_wait_for_the_lock_of_all_pools() -> None:
    """Dask holds it for as long as it closes another worker of the process."""

    class Pool:
        _threads = {threading.Thread(), threading.current_thread()}  # noqa: RUF012

    pool: Any = Pool()
    with threads_lock:
        assert not drop_threads_that_never_began(pool)
    assert drop_threads_that_never_began(pool)
    assert pool._threads == {threading.current_thread()}
