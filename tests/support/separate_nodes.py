"""Hosts made of namespaces: a Dask cluster whose nodes share neither a file nor an address.

Each node has a network, a mount and a process namespace of its own, held by a process that ends
at the end-of-file of its input, and everything in them with it: nothing is left on the machine,
however the test ends. Nodes hang on a bridge in the namespace of the scheduler, which is reached
by one more pair of interfaces::

    the test ──── scheduler (bridge) ──┬── node 0
                                       └── node 1
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import daskprs
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc"]
PROGRAMS = ("ip", "unshare", "nsenter", "mount")
PORT = 8786
START_S = 60.0
END_S = 20.0
ROOT = Path(daskprs.__file__).parents[1]


def why_not() -> str:
    """Return why there can be no such nodes on this machine; nothing where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"nodes with namespaces of their own need {', '.join(missing)}"
    trial = [*NAMESPACES, "ip", "link", "add", "trial", "type", "bridge"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"nodes with namespaces of their own cannot be made: {done.stderr.strip()}"
    return ""


class Host:
    """Namespaces, as long as their holder lives.

    Parameters
    ----------
    name
        Its host name.
    hidden
        Folders that are empty here: each is a small disk of its own.

    """

    def __init__(self, name: str, hidden: Sequence[Path]) -> None:
        self.name = name
        self._holder = subprocess.Popen([*NAMESPACES, "cat"], stdin=subprocess.PIPE)
        self._started: list[subprocess.Popen[bytes]] = []
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        assert poll_for(lambda: children.read_text().strip(), START_S), "no namespaces came up"
        self.pid = int(children.read_text())
        commands = [f"hostname {name}", "ip link set lo up"]
        commands += [f"mount -t tmpfs tmpfs '{folder}'" for folder in hidden]
        self.call("sh", "-ec", "\n".join(commands))

    def call(self, *command: str) -> str:
        """Run a command here, and return what it says."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self, *command: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program here; it ends with the host."""
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": tempfile.gettempdir()}
        process = subprocess.Popen(
            self._inside(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
        )
        self._started.append(process)
        return process

    def signal(self, number: int, pattern: str) -> None:
        """Send a signal to the programs here whose command line has a pattern."""
        self.call("pkill", f"-{number}", "-f", pattern)

    def power_off(self) -> None:
        """End everything here, at once."""
        if self._holder.stdin is not None:
            self._holder.stdin.close()
        try:
            self._holder.wait(END_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        for process in self._started:
            process.wait(END_S)

    def _inside(self, command: Sequence[str]) -> list[str]:
        spaces = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--uts", "--"]
        return [*spaces, *command]


class SeparateNodes:
    """A scheduler and nodes.

    Attributes
    ----------
    address
        Of the scheduler.
    nodes
        The hosts of the workers.
    log
        What scheduler and workers print.

    """

    def __init__(self, hidden: Sequence[Path], log: Path, stack: ExitStack) -> None:
        self._hidden = hidden
        self._stack = stack
        self._log = stack.enter_context(log.open("wb"))
        self.log = log
        self._net = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"
        self.address = f"tcp://{self._net}.1:{PORT}"
        self.nodes: list[Host] = []
        self.hub = self._host("scheduler")
        self.hub.call("sh", "-ec", f"ip link add bridge type bridge; {self._up('bridge', 1)}")
        ours = f"dprs{os.getpid()}"
        _ip("link", "add", ours, "type", "veth", "peer", "driver", "netns", str(self.hub.pid))
        # By itself it goes some time after its other end, and the next test takes the same name.
        self._stack.callback(_ip, "link", "del", ours)
        self.hub.call("ip", "link", "set", "driver", "up", "master", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", ours)
        _ip("link", "set", ours, "up")
        module = ["-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--no-show"]
        self.hub.start(sys.executable, *module, "--port", str(PORT), log=self._log)

    def add(self) -> Host:
        """Add a node, without a worker."""
        number = len(self.nodes)
        node = self._host(f"node{number}")
        peer = ["peer", "eth0", "netns", str(node.pid)]
        _ip("link", "add", node.name, "netns", str(self.hub.pid), "type", "veth", *peer)
        self.hub.call("ip", "link", "set", node.name, "up", "master", "bridge")
        node.call("sh", "-ec", self._up("eth0", number + 2))
        self.nodes.append(node)
        return node

    def start_worker(self, node: Host, *options: str, threads: int = 1) -> subprocess.Popen[bytes]:
        """Start a worker on a node, with its nanny unless the options say otherwise."""
        module = ["-m", "distributed.cli.dask_worker", self.address, "--no-dashboard"]
        size = ["--nthreads", str(threads), "--memory-limit", "0"]
        return node.start(sys.executable, *module, *size, *options, log=self._log)

    def cut(self, node: Host) -> None:
        """Cut a node from the network: nothing arrives any more, and nobody is told."""
        self.hub.call("ip", "link", "set", node.name, "down")

    def heal(self, node: Host) -> None:
        """Let a node be on the network again."""
        self.hub.call("ip", "link", "set", node.name, "up")

    def _host(self, name: str) -> Host:
        host = Host(name, self._hidden)
        self._stack.callback(host.power_off)
        return host

    def _up(self, interface: str, number: int) -> str:
        address = f"ip addr add {self._net}.{number}/24 dev {interface}"
        return f"{address}; ip link set {interface} up"


@contextmanager
def separate_nodes(
    log: Path, hidden: Sequence[Path], count: int = 2, threads: int = 1, *, nanny: bool = False
) -> Iterator[SeparateNodes]:
    """Yield a cluster with a worker on each node; everything ends with the block.

    Parameters
    ----------
    log
        File of what its processes print.
    hidden
        Folders of this machine that no node sees. The folder of temporary files is hidden, too.
    count, threads
        Nodes, and threads of each worker.
    nanny
        Let each worker have a nanny, which starts another one when it dies; this takes a second.

    """
    with ExitStack() as stack:
        nodes = SeparateNodes(all_hidden(hidden), log, stack)
        for _ in range(count):
            nodes.start_worker(nodes.add(), *([] if nanny else ["--no-nanny"]), threads=threads)
        yield nodes


def all_hidden(hidden: Sequence[Path]) -> list[Path]:
    """Return what to hide: the outermost folders, unless daskprs or Python would be hidden."""
    temporary = Path(tempfile.gettempdir())
    needed = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
    if not any(path.is_relative_to(temporary) for path in needed):
        hidden = [temporary, *hidden]
    return [
        folder
        for place, folder in enumerate(hidden)
        if not any(folder.is_relative_to(above) for above in hidden[:place])
    ]


def why_temporary_files_are_seen() -> str:
    """Return why nodes see the folder of temporary files; nothing where they do not."""
    temporary = Path(tempfile.gettempdir())
    if temporary in all_hidden([]):
        return ""
    return f"daskprs or Python lies in {temporary}, which cannot be hidden from nodes then"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S607
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
