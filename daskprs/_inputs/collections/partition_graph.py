"""The task graph of a collection, cut into the tasks of each partition."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from dask._task_spec import Alias, TaskRef, convert_legacy_graph

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dask.typing import Key

FEW = 2
"""Tasks that begin a partition which one worker computes: those of a merge, say."""


class TaskGroup(NamedTuple):
    """The tasks that a partition is the first to need."""

    number: int
    """The partition's."""
    output: Key
    """The key whose result is the partition: a task here, one of `uses`, or the future's key."""
    tasks: dict[Key, Any]
    uses: frozenset[Key]
    """The keys of earlier partitions' tasks that these tasks, or the output, depend on."""
    keeps: dict[Key, int]
    """The keys that later partitions use, each with the number of the last one that does.

    Their futures have to be held until that partition is computed, so that Dask keeps the results.
    """
    ends: tuple[Key, ...]
    """The keys of earlier partitions' tasks that no later partition uses."""
    is_free: bool
    """Whether any one worker may compute the partition, since it is as good a place as another.

    Otherwise Dask finds the places better: many tasks begin the partition, which several workers
    share, or one of its tasks depends on a result that no other partition uses.
    """
    annotations: dict[Key, Mapping[str, Any]]
    """The annotations of tasks: workers, resources, priority, retries."""
    future: Any = None
    """The future that is the partition, if a cluster computes it or has computed it already."""


class PartitionGraph:
    """A task graph, of which each partition is computed by itself, in order.

    Each task belongs to the first partition that needs it. Tasks that no partition needs are left
    out. A partition whose key, one of the `outputs`, stands for a future, or for another key, is
    what it stands for. Futures stand for results that a cluster has, or will have. The graph keeps
    them.
    """

    def __init__(
        self,
        tasks: Mapping[Key, Any],
        outputs: Sequence[Key],
        annotations: Mapping[Key, Mapping[str, Any]] | None = None,
    ) -> None:
        self.futures = {key: task for key, task in tasks.items() if is_future(task)}
        """The futures that stand in the graph, by the key that they stand for."""
        self._tasks = convert_legacy_graph(tasks)
        self._annotations = annotations or {}
        self._outputs = list(map(self._resolved, outputs))
        self.wanted: Sequence[int] = range(len(outputs))
        """The numbers of the partitions that are to be computed, in order."""

    def __len__(self) -> int:
        """Return the number of partitions, those that are not wanted included."""
        return len(self._outputs)

    def of(self, wanted: Collection[int]) -> PartitionGraph:
        """Return the graph of some of the partitions, under the numbers that they have here."""
        other = copy(self)
        other.wanted = sorted(wanted)
        other.__dict__.pop("_cut", None)
        return other

    def only(self, wanted: Collection[int]) -> PartitionGraph:
        """Return the graph of some of the partitions, without the tasks of all others.

        Raise `ValueError` when one of them is, or needs, the future of a cluster: the result goes
        with it.
        """
        other = self.of(wanted)
        order, pieces = other._cut  # noqa: SLF001 - of this very class
        needed = {key for piece in pieces.values() for key in piece.needs}
        if needed & self.futures.keys():
            msg = "the collection holds futures, whose results are those of a cluster"
            raise ValueError(msg)
        other._tasks = {key: self._tasks[key] for key in order}  # noqa: SLF001
        other._annotations, other.futures = {}, {}  # noqa: SLF001
        return other

    def group(self, number: int) -> TaskGroup:
        """Return the tasks of a wanted partition."""
        order, pieces = self._cut
        piece = pieces[number]
        tasks = {key: self._tasks[key] for key in order[piece.start : piece.stop]}
        roots = sum(tasks.keys().isdisjoint(task.dependencies) for task in tasks.values())
        output = self._outputs[number]
        future = self.futures.get(output)
        return TaskGroup(
            number,
            output if future is None else future.key,
            tasks,
            frozenset(piece.needs & self._tasks.keys()),
            piece.keeps,
            tuple(piece.ends),
            is_free=roots <= FEW and not piece.has_part,
            annotations={key: self._annotations[key] for key in tasks if key in self._annotations},
            future=future,
        )

    def _resolved(self, key: Key) -> Key:
        """Return the key that a partition's key stands for, which has a task or a future."""
        while key not in self.futures and isinstance(task := self._tasks.get(key), Alias):
            if task.target not in self._tasks and task.target not in self.futures:
                break
            key = task.target
        return key

    @cached_property
    def _cut(self) -> tuple[list[Key], dict[int, TaskSlice]]:
        """Return the keys of all tasks, partition by partition, and the slice of each partition."""
        order: list[Key] = []
        pieces: dict[int, TaskSlice] = {}
        owners: dict[Key, TaskSlice] = {}
        for number in self.wanted:
            piece = pieces[number] = TaskSlice(start=len(order))
            stack = [self._outputs[number]]
            while stack:
                key = stack.pop()
                if key in self._tasks and key not in owners:
                    owners[key] = piece
                    order.append(key)
                    stack.extend(self._tasks[key].dependencies)
                elif owners.get(key) is not piece:
                    piece.needs.add(key)
            piece.stop = len(order)
        _link(pieces, owners)
        return order, pieces


@dataclass(slots=True)
class TaskSlice:
    """The tasks of a partition, as a slice of all, and the results that it shares with others."""

    start: int
    stop: int = 0
    needs: set[Key] = field(default_factory=set)
    """The keys of earlier partitions' tasks, and of futures, that the tasks depend on."""
    keeps: dict[Key, int] = field(default_factory=dict)
    ends: list[Key] = field(default_factory=list)
    has_part: bool = False
    """Whether this partition alone depends on one of these."""


def _link(pieces: Mapping[int, TaskSlice], owners: Mapping[Key, TaskSlice]) -> None:
    """Note what each partition keeps for later ones, given what these need."""
    users = Counter(key for piece in pieces.values() for key in piece.needs)
    for number, piece in pieces.items():
        piece.has_part = any(users[key] == 1 for key in piece.needs)
        for key in piece.needs & owners.keys():
            owners[key].keeps[key] = number
    for piece in pieces.values():
        for key, last in piece.keeps.items():
            pieces[last].ends.append(key)


def is_future(value: Any) -> bool:
    """Return whether a value is the future of a cluster."""
    if type(value) is TaskRef:  # names a key, and holds nothing
        return False
    return isinstance(value, TaskRef) or getattr(value, "__dask_future__", False) is True
