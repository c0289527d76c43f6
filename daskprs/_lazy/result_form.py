"""The announced form of a lazy collection, and its partitions, made of what `run` returned."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from dask.dataframe.dispatch import make_meta
from dask.dataframe.utils import clear_known_categories
from pandas.api.types import union_categoricals

from daskprs._arrow.exact_casts import MISFITS
from daskprs._inputs.source.given_types import converted
from daskprs._options.rules import check_one_of
from daskprs._output.rows.given_schema import schema_of
from daskprs._output.rows.result_tables import one_frame
from daskprs._output.rows.typed_rows import KeptTable
from daskprs.errors import Option, OptionError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daskprs._output.rows.typed_rows import TypedPiece


TEXT = "str" if pd.__version__ >= "3" else "string"
"""A type that says that a column holds text; ``str`` is ``object`` before pandas 3."""


class ResultForm(NamedTuple):
    """The type of a collection's partitions."""

    meta: pd.DataFrame | None
    """The frame without rows that a dask DataFrame announces; None for a Bag."""

    @classmethod
    def of(cls, schema: str | None, collection: str) -> ResultForm:
        """Return the form of a call; its schema is text, as `RunOptions` has it.

        Raise `OptionError` for a DataFrame without a schema, and a Bag with one.
        """
        if check_one_of("dataframe", "bag")("collection", collection) == "bag":
            if schema is not None:
                msg = f"{Option('schema')}: not with {Option('collection', 'bag')}."
                raise OptionError(msg)
            return cls(None)
        if schema is None:
            msg = (
                f"{Option('schema')}: a dask DataFrame announces its columns before run() is "
                "called. Give their names and types, such as schema={'id': 'int64', 'score': "
                f"'float64'}}, a frame without rows, or an Arrow schema; or say "
                f"{Option('collection', 'bag')}."
            )
            raise OptionError(msg)
        return cls(clear_known_categories(schema_of(schema).empty_table().to_pandas()))

    def partition(
        self,
        pieces: Iterable[tuple[int, TypedPiece]],
        number: int,
        columns: Sequence[Any] | None = None,
    ) -> Any:
        """Return a partition: a frame, of which some columns may be taken, or a list of items.

        The pieces come in order, each with the number of its mini-batch. Raise `ReturnTypeError`,
        with the number of the partition, when rows do not fit the announced columns.
        """
        if self.meta is None:
            return [item for _, piece in pieces for item in _items(piece)]
        taken = self.meta if columns is None else self.meta[list(columns)]
        frames = [
            _typed(one_frame(some), taken, f"partition {number}, mini-batch {index}")
            for index, some in groupby(_selected(pieces, [*taken]), key=itemgetter(0))
        ]
        filled = [frame for frame in frames if len(frame)]
        return _together(filled, number) if filled else taken.copy()


def schema_of_meta(meta: Any, schema: Any, collection: str) -> pd.DataFrame:
    """Return a frame without rows that has the columns of Dask's `meta`.

    Raise `OptionError` when `meta` is not the form of a frame, or beside a `schema` or a Bag.
    """
    other = Option("schema") if schema is not None else Option("collection", collection)
    if schema is not None or collection == "bag":
        why = "which says the same here" if schema is not None else "whose items have no columns"
        msg = f"{Option('meta', meta)}: not with {other}, {why}."
        raise OptionError(msg)
    made = None
    with suppress(Exception):  # whatever Dask and pandas raise for it
        made = make_meta(meta)
    if not isinstance(made, pd.DataFrame):
        msg = (
            f"{Option('meta', meta)}: the result is a DataFrame. Give a frame without rows, a "
            "mapping of column names to types, or a list of names and types, such as "
            "[('id', 'int64'), ('score', 'float64')]."
        )
        raise OptionError(msg)
    texts = [name for name in made if pd.api.types.is_object_dtype(made[name])]
    return made.iloc[:0].astype(dict.fromkeys(texts, TEXT))


def _together(frames: list[pd.DataFrame], number: int) -> pd.DataFrame:
    """Concatenate frames of the same types; each has categories of its own."""
    made = pd.concat(frames, ignore_index=True)
    for name, dtype in frames[0].dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            try:
                made[name] = union_categoricals([frame[name] for frame in frames])
            except TypeError as error:
                msg = (
                    f"partition {number}: the categories of the column {name!r} differ between "
                    f"mini-batches, and cannot be put together: {error}. Return the same "
                    "categories, in the same order, for every mini-batch."
                )
                raise ReturnTypeError(msg) from error
    return made


def _typed(frame: pd.DataFrame | None, taken: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the rows of a mini-batch with the announced columns, and their types of pandas."""
    if frame is None or not len(frame):
        return taken
    dtypes = list(taken.dtypes)
    is_typed = list(frame.columns) == list(taken.columns) and list(frame.dtypes) == dtypes
    if is_typed and not any(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes):
        return frame
    columns = {}
    for name, dtype in taken.dtypes.items():
        column = frame[name]
        try:
            columns[name] = _converted(column, dtype)
        except MISFITS as error:
            msg = (
                f"{where}: the column {name!r} is {dtype} in {Option('schema')}, which pandas "
                f"cannot make of it: {error}. Give a type with a null, such as 'Int64' or "
                "'boolean', if it has nulls."
            )
            raise ReturnTypeError(msg) from error
    return pd.DataFrame(columns, index=frame.index)


def _converted(column: pd.Series, dtype: Any) -> pd.Series:
    """Return a column as the announced type; categories stay as they are."""
    if not isinstance(dtype, pd.CategoricalDtype):
        return converted(column, dtype)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype("category")
    return column.cat.as_ordered() if dtype.ordered else column.cat.as_unordered()


def _selected(
    pieces: Iterable[tuple[int, TypedPiece]], columns: list[Any]
) -> Iterator[tuple[int, TypedPiece]]:
    """Yield pieces, those of Arrow with these columns alone; without any, rows are counted."""
    for index, piece in pieces:
        value = piece.value
        if columns and isinstance(value, KeptTable):
            value = replace(value, table=value.table.select(columns))
        yield index, piece._replace(value=value)


def _items(piece: TypedPiece) -> Iterator[Any]:
    """Yield the items of a piece; a row of a frame is a dict."""
    value = piece.value
    if piece.kind == "array":
        yield from value
        return
    for frame in value.frames() if isinstance(value, KeptTable) else [value]:
        yield from frame.to_dict("records")
