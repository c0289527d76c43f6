"""The nodes that tests of clusters use: they share nothing, and can be cut from the network."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from distributed import Client

from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not

if TYPE_CHECKING:
    from pathlib import Path


def answers(worker: str) -> bool:
    """Say whether somebody takes a connection at the address of a worker."""
    host, port = worker.removeprefix("tcp://").split(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 0.5):
        return True
    return False


@pytest.mark.long
def test_nodes_share_no_file_and_can_be_cut_from_the_network(tmp_path: Path) -> None:
    """A folder of the test is empty there; what is cut answers nobody until it is healed."""
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "here").touch()
    with (
        separate_nodes(tmp_path / "log", [tmp_path], count=2) as nodes,
        Client(nodes.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        workers = client.run(lambda: (socket.gethostname(), os.path.exists(str(tmp_path / "here"))))  # noqa: PTH110 - runs on a node
        assert sorted(workers.values()) == [("node0", False), ("node1", False)]
        cut = next(address for address, (host, _) in workers.items() if host == "node0")
        assert answers(cut)
        nodes.cut(nodes.nodes[0])
        assert not answers(cut)
        nodes.heal(nodes.nodes[0])
        assert poll_for(lambda: answers(cut))
