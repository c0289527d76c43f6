"""A zygote, as its owner sees it: it starts agents, and they all end with it.

A zygote may be started ahead of its pool: importing pandas in it takes as long as importing Dask in
this process.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import threading
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.shared_page import SharedPage, new_page
from daskprs._agent.supervision.agent_process import AgentProcess
from daskprs._agent.supervision.channel import Channel
from daskprs._agent.supervision.masked_log import MaskedLog
from daskprs._agent.supervision.zygote_main import PACKET_BYTES, zygote_command
from daskprs._system.interrupts import held_back
from daskprs._system.masks import Mask
from daskprs._system.scarcity import explain
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daskprs._agent.protocol.messages import ProcessSpec

FORK_TIMEOUT_S = 120.0
"""Seconds in which a zygote must import pandas and fork, even on a busy machine; as many for each
package of `preload`."""
CLOSE_TIMEOUT_S = 5.0
ORDER_TIMEOUT_S = 5
"""Seconds in which a zygote must take an order."""
NO_AGENT = "an agent process could not be started"
WHY = "environment_variables and the memory of the machine are the usual causes"


class Zygote:
    """Starts agent processes in one environment.

    The environment is complete, and in force before any import. The constructor returns at once;
    the first `start_agent` waits until the zygote is up. All methods may be called from any thread.
    With ``fork``, the zygote imports the packages of `preload` first.
    """

    def __init__(
        self, environment: Mapping[str, str], start_method: str, preload: tuple[str, ...] = ()
    ) -> None:
        self.kind = dict(environment), start_method, preload
        """What tells zygotes apart: environment, start method, and what they import."""
        self.apart: dict[str, str] = {}
        """The packages of `preload` that each agent has to import, with the reasons; known once the
        first agent has started."""
        self._patience_s = FORK_TIMEOUT_S * (1 + len(preload))
        self._why = f"preload={[*preload]}, {WHY}" if preload else WHY
        self._agents: dict[int, AgentProcess] = {}
        self._fork_lock = threading.Lock()
        self._replies: list[tuple[str, object]] = []
        self._news = threading.Condition()
        self._early: dict[int, int] = {}
        self._gone = self._is_up = False
        self._listener = threading.Thread(target=self._listen, name="daskprs-zygote", daemon=True)
        try:
            with ExitStack() as undo:
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                # A zygote that is stopped reads no orders, and the socket holds some hundred.
                self._control.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ORDER_TIMEOUT_S, 0)
                )
                undo.enter_context(self._control)
                with theirs:
                    self._process = _started(theirs.fileno(), environment, start_method, preload)
                undo.callback(self._reap)
                undo.callback(self._process.kill)
                self._listener.start()
                undo.pop_all()
        except (OSError, ValueError, RuntimeError) as error:
            limit = explain(error) or f"{WHY}."
            msg = f"the process that agents are forked from cannot be started: {error}. {limit}"
            raise AgentError(msg) from error

    @property
    def alive(self) -> bool:
        """Whether the zygote can start agents."""
        return not self._gone

    def start_agent(
        self,
        spec: ProcessSpec,
        mask: Mask | None = None,
        *,
        runs_script: bool = True,
    ) -> AgentProcess:
        """Start an agent process, whose logs are masked, and return its handle."""
        try:
            page_fd = new_page()
            logs: list[MaskedLog] = []
            try:
                for number, path in enumerate((spec.stdout, spec.stderr) if mask else ()):
                    logs.append(MaskedLog(path, mask or Mask(), SharedPage(page_fd), number))
                ours, theirs = socket.socketpair()
                # One order at a time: the zygote's answers do not say which order they answer.
                with self._fork_lock, ours, theirs:
                    fds = [theirs.fileno(), page_fd, *(log.writer for log in logs)]
                    pid = self._forked(spec, fds)
                    channel = Channel(Connection(ours.detach()), runs_script=runs_script)
                    return self._adopted(pid, spec, channel, page_fd, logs)
            finally:
                for fd in (page_fd, *(log.writer for log in logs)):
                    os.close(fd)
        except OSError as error:
            raise AgentError(f"{NO_AGENT}: {error}. {explain(error)}".rstrip()) from error

    def _forked(self, spec: ProcessSpec, fds: list[int]) -> int:
        """Let the zygote fork, and return the process id of its child."""
        try:
            self._send(("fork", spec), fds)
        except BlockingIOError as error:
            self._process.kill()  # half of what it was told may be lost
            msg = f"{NO_AGENT}: its zygote took no order within {ORDER_TIMEOUT_S} s."
            raise AgentError(msg) from error
        except OSError as error:
            raise AgentError(self._obituary()) from error
        match self._reply():
            case ("forked", int(pid)):
                return pid
            case (_, why):
                msg = f"{NO_AGENT}: {why}."
                raise AgentError(msg)

    def _adopted(
        self,
        pid: int,
        spec: ProcessSpec,
        channel: Channel,
        page_fd: int,
        logs: Sequence[MaskedLog],
    ) -> AgentProcess:
        try:
            agent = AgentProcess(spec, pid, channel, page_fd, self._order_kill, logs)
        except OSError:
            channel.close()
            self._order_kill(pid)
            raise
        agent.apart = tuple(f"{name} ({reason})" for name, reason in self.apart.items())
        with self._news:
            # The zygote is gone, or has reaped the agent before we knew of it: no other message
            # will report this end.
            if self._gone or pid in self._early:
                agent.ended(self._early.pop(pid, -signal.SIGKILL))
            else:
                self._agents[pid] = agent
        return agent

    def close(self) -> None:
        """Kill all agents with their descendants, and the zygote; may be called twice."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        if not self._is_up:  # it imports, and has nothing to end in order
            self._process.kill()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._reap()
        self._listener.join(CLOSE_TIMEOUT_S)
        self._control.close()

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):  # it waits for a disk or a device
            self._process.wait(CLOSE_TIMEOUT_S)

    def discard(self) -> None:
        """End a zygote without agents, without waiting for its imports."""
        self._process.kill()
        self.close()

    # ---- messages ----

    def _send(self, order: tuple[str, object], fds: list[int]) -> None:
        socket.send_fds(self._control, [pickle.dumps(order)], fds)

    def _order_kill(self, pid: int) -> None:
        try:
            self._send(("kill", pid), [])
        except OSError:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _reply(self) -> tuple[str, object]:
        with self._news:
            answered = self._news.wait_for(lambda: self._replies or self._gone, self._patience_s)
            if not answered:
                # A late answer would be taken for the answer to the next order.
                self._process.kill()
                return ("refused", f"no answer within {self._patience_s:g} s; {self._why}")
            return self._replies.pop() if self._replies else ("refused", self._obituary())

    def _listen(self) -> None:
        with suppress(OSError):
            while packet := self._control.recv(PACKET_BYTES):
                self._note(json.loads(packet))
        with self._news:
            self._gone = True
            for pid, agent in self._agents.items():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                agent.ended(-signal.SIGKILL, orphaned=True)
            self._agents.clear()
            self._news.notify_all()

    def _note(self, message: Any) -> None:
        with self._news:
            self._is_up = True
            match message:
                case ("exited", int(pid), int(returncode), int(peak_bytes)):
                    agent = self._agents.pop(pid, None)
                    if agent is None:
                        self._early[pid] = returncode
                    else:
                        agent.ended(returncode, peak_bytes)
                case ("apart", dict(apart)):
                    self.apart = apart
                case ("forked", int()) | ("refused", str()):
                    self._replies.append(tuple(message))
                    self._news.notify_all()

    def _obituary(self) -> str:
        # The zygote's sockets close a moment before the kernel reports its end.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_TIMEOUT_S)
        return (
            f"the process that agents are forked from (pid {self._process.pid}) is gone, with "
            f"returncode {self._process.returncode}. Look above for what it wrote to stderr; "
            f"{self._why}"
        )


def _started(
    control_fd: int, environment: Mapping[str, str], start_method: str, preload: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        zygote_command(control_fd, start_method, preload, {}),
        env=dict(environment),
        pass_fds=[control_fd],
        stdin=subprocess.DEVNULL,
        # Ctrl-C in a terminal is for the driver, which ends its agents in order.
        start_new_session=True,
    )


_lock = threading.Lock()
_ahead: list[Zygote] = []
"""Unused zygotes that were started in this process."""


@contextmanager
def started_ahead(
    environment: Mapping[str, str], start_method: str, preload: tuple[str, ...]
) -> Iterator[None]:
    """Start a zygote for a pool in this process; end it after the block if no pool took it.

    A failed start is ignored here: the pool tries again and reports the error in the job's result.
    """
    zygote: Zygote | None = None
    try:
        with suppress(AgentError), held_back():  # else a Ctrl-C could part it from its end
            zygote = Zygote(environment, start_method, preload)
            keep_ahead(zygote)
        yield
    finally:
        if zygote is not None:
            discard_kept(zygote)


def keep_ahead(zygote: Zygote) -> None:
    """Keep a zygote without agents for a pool in this process."""
    with _lock:
        _ahead.append(zygote)


def discard_kept(zygote: Zygote) -> None:
    """End a zygote that was kept, unless a pool has taken it."""
    with _lock:
        is_kept = zygote in _ahead
        if is_kept:
            _ahead.remove(zygote)
    if is_kept:
        zygote.discard()


def take_zygote(
    environment: Mapping[str, str], start_method: str, preload: tuple[str, ...] = ()
) -> Zygote:
    """Return a zygote that was started ahead with this environment, or a new one."""
    with _lock:
        for zygote in _ahead:
            if zygote.kind == (environment, start_method, preload):
                _ahead.remove(zygote)
                return zygote
    return Zygote(environment, start_method, preload)
