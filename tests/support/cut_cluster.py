"""A cluster whose nodes can be cut off: each is a host of its own, with another address."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.hand_cluster import COME_BACK_S, START_S, has_workers, leftovers
from tests.support.separate_nodes import separate_nodes

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

NODES = 2
THREADS = 2


class CutCluster(ExitStack):
    """Two nodes, and a network that can be cut between either of them and the rest.

    They see all files but those of the temporary folder: a node that is cut off writes on into a
    job folder elsewhere.
    """

    scheduler = 0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        log = self._folder / "log"
        self._nodes = self.enter_context(separate_nodes(log, [], NODES, THREADS, nanny=True))
        self.address = self._nodes.address
        self.mend()
        return self

    def cut(self, host: str) -> None:
        """Cut a node off; nobody is told."""
        self._nodes.cut(next(node for node in self._nodes.nodes if node.name == host))

    def mend(self) -> None:
        """Let all nodes be on the network again, and wait until their workers are known.

        A worker that was cut off for long lives on, and is known to no scheduler any more: its
        node gets another one.
        """
        for node in self._nodes.nodes:
            self._nodes.heal(node)
        if not has_workers(self.address, NODES, COME_BACK_S):
            for node in self._nodes.nodes:
                node.call("sh", "-c", "pkill -9 -f [d]ask_worker || true")
                self._nodes.start_worker(node, threads=THREADS)
            assert has_workers(self.address, NODES, START_S), self._nodes.log.read_text()

    def leftovers(self) -> list[str]:
        """Return what the cluster still has of any job."""
        return leftovers(self.address)
