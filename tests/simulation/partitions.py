"""Partitions of a collection, as workers stage them: what is computed is only its number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from dask._task_spec import Task

from daskprs._inputs.collections.partition_graph import PartitionGraph
from daskprs._inputs.collections.partition_table import PartitionCut
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.collections.staging_form import WHOLE, StagingForm
from daskprs._inputs.source.sizes import Size
from tests.simulation.promises import demand
from tests.simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from daskprs._cluster.partition_feed import Description
    from daskprs._inputs.source.pieces import PartitionSlice
    from tests.simulation.client import Client, Future
    from tests.simulation.scenario import Scenario

COMPUTED_S = 0.2
"""The most seconds that it takes to compute a partition."""


class Placed(NamedTuple):
    """Rows of a staged partition, on the worker whose agent gets them."""

    partition: int
    start: int
    stop: int


class Staged:
    """A staged partition: the result of a Dask task, and a dependency of leases."""

    def __init__(self, number: int, rows: int, step: int) -> None:
        self.number = number
        self._rows = rows
        self._step = step

    @property
    def cut(self) -> PartitionCut:
        """What the driver's table keeps."""
        return PartitionCut(self._rows, self._step, self._rows, _digest(self.number))

    def placed(self, piece: PartitionSlice, folder: Path) -> Placed:
        """Return the piece for an agent of this worker."""
        del folder
        demand(piece.partition == self.number, f"{piece} is looked for in {self.number}")
        demand(piece.digest == _digest(self.number), f"{piece} is of another partition")
        return Placed(piece.partition, piece.start, piece.stop)

    def remove(self) -> None:
        """There is no file."""


def _digest(number: int) -> str:
    return f"content of {number}"


def stage(number: int, rows: int, step: int, seconds: float, _: Mapping[int, Any]) -> Staged:
    """Compute a partition (a Dask task)."""
    now().wait(lambda: False, seconds)
    return Staged(number, rows, step)


def source_of(
    scenario: Scenario, scratch: Path, made: type[CollectionSource] = CollectionSource
) -> CollectionSource:
    """Return the collection of a scenario, whose table an earlier driver may have begun."""
    count = len(scenario.rows_of_partitions)
    keys = [("p", number) for number in range(count)]
    graph = PartitionGraph({key: Task(key, int, key[1]) for key in keys}, keys)
    collection: Any = SimpleNamespace(kind="bag", graph=graph, meta=None, token="token")  # noqa: S106
    size = Size(1, "rows") if scenario.is_cut else WHOLE
    source = made(collection, StagingForm("bag", size), "item")
    scratch.mkdir(exist_ok=True)
    source.open_table(scratch)
    return source


def know_all(source: CollectionSource, scenario: Scenario) -> None:
    """Let a source know its partitions, as if they had been computed in this process."""
    for number, rows in enumerate(scenario.rows_of_partitions):
        source.table.cuts[number] = PartitionCut(rows, _step(scenario, rows), rows, _digest(number))


def _step(scenario: Scenario, rows: int) -> int:
    return 1 if scenario.is_cut else max(1, rows)


class Staging:
    """In place of `submit_group`: a driver's tasks that stage partitions."""

    scenario: Scenario
    rng: Any

    @classmethod
    def first_of(cls, piece: Placed | PartitionSlice) -> int:
        """Return the number that a mini-batch of these rows has to have."""
        if not cls.scenario.is_cut:
            return piece.partition
        return sum(cls.scenario.partitions[: piece.partition]) + piece.start

    @classmethod
    def submit_group(
        cls,
        client: Client,
        group: Any,
        held: Mapping[Any, Any],
        tail: Mapping[Any, Any],
        wanted: Sequence[Any],
        workers: Sequence[str] = (),
    ) -> dict[Any, Future]:
        """Submit the task of a partition, and the one that describes it."""
        del held, tail
        rows, key, told = cls.scenario.rows_of_partitions[group.number], *wanted[:2]
        given = group.number, rows, _step(cls.scenario, rows), cls.rng.random() * COMPUTED_S
        staged = client.compute(stage, given, {}, key, workers)
        return {key: staged, told: client.compute(_described, (), {0: key}, told, ())}


def _described(needed: Mapping[int, Staged]) -> Description:
    """Return the description of a partition (a Dask task)."""
    return needed[0].cut, None, now().process.name
