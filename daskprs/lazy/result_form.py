"""The announced form of a lazy collection, and its partitions, made of what `run` returned."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa

from daskprs.errors import Option, OptionError, ReturnTypeError
from daskprs.inputs.source.given_types import converted, pandas_type
from daskprs.options.rules import announced_columns, check_one_of
from daskprs.output.read_rows import one_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daskprs.output.rows.typed_rows import TypedPiece


class ResultForm(NamedTuple):
    """What the partitions of a collection are."""

    meta: pd.DataFrame | None
    """The frame without rows that a dask DataFrame announces; None for a Bag."""

    @classmethod
    def of(cls, schema: Any, collection: str) -> ResultForm:
        """Return the form that a call gives.

        Raises
        ------
        OptionError
            For a DataFrame without a schema, a Bag with one, and what is not a schema.

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
        return cls(_frame_without_rows(schema))

    def partition(
        self,
        pieces: Iterable[tuple[int, TypedPiece]],
        number: int,
        columns: Sequence[Any] | None = None,
    ) -> Any:
        """Return a partition: a frame, or a list of items.

        Parameters
        ----------
        pieces
            Each with the number of its mini-batch, in order.
        number
            The partition, for errors.
        columns
            The columns to take of a frame. Default: all.

        Raises
        ------
        ReturnTypeError
            When rows do not fit the announced columns.

        """
        if self.meta is None:
            return [item for _, piece in pieces for item in _items(piece)]
        taken = self.meta if columns is None else self.meta[list(columns)]
        frames = [
            self._frame(taken, index, some, number)
            for index, some in groupby(pieces, key=itemgetter(0))
        ]
        filled = [frame for frame in frames if len(frame)]
        return pd.concat(filled, ignore_index=True) if filled else taken.copy()

    def _frame(
        self, taken: pd.DataFrame, index: int, pieces: Iterable[Any], number: int
    ) -> pd.DataFrame:
        """Return the rows of a mini-batch with announced columns and types."""
        where = f"partition {number}, mini-batch {index}: run() returned"
        frame = one_frame(pieces)
        if frame is None or not len(frame):
            return taken
        meta = self.meta
        assert meta is not None  # noqa: S101 - for the types
        if set(frame.columns) != set(meta.columns) or len(frame.columns) != len(meta.columns):
            msg = (
                f"{where} the columns {list(frame.columns)}, and {Option('schema')} has "
                f"{list(meta.columns)}. Return these, or correct the schema."
            )
            raise ReturnTypeError(msg)
        frame = frame[list(taken.columns)]
        for name, dtype in taken.dtypes.items():
            if frame[name].dtype == dtype:
                continue
            try:
                frame = frame.assign(**{str(name): converted(frame[name], dtype)})
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                msg = (
                    f"{where} the column {name!r} as {frame[name].dtype}, and {Option('schema')} "
                    f"has {dtype}: {error}. Return that type, or correct the schema ('Int64' holds "
                    "integers and nulls)."
                )
                raise ReturnTypeError(msg) from error
        return frame


def _frame_without_rows(schema: Any) -> pd.DataFrame:
    """Return the frame without rows that a schema describes."""
    if isinstance(schema, pa.Schema):
        frame: pd.DataFrame = schema.empty_table().to_pandas()
        return frame
    types = announced_columns("schema", schema) or {}
    typed = {name: pandas_type(name, kind, "schema") for name, kind in types.items()}
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in typed.items()})


def _items(piece: TypedPiece) -> Iterator[Any]:
    """Yield the items of a piece; a row of a frame is a dict."""
    match piece.kind:
        case "frame":
            yield from piece.value.to_dict("records")
        case "array":
            yield from piece.value
        case "element":
            yield piece.value
