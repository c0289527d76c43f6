"""Helpers: processes that call functions, each call in one that is idle or new."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from daskprs._agent.supervision import zygote as zygote_module
from daskprs._agent.supervision.helper_pool import SPAWN, HelperPool
from daskprs._agent.supervision.zygote import take_zygote
from daskprs._inputs.keys.dealing import dealt_part
from daskprs.errors import AgentError, LoadError
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_S = 60.0


@pytest.fixture
def pool() -> Iterator[HelperPool]:
    """Yield a pool of helpers that find the modules of the tests."""
    one = HelperPool({**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, LONGEST_S)
    yield one
    one.close()


def test_calls_use_idle_helpers_and_raise_what_is_raised_there(pool: HelperPool) -> None:
    """A helper outlives the error of a function."""
    first = pool.call("ask for its number", os.getpid)
    assert first != os.getpid()
    with pytest.raises(FileNotFoundError):
        pool.call("read", dealt_part, "/nowhere", 0)
    with pytest.raises(LoadError, match="as it is"):
        pool.call("raise", _raise, LoadError("as it is"))
    assert pool.call("ask again", os.getpid) == first


def test_a_helper_that_dies_is_replaced_once(pool: HelperPool, tmp_path: Path) -> None:
    """Then the error says what it was to do, and how it ended."""
    assert pool.call("die at first", _die_once, tmp_path / "died") == "alive"
    with pytest.raises(
        AgentError, match=r"was to deal out piece 3 .*-9 \(SIGKILL\), 2 times.*memory"
    ):
        pool.call("deal out piece 3", os.kill, 0, signal.SIGKILL)


def test_a_helper_that_hangs_is_replaced_once(pool: HelperPool) -> None:
    """As an agent is that takes too long to load a mini-batch."""
    pool._timeout_s = 0.5
    with pytest.raises(
        AgentError, match=r"was to sleep took longer than task_overhead_timeout=0.5 s, 2 times"
    ):
        pool.call("sleep", os.kill, 0, signal.SIGSTOP)
    pool._timeout_s = LONGEST_S
    assert pool.call("ask", os.getpid)


def test_rest_ends_helpers_and_leaves_their_zygote_to_agents(pool: HelperPool) -> None:
    """So its imports are not made twice; without agents it ends with the pool."""
    helper = psutil.Process(pool.call("ask", os.getpid))
    parent = helper.ppid()
    pool.rest()
    assert poll_for(lambda: not helper.is_running())
    zygote = take_zygote(pool._environment, "fork")
    assert zygote._process.pid == parent
    zygote.close()


def test_close_ends_a_call_that_is_under_way(pool: HelperPool, tmp_path: Path) -> None:
    """The thread that waits for it is not held up."""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            pool.call("wait", _wait, tmp_path / "waits")
        except AgentError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert poll_for((tmp_path / "waits").exists)
    pool.close()
    thread.join(30)
    assert len(caught) == 1


def _raise(error: Exception) -> None:
    raise error


def _die_once(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def _wait(mark: Path) -> None:
    mark.touch()
    signal.pause()


@pytest.mark.cold
@pytest.mark.timeout(100)
def test_a_pool_ends_though_its_zygote_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for a new helper holds the lock of the pool meanwhile."""
    monkeypatch.setattr(zygote_module, "CLOSE_TIMEOUT_S", 0.1)
    pool = HelperPool(os.environ, LONGEST_S, SPAWN)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(pool.call, "ask", os.getpid)
        assert poll_for(lambda: pool._starting is not None)
        zygote = pool._starting
        assert zygote is not None
        os.kill(zygote._process.pid, signal.SIGSTOP)
        pool.close()
        assert isinstance(call.exception(LONGEST_S), AgentError)
