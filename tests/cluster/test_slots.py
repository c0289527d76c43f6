"""Which slots a cluster offers."""

from __future__ import annotations

from typing import Any

from daskprs.cluster.slots import Nodes


def workers(**hosts: str) -> dict[str, dict[str, Any]]:
    """Return workers of two threads each, as the scheduler describes them."""
    return {name: {"host": host, "nthreads": 2} for name, host in hosts.items()}


def dealt(nodes: Nodes, **hosts: str) -> dict[str, int]:
    """Return how many slots each of these workers has."""
    slots = nodes.slots(workers(**hosts))
    return {name: sum(slot.worker == name for slot in slots) for name in hosts}


def test_a_worker_offers_its_threads() -> None:
    """Nobody has said how many processes a node shall have."""
    assert dealt(Nodes(None, None), a="one", b="two") == {"a": 2, "b": 2}


def test_the_processes_of_a_node_are_dealt_out_evenly() -> None:
    """Workers on one host share what their node may have."""
    nodes = Nodes(None, 5)
    assert dealt(nodes, a="one", b="one", c="two") == {"a": 3, "b": 2, "c": 5}


def test_a_worker_that_joins_takes_nothing_away() -> None:
    """The slots of those that were there have work in them."""
    nodes = Nodes(None, 3)
    assert dealt(nodes, a="one") == {"a": 3}
    assert dealt(nodes, a="one", b="one") == {"a": 3, "b": 0}


def test_what_a_lost_worker_had_goes_to_those_that_live() -> None:
    """A node has as many processes as it shall, as long as there is a worker on it."""
    nodes = Nodes(None, 4)
    assert dealt(nodes, a="one", b="one") == {"a": 2, "b": 2}
    assert dealt(nodes, b="one", c="one") == {"b": 2, "c": 2}
    assert dealt(nodes, c="one") == {"c": 4}


def test_only_so_many_hosts_are_used() -> None:
    """They are numbered in the order in which they are seen first, for good."""
    nodes = Nodes(1, None)
    assert dealt(nodes, a="one", b="two") == {"a": 2, "b": 0}
    assert {slot.node for slot in nodes.slots(workers(b="two", a="one"))} == {0}
