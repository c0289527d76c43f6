"""The partitions of a collection, as the driver learns of them."""

from __future__ import annotations

from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dask._task_spec import Task
from distributed.comm import CommClosedError

from daskprs._cluster.partition_feed import PartitionFeed
from daskprs._inputs.collections.partition_graph import PartitionGraph
from daskprs._inputs.collections.partition_table import PartitionCut
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.collections.staging_form import WHOLE, StagingForm
from daskprs._inputs.source.sizes import Size
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from daskprs._cluster.partition_feed import Description


class Future:
    """A future that may be done, and whose result may not be there the first time."""

    def __init__(self, result: Any = None, *, is_done: bool = True, fails: int = 0) -> None:
        self.key = "a key"
        self.status = "finished" if is_done else "pending"
        self._result = result
        self._fails = fails
        self.is_fetched = False

    def done(self) -> bool:
        """Say whether it has ended."""
        return self.status != "pending"

    def result(self) -> Any:
        """Return the result, unless the connection is cut."""
        if self._fails:
            self._fails -= 1
            raise CommClosedError
        self.is_fetched = True
        return self._result

    def add_done_callback(self, call: Any) -> None:
        """Call it now; `PartitionFeed` looks for itself later."""
        if self.done():
            call(self)

    def release(self) -> None:
        """Do nothing."""


@contextmanager
def feeding(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: Size, *described: Future
) -> Iterator[Callable[[], list[tuple[int, int]]]]:
    """Feed partitions; yield what returns the number and the partition of what is known so far."""

    def submitted(*given: Any) -> dict[Any, Future]:
        key, told = given[4][:2]
        return {key: Future(), told: described[given[1].number]}

    monkeypatch.setattr("daskprs._cluster.partition_feed.submit_group", submitted)
    keys = [("p", number) for number in range(len(described))]
    graph = PartitionGraph({key: Task(key, int, 0) for key in keys}, keys)
    collection: Any = SimpleNamespace(kind="bag", graph=graph, meta=None, token=None)
    source = CollectionSource(collection, StagingForm("bag", size), "item")
    source.open_table(folder)
    client: Any = SimpleNamespace(submit=lambda *_, **__: Future(), scheduler_comm=None)
    with closing(PartitionFeed(source, "job0")) as feed:
        feed.open(client)
        plan, known = feed.plan(), list[tuple[int, int]]()

        def news() -> list[tuple[int, int]]:
            feed.turn({"a worker": 2})
            while (found := next(plan, None)) is not None:
                known.append((found.index, found.piece.partition))
            return known

        yield news


def description(rows: int) -> Description:
    """Return what a worker says of a partition that is cut into single rows."""
    return PartitionCut(rows, 1, rows, "a digest"), None, "a worker"


def test_a_description_that_a_cut_connection_has_lost_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the partition would count as one that cannot be computed."""
    with feeding(tmp_path, monkeypatch, WHOLE, Future(description(1), fails=2)) as news:
        assert poll_for(news)
        assert news() == [(0, 0)]


def test_rows_of_partitions_have_numbers_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever partition is computed first."""
    late, early = Future(description(2), is_done=False), Future(description(1))
    with feeding(tmp_path, monkeypatch, Size(1, "rows"), late, early) as news:
        assert poll_for(lambda: news() or early.is_fetched)
        assert news() == []
        late.status = "finished"
        assert poll_for(lambda: len(news()) == 3)
        assert news() == [(0, 0), (1, 0), (2, 1)]
