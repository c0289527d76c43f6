"""The code of a zygote and its forks: it makes agents, reaps them, and kills what they leave.

A zygote starts with the final environment (thread counts, ``LD_*``, ``PYTHON*``) before its first
import. For ``fork`` it imports pandas and pyarrow once, the slowest part of an agent's start, and
the packages of `preload`; it starts anew without one that a fork does not survive. It
is single-threaded, forks from its main thread, and is a child subreaper: a process that an agent
leaves behind becomes the zygote's child, and is killed. The control socket (packets, so that each
message is whole) carries::

    ("fork", spec) + 2 descriptors  ──>      the agent's socket and its page; 4: also its stdout and
                                             stderr, where its logs are masked
                                    <──      ("forked", pid) or ("refused", message)
                                    <──      ("apart", {package: reason}), once, before the others
    ("kill", pid)                   ──>      the agent, and every descendant
                                    <──      ("exited", pid, returncode, peak_bytes)

At end-of-file, or when its parent is gone, the zygote kills all agents and ends.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import importlib
import json
import os
import pickle
import platform
import select
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from daskprs._agent.supervision.preload import KeptOutError, PreloadError, import_once
from daskprs._system import linux
from daskprs._system.scarcity import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daskprs._agent.protocol.messages import ProcessSpec

    Inherited: TypeAlias = tuple[ProcessSpec, list[int]]
    """The parts of the zygote's loop that a fork keeps: specification, socket and page."""
    _End: TypeAlias = tuple[int, int, int]
    """The process id of an agent, its return code, and its highest memory."""

PARENT_CHECK_S = 1.0
"""Seconds between checks of whether the parent lives. End-of-file does not suffice: another
process may hold a copy of the parent's end."""
PURGE_LIMIT_S = 5.0
"""Seconds after which the zygote stops killing a script that forks faster than it dies."""
TRACKERS_END_WITHIN_S = 2.0
"""Seconds in which a resource tracker of Python or joblib may tidy up after a dead agent."""
KEPT_BYTES = 64 << 20
"""Freed memory that an agent keeps for its next mini-batch. glibc raises its own limit to this at
most, and often to less: a process that decoded pictures of 150 kB, 64 at a time, spent 6 % of its
time on memory that it got from the kernel anew for each picture."""
PACKET_BYTES = 1 << 17
DESCRIPTORS, MASKED = 2, 4
"""Descriptors that come with an order to fork, and as many with masked logs."""
IN_START = ("daskprs._core.limits", "daskprs._output.spec", "daskprs._system.hidden_values")
"""Modules of what is in the first message to each agent."""
IMPORTED_ONCE = ("numpy", "pandas", "pyarrow", *IN_START, "daskprs._agent.child.main")
"""What all agents need: it is imported at the start of each job."""


_BOOT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "daskprs", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
sys.modules["daskprs"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from daskprs._agent.supervision.zygote_main import boot
sys.exit(boot(*sys.argv[2:]))
"""


def boot_command(*words: str) -> list[str]:
    """Return a command line that calls `boot` in a fresh interpreter.

    The interpreter imports this very package, however the caller has found it. Nothing is added
    to the path: the entry script may have modules of any name. `-P` keeps the caller's working
    directory out.
    """
    package = str(Path(__file__).parents[2])
    return [sys.executable, "-P", "-c", _BOOT, package, *words]


class Nursery:
    """The zygote's one loop."""

    def __init__(self, control: socket.socket, refusal: str, apart: Mapping[str, str]) -> None:
        self._control = control
        self._refusal = refusal
        """Why no agents are started."""
        if apart:
            self._send(("apart", apart))
        self._parent = os.getppid()
        self._agents: set[int] = set()
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._wake_writer = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> Inherited | None:
        """Fork and reap; return None at the end, and the inherited data in each fork."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while os.getppid() == self._parent:
            ready = {fd for fd, _ in poll.poll(PARENT_CHECK_S * 1000)}
            if self._wake.fileno() in ready:
                self._reap()
            if self._control.fileno() in ready:
                try:
                    packet, fds, _, _ = socket.recv_fds(self._control, PACKET_BYTES, MASKED)
                except ConnectionResetError:  # the parent was killed, and had messages to read yet
                    break
                if not packet:
                    break
                inherited = self._obey(pickle.loads(packet), fds)
                if inherited is not None:
                    return inherited
        self._agents.clear()
        self._purge()
        return None

    def _obey(self, order: tuple[str, object], fds: list[int]) -> Inherited | None:
        match order:
            case ("fork", spec):
                return self._fork(spec, fds)  # type: ignore[arg-type]
            # Its descendants are killed when it is reaped. Not its group, which has its resource
            # tracker.
            case ("kill", int(pid)) if pid in self._agents:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return None

    def _fork(self, spec: ProcessSpec, fds: list[int]) -> Inherited | None:
        try:
            if self._refusal:
                raise OSError(self._refusal)
            # The kernel drops those that do not fit into this process.
            if len(fds) != (MASKED if spec.masked else DESCRIPTORS):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._send(("refused", f"{error}. {explain(error)}".rstrip(". ")))
        if pid == 0:
            self._let_go()
            return spec, fds
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self._agents.add(pid)
            self._send(("forked", pid))
        return None

    def _let_go(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._control, self._wake, self._wake_writer):
            end.close()

    def _reap(self) -> None:
        """Report agents that have ended, after killing the processes they left behind."""
        ended = self._reaped()
        if ended or self._strangers():
            ended += self._purge()
        # Not before the purge: what an agent has left behind must not write beside the next one.
        for end in ended:
            self._send(("exited", *end))

    def _strangers(self) -> list[int]:
        return [pid for pid in linux.children(os.getpid()) if pid not in self._agents]

    def _purge(self) -> list[_End]:
        """Kill all children other than agents; return the agents that ended meanwhile.

        The resource trackers of Python and joblib come last: each ends by itself once all others
        have, and removes the shared memory, semaphores and temporary files that these have left.
        """
        ended: list[_End] = []
        begun = time.monotonic()
        while (left := self._strangers()) and time.monotonic() < begun + PURGE_LIMIT_S:
            others = [pid for pid in left if not linux.is_resource_tracker(pid)]
            tidy_s = begun + TRACKERS_END_WITHIN_S - time.monotonic()
            wait_s = begun + PURGE_LIMIT_S - time.monotonic()
            if not others and tidy_s > 0:
                wait_s = tidy_s
            else:
                for pid in others or left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            # Wait until one of them ends: its own children are ours in the next round. One that
            # waits for a disk or a device may not, and then orders are obeyed all the same.
            select.select([self._wake], [], [], max(0.0, wait_s))
            ended += self._reaped()
        return ended

    def _reaped(self) -> list[_End]:
        """Reap all children that have ended; return the ends of agents among them."""
        ended: list[_End] = []
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._agents:
                    self._agents.discard(pid)
                    ended.append((pid, os.waitstatus_to_exitcode(status), used.ru_maxrss << 10))
        return ended

    def _send(self, message: tuple[object, ...]) -> None:
        with contextlib.suppress(OSError):  # the owner has closed its end: the next read shows that
            self._control.send(json.dumps(message).encode())


def boot(role: str, *words: str) -> int:
    """Run a zygote, or an agent in an interpreter of its own, as the command line says."""
    if role == "zygote":
        control_fd, start_method, preload = words
        return main(int(control_fd), start_method, *json.loads(preload))
    connection_fd, page_fd, program = words
    return _run_agent(int(connection_fd), int(page_fd), program)


def zygote_command(
    control_fd: int, start_method: str, preload: Sequence[str], apart: Mapping[str, str]
) -> list[str]:
    """Return the command line of a zygote; `apart` are packages that it must not import."""
    return boot_command("zygote", str(control_fd), start_method, json.dumps([preload, apart]))


def main(control_fd: int, start_method: str, preload: Sequence[str], apart: dict[str, str]) -> int:
    """Run a zygote, and an agent in each of its forks; with ``spawn`` after an exec."""
    linux.adopt_orphans()
    # A stopped zygote (SIGSTOP) cannot see that its parent has died: it stayed, with all its
    # agents.
    linux.wake_with_parent()
    # The mask is inherited: a caller that blocks SIGCHLD would hide the end of each agent.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    refusal = ""
    if start_method == "fork":
        faulthandler.enable(2)  # it names the package whose import crashes
        # Modules make hundreds of thousands of objects, and hardly any garbage: collections took a
        # sixth of the time for our own modules, and a quarter for PyTorch with torchvision.
        gc.disable()
        _import_ours()
        try:
            environment = dict(os.environ)
            import_once([name for name in preload if name not in apart])
        except KeptOutError as error:
            name, reason = error.args
            for pid in linux.descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _close_all_but([control_fd])
            command = zygote_command(control_fd, start_method, preload, {**apart, name: reason})
            os.execve(command[0], command, environment)  # noqa: S606 - our own interpreter
        except PreloadError as error:
            refusal = f"preload: {error}. Install it on {platform.node()}, or leave it out"
        gc.collect()
        gc.freeze()
        gc.enable()
    zygote = os.getpid()
    inherited = Nursery(socket.socket(fileno=control_fd), refusal, apart).serve()
    if inherited is None:
        os._exit(0)  # unloading pandas would hold up the end of the job
    spec, fds = inherited
    keep = fds[:DESCRIPTORS]
    _become_agent(spec, zygote, keep, fds[DESCRIPTORS:])
    if start_method == "fork":
        connection_fd, page_fd = keep
        return _run_agent(connection_fd, page_fd, spec.program)
    for fd in keep:
        os.set_inheritable(fd, True)
    command = boot_command("agent", *map(str, keep), spec.program)
    return os.execv(command[0], command)  # noqa: S606 - our own interpreter


def _import_ours() -> None:
    """Import what all forks need.

    Forks share the pages of these objects. A collection in a fork would write to each object, and
    so copy the pages: they are frozen. The one at the end need not look at them, either.
    """
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    gc.freeze()


def _become_agent(spec: ProcessSpec, zygote: int, keep: list[int], logs: list[int]) -> None:
    """Set up a fork as an agent: its session, signals, environment and descriptors survive an exec.

    The agent leads a session of its own (Ctrl-C in the terminal does not reach it), dies with the
    zygote and adopts its orphans. It keeps only the descriptors of its logs and of `keep`; `logs`
    are pipes, if its logs are masked.
    """
    os.setsid()
    linux.die_with_parent(zygote)
    linux.adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    Path(spec.working_dir).mkdir(parents=True, exist_ok=True)
    os.chdir(spec.working_dir)
    os.environ.update(spec.environment)
    _redirect(os.devnull, 0, os.O_RDONLY)
    for fd, pipe in enumerate(logs, 1):
        os.dup2(pipe, fd)
    if not logs:
        _redirect(spec.stdout, 1, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _redirect(spec.stderr, 2, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _close_all_but(keep)


def _run_agent(connection_fd: int, page_fd: int, program: str) -> int:
    """Set up the interpreter, run the agent or another program, and return its exit code."""
    from daskprs._agent.foreign.script_process import log_text

    linux.keep_freed_memory(KEPT_BYTES)
    main: Callable[[Connection, int], int] = importlib.import_module(program).main
    sys.stdout, sys.stderr = log_text(1), log_text(2)
    faulthandler.enable(2)
    faulthandler.register(linux.DUMP_SIGNAL, 2, all_threads=True, chain=False)
    if "numpy" in sys.modules:  # Python's own generator reseeds itself after a fork
        sys.modules["numpy"].random.seed()
    return main(Connection(connection_fd), page_fd)


def _redirect(path: str, fd: int, flags: int) -> None:
    opened = os.open(path, flags, 0o666)
    if opened != fd:
        os.dup2(opened, fd)
        os.close(opened)
    else:
        os.set_inheritable(fd, True)


def _close_all_but(keep: list[int]) -> None:
    kept = {0, 1, 2, *keep}
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)
