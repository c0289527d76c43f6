"""Zygotes: they start agents, and take them all with them when they go."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from daskprs._agent.protocol.messages import ProcessSpec
from daskprs._agent.supervision import agent_process
from daskprs._agent.supervision.zygote import Zygote
from daskprs._agent.supervision.zygote_main import IMPORTED_ONCE
from daskprs.errors import AgentError
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._agent.supervision.agent_process import AgentProcess


pytestmark = pytest.mark.cold


OF_FEW = [
    *("asyncio", "bdb", "difflib", "email", "importlib.resources", "pyarrow.fs", "pyarrow.parquet"),
    *("ssl", "daskprs._agent.child.foreign_script", "daskprs._agent.foreign.main"),
    *("daskprs._core.rate_limit", "daskprs._folders", "daskprs._inputs.costs"),
    *("daskprs._inputs.files", "daskprs._output.journal", "daskprs._output.read_rows"),
]
"""What few agents need: some take as long to import as all modules of an agent together."""


def start(zygote: Zygote, folder: Path, number: int = 0) -> AgentProcess:
    """Start an agent that waits for its first message."""
    name = f"process{number:03d}"
    return zygote.start_agent(
        ProcessSpec(
            name=name,
            node=0,
            working_dir=str(folder / name),
            stdout=str(folder / f"{name}.stdout"),
            stderr=str(folder / f"{name}.stderr"),
            entry_script_log=str(folder / f"{name}.log"),
            spool=None,
            environment={"OWN": name},
        )
    )


def test_a_zygote_imports_nothing_that_few_agents_need() -> None:
    """It does so at the start of each job. NumPy, pandas and pyarrow import what they want."""
    packages = [name for name in IMPORTED_ONCE if not name.startswith("daskprs")]
    code = (
        f"import sys, {', '.join(packages)}; before = {{*sys.modules}}; "
        f"import {', '.join(IMPORTED_ONCE)}; print(*{{*{OF_FEW}}} & {{*sys.modules}} - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def gone(pid: int) -> bool:
    """Say whether a process has ended; nobody may have asked for its return code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(params=["fork", "spawn"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """Yield a zygote of each kind."""
    one = Zygote(os.environ, request.param)
    yield one
    one.close()


def test_an_agent_has_a_session_a_folder_and_an_environment_of_its_own(
    zygote: Zygote, tmp_path: Path
) -> None:
    """What was asked for is in force when its interpreter runs."""
    agent = start(zygote, tmp_path)
    process = psutil.Process(agent.pid)
    assert poll_for(lambda: process.cwd() == str(tmp_path / "process000"))
    assert os.getsid(agent.pid) == agent.pid
    assert agent.returncode(0.0) is None
    assert agent.kill() == -signal.SIGKILL
    assert gone(agent.pid)
    agent.close()


def test_the_end_of_a_log_is_that_of_its_own_process(zygote: Zygote, tmp_path: Path) -> None:
    """An earlier process of the same name has written to the same file, as before a resume."""
    log = tmp_path / "process000.stderr"
    log.write_text("Fatal Python error: of another process\n")
    agent = start(zygote, tmp_path)
    assert agent.stderr_from() == ""
    with log.open("a") as file:
        file.write("its own\n")
    assert agent.stderr_from() == "its own\n"
    agent.kill()
    agent.close()


def test_an_agent_whose_supervisor_hangs_up_ends_by_itself(zygote: Zygote, tmp_path: Path) -> None:
    """It waits for a message that cannot come."""
    agent = start(zygote, tmp_path)
    agent.channel.close()
    assert agent.returncode(30.0) is not None
    agent.close()


def test_a_stopped_agent_can_be_killed(zygote: Zygote, tmp_path: Path) -> None:
    """SIGSTOP keeps it from everything else."""
    agent = start(zygote, tmp_path)
    os.kill(agent.pid, signal.SIGSTOP)
    assert agent.kill() == -signal.SIGKILL
    agent.close()


def test_closing_a_zygote_ends_all_its_agents(tmp_path: Path) -> None:
    """Twice is as good as once."""
    zygote = Zygote(os.environ, "fork")
    agents = [start(zygote, tmp_path, number) for number in range(5)]
    zygote.close()
    zygote.close()
    for agent in agents:
        assert agent.returncode(30.0) == -signal.SIGKILL
        assert gone(agent.pid)
        agent.close()


def test_a_zygote_that_is_killed_takes_its_agents_and_says_so(tmp_path: Path) -> None:
    """The next order is refused with what happened and what to look at."""
    zygote = Zygote(os.environ, "fork")
    agent = start(zygote, tmp_path)
    parent = psutil.Process(agent.pid).parent()
    assert parent is not None
    parent.kill()
    assert agent.returncode(30.0) == -signal.SIGKILL
    assert poll_for(lambda: gone(agent.pid))
    assert poll_for(lambda: not zygote.alive)
    with pytest.raises(AgentError, match=r"is gone, with returncode -9"):
        start(zygote, tmp_path, 1)
    agent.close()
    zygote.close()


def test_a_process_whose_parent_has_gone_already_ends_at_once() -> None:
    """The kernel was asked too late to do it."""
    late = f"from daskprs._system.linux import die_with_parent; die_with_parent({os.getpid()} + 1)"
    assert subprocess.run([sys.executable, "-c", late], check=False).returncode == -signal.SIGKILL


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Zygote, AgentProcess]]:
    """Yield a zygote that is stopped, and an agent of it."""
    zygote = Zygote(os.environ, "spawn")
    agent = start(zygote, tmp_path)
    os.kill(zygote._process.pid, signal.SIGSTOP)
    yield zygote, agent
    zygote._process.kill()
    zygote.close()
    agent.close()


def test_an_agent_is_killed_though_its_zygote_is_stopped(
    stopped: tuple[Zygote, AgentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would work on for nobody."""
    monkeypatch.setattr(agent_process, "KILL_TIMEOUT_S", 0.2)
    _, agent = stopped
    assert agent.kill() == -signal.SIGKILL
    assert poll_for(lambda: gone(agent.pid))


@pytest.mark.timeout(60)
def test_a_zygote_that_takes_no_orders_holds_nobody_up(
    stopped: tuple[Zygote, AgentProcess], tmp_path: Path
) -> None:
    """Its socket is full at some time: then agents are killed from here, and none is forked."""
    zygote, agent = stopped
    zygote._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
    with suppress(BlockingIOError):
        while True:
            zygote._send(("kill", 0), [])
    zygote._order_kill(agent.pid)
    assert poll_for(lambda: gone(agent.pid))
    with pytest.raises(AgentError, match="its zygote took no order within"):
        start(zygote, tmp_path, 1)
    assert poll_for(lambda: not zygote.alive)


UNKILLABLE = """
import os, socket, time
from daskprs._agent.supervision import zygote_main
zygote_main.PURGE_LIMIT_S = 0.3
nursery = zygote_main.Nursery(socket.socketpair()[0], "", {})
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
kill, os.kill = os.kill, lambda *_: None
begun = time.monotonic()
assert nursery._purge() == []
assert 0.2 < time.monotonic() - begun < 20
kill(child, 9)
while nursery._strangers():
    nursery._reap()
"""


def test_a_zygote_does_not_wait_for_a_process_that_cannot_be_killed() -> None:
    """What waits for a dead disk stays, and the zygote obeys its orders."""
    subprocess.run([sys.executable, "-c", UNKILLABLE], check=True, timeout=60)


HUNG_UP = """
import os, socket, time
from daskprs._agent.supervision.zygote_main import Nursery
from daskprs._system.linux import children
if not os.fork():
    time.sleep(600)
    os._exit(0)
ours, parents = socket.socketpair(type=socket.SOCK_SEQPACKET)
nursery = Nursery(ours, "", {"a package": "what its parent does not read"})
parents.close()
assert nursery.serve() is None
assert not children(os.getpid())
"""


def test_a_zygote_whose_parent_was_killed_before_it_read_a_message_takes_its_agents() -> None:
    """The kernel calls this an error of the connection."""
    subprocess.run([sys.executable, "-c", HUNG_UP], check=True, timeout=60)
