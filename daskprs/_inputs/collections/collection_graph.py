"""The optimized graph of a Dask collection, cut by partition, and the collection's token."""

from __future__ import annotations

import re
import warnings
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dask.base import get_annotations, tokenize
from dask.blockwise import optimize_blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from daskprs._inputs.collections.partition_graph import PartitionGraph, is_future
from daskprs._inputs.source.columns import check_columns
from daskprs.errors import InputError, class_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dask.typing import Key

Kind = Literal["frame", "bag", "array", "delayed"]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Matches the id that Dask puts into the names of tasks whose result may differ each time."""
DATA_SET = "_dataset_info_cache"
"""The operand in which ``read_parquet`` keeps a data set of pyarrow and a checksum of its files."""
UNSTABLE = (DATA_SET, "_pq_length_stats")
"""Operands whose hashes are other ones in each process."""


class CollectionGraph(NamedTuple):
    """The tasks that compute a collection, with its kind and token."""

    kind: Kind
    graph: PartitionGraph
    meta: Any
    """The frame or array without rows that the collection announces; None if it announces none."""
    token: str | None
    """A text that is equal for collections that are made in the same way, and differs for others.

    Dask names a task by a hash of its function and arguments, files with their times included. The
    token is a hash of these names. It is None where there is a future, of which nothing but the
    result is known, or a name with a random part, as an impure Delayed has.

    Two things go unnoticed, so that the same token may have other content: a function whose result
    changes (it reads a clock, a file, a generator without seed), and a name that the caller gave
    (`dask_key_name`). Arguments of a Bag that Dask cannot hash give a new token each time.
    """
    collection: Any
    """The collection, which holds the futures in its graph as long as this is there."""


def collection_graph(data: Any, columns: Sequence[str] | None = None) -> CollectionGraph:
    """Return the graph of a dask DataFrame, Series, Bag or Array, or of Delayeds and futures.

    A Series is a frame of one column, of which `columns` may leave out some, and an Array is cut
    along its first axis. Delayeds and futures stand in a list or tuple, or alone. The graph is
    optimized, as Dask would compute it. Tasks keep their annotations. Kinds of annotations that a
    task does not have are taken from `dask.annotate` around this call.
    """
    match kind_of(data):
        case "frame":
            return _frame_graph(data, columns)
        case "bag":
            return _layered("bag", data, [data], None)
        case "array":
            blocks = blocks_of_rows(data)
            return _layered("array", data, [blocks], blocks._meta)  # noqa: SLF001 - Dask's name for it
        case "delayed":
            items = list(data) if isinstance(data, (list, tuple)) else [data]
            return _layered("delayed", data, items, None)


def kind_of(data: Any) -> Kind:
    """Return the kind of a collection; Delayeds and futures stand in a list or tuple, or alone.

    Raise `InputError` for a collection that cannot be cut.
    """
    kinds = _dask_classes(data)
    if {"DataFrame", "Series"} & kinds and "Index" not in kinds:
        return "frame"
    if "Bag" in kinds:
        return "bag"
    if "Array" in kinds:
        return "array"
    items = data if isinstance(data, (list, tuple)) else [data]
    if items and all(map(is_delayed, items)):
        return "delayed"
    msg = (
        "data: of dask's collections a DataFrame, a Series, a Bag and an Array can be cut, and so "
        f"can a list of Delayed objects or futures, not a {class_name(type(data))}."
    )
    raise InputError(msg)


def is_delayed(value: Any) -> bool:
    """Return whether a value is one partition: a Delayed, or the future of a cluster."""
    return is_future(value) or "Delayed" in _dask_classes(value)


def _dask_classes(value: Any) -> set[str]:
    """Return the names of a value's classes that are Dask's own; nothing is imported for it."""
    return {one.__name__ for one in type(value).__mro__ if one.__module__.split(".")[0] == "dask"}


def _frame_graph(data: Any, columns: Sequence[str] | None) -> CollectionGraph:
    with warnings.catch_warnings():
        # The warning says that Dask ignores the annotations; here tasks get them.
        warnings.filterwarnings("ignore", "Dask annotations")
        frame = data.to_frame() if "Series" in _dask_classes(data) else data
        if columns is not None:
            check_columns(columns, list(frame.columns), "columns")
            frame = frame[list(columns)]
        optimized = frame.optimize()
    tasks = optimized.__dask_graph__()
    meta = frame._meta  # noqa: SLF001 - Dask's name for it
    keys = optimized.__dask_keys__()
    found = _made("frame", data, tasks, keys, {}, meta, tasks)
    token = found.token and tokenize("frame", stable_name(frame.expr), len(keys))
    return found._replace(token=token)


def stable_name(expression: Any) -> str:
    """Return a name of a dask DataFrame's expression that is the same in each process.

    That is the name that Dask gives, a hash of all operands, unless the expression reads Parquet.
    """
    if all(DATA_SET not in one._parameters for one in expression.walk()):  # noqa: SLF001 - Dask's
        name: str = expression._name  # noqa: SLF001 - Dask's name for it
        return name
    return _digest(expression, {})


def _digest(expression: Any, known: dict[str, str]) -> str:
    """Return a hash of an expression's operands, without those that are unstable."""
    name = expression._name  # noqa: SLF001 - Dask's name for it
    if name not in known:
        parameters = expression._parameters  # noqa: SLF001 - Dask's name for it
        of_files = (
            expression._dataset_info["checksum"]  # noqa: SLF001 - Dask's name for it
            if DATA_SET in parameters
            else None
        )
        operands = [
            _stable(value, known)
            for parameter, value in zip_longest(parameters, expression.operands)
            if parameter not in UNSTABLE
        ]
        known[name] = tokenize(type(expression).__name__, operands, of_files)
    return known[name]


def _stable(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_stable(one, known) for one in value]
    return _digest(value, known) if hasattr(value, "operands") else value


def blocks_of_rows(array: Any) -> Any:
    """Return an array that is cut along its first axis alone."""
    if not array.ndim:
        msg = "data: an array without dimensions has no rows. Give one with at least one dimension."
        raise InputError(msg)
    if max(array.numblocks[1:], default=1) == 1:
        return array
    try:
        return array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    except ValueError as error:
        msg = (
            f"data: the array's blocks cannot be joined into whole rows: {error} Its chunks are "
            f"{array.chunks}. Call compute_chunk_sizes() first, or cut it along the first axis."
        )
        raise InputError(msg) from error


def _layered(kind: Kind, data: Any, collections: Sequence[Any], meta: Any) -> CollectionGraph:
    """Return the graph of collections whose graphs have layers, and of futures."""
    lazy = [one for one in collections if not is_future(one)]
    layers = HighLevelGraph.merge(*(_layers(one) for one in lazy))
    outputs = [
        key
        for one in collections
        for key in ([one.key] if is_future(one) else flatten(one.__dask_keys__()))
    ]
    futures = {one.key: one for one in collections if is_future(one)}
    names: Iterable[Any] = layers.layers
    for layer in layers.layers.values():
        if isinstance(layer, MaterializedLayer):
            names = chain(names, layer)
            futures |= {key: task for key, task in layer.items() if is_future(task)}
    wanted = [key for key in outputs if key not in futures]
    tasks: dict[Key, Any] = {}
    annotations: dict[Key, dict[str, Any]] = {}
    if wanted:
        optimized = _optimized(layers, wanted, lazy[0].__dask_optimize__)
        annotations = _annotations(optimized)
        tasks = dict(optimized)
    return _made(kind, data, {**tasks, **futures}, outputs, annotations, meta, names)


def _layers(collection: Any) -> HighLevelGraph:
    graph = collection.__dask_graph__()
    if isinstance(graph, HighLevelGraph):
        return graph
    return HighLevelGraph.from_collections(str(id(graph)), graph)


def _optimized(
    layers: HighLevelGraph, keys: list[Key], optimize: Callable[..., Any]
) -> Mapping[Key, Any]:
    """Return an optimized graph.

    The optimizers of Bag and Array drop annotations. So a graph that has some is optimized by the
    step that keeps them.
    """
    if any(layer.annotations for layer in layers.layers.values()):
        optimized: Mapping[Key, Any] = optimize_blockwise(layers, keys=keys).cull(set(keys))
    else:
        optimized = optimize(layers, keys)
    return optimized


def _annotations(graph: Mapping[Key, Any]) -> dict[Key, dict[str, Any]]:
    """Return the annotations of tasks, as their layers have them."""
    found: dict[Key, dict[str, Any]] = {}
    for layer in graph.layers.values() if isinstance(graph, HighLevelGraph) else ():
        if layer.annotations:
            for key in layer:
                if own := _annotations_of(key, layer.annotations):
                    found[key] = own
    return found


def _annotations_of(key: Key, annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a task; a layer may have some that this task does not have."""
    values = {kind: value(key) if callable(value) else value for kind, value in annotations.items()}
    return {
        kind: value
        for kind, value in values.items()
        if value is not None and type(value).__name__ != "_AnnotationsTombstone"
    }


def _made(
    kind: Kind,
    data: Any,
    tasks: Mapping[Key, Any],
    outputs: Sequence[Key],
    annotations: dict[Key, dict[str, Any]],
    meta: Any,
    names: Iterable[Any],
) -> CollectionGraph:
    if in_force := get_annotations():
        annotations = {
            key: _annotations_of(key, in_force) | annotations.get(key, {}) for key in tasks
        }
    graph = PartitionGraph(tasks, outputs, annotations)
    token = None if graph.futures or _any_random(names) else tokenize(kind, outputs)
    return CollectionGraph(kind, graph, meta, token, data)


def _any_random(names: Iterable[Any]) -> bool:
    """Return whether the name of a layer or key has a random part."""
    prefixes = {name[0] if isinstance(name, tuple) else name for name in names}
    return any(UUID.search(str(name)) for name in prefixes)
