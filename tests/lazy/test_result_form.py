"""The partitions of a lazy collection have the types that it announces."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest

import daskprs
from daskprs._lazy.result_form import ResultForm
from daskprs._output.rows.given_schema import schema_text
from daskprs._output.rows.typed_rows import TypedPiece
from daskprs.errors import OptionError, ReturnTypeError

SIZES = pd.CategoricalDtype(["small", "large", "huge"], ordered=True)


def sizes(dtype: pd.CategoricalDtype, *values: str) -> TypedPiece:
    """Return a kept frame with a column of categories."""
    return TypedPiece("frame", pd.DataFrame({"size": pd.Categorical(values, dtype=dtype)}))


def test_categories_keep_their_order_and_those_without_rows() -> None:
    """As the announced form says."""
    form = ResultForm.of(schema_text({"size": SIZES}), "dataframe")
    pieces = [(0, sizes(SIZES, "small", "large")), (1, sizes(SIZES, "large"))]
    made = form.partition(pieces, 0)
    assert made["size"].dtype == SIZES
    assert made["size"].tolist() == ["small", "large", "large"]
    assert form.meta is not None
    assert form.meta["size"].cat.ordered


def test_ordered_categories_that_differ_are_refused() -> None:
    """No order of all of them is known."""
    form = ResultForm.of(schema_text({"size": SIZES}), "dataframe")
    other = pd.CategoricalDtype(["tiny", "small"], ordered=True)
    with pytest.raises(ReturnTypeError, match=r"partition 3: the categories of .* 'size' differ"):
        form.partition([(0, sizes(SIZES, "small")), (1, sizes(other, "tiny"))], 3)


@pytest.mark.parametrize(
    "meta",
    [
        {"n": "i8", "text": object, "score": "f8"},
        [("n", "int64"), ("text", "object"), ("score", float)],
        pd.DataFrame({"n": [1], "text": ["a"], "score": [0.5]}),
    ],
    ids=["mapping", "pairs", "frame"],
)
def test_meta_announces_the_result_as_in_dask(meta: object) -> None:
    """In the forms of `map_partitions`; objects of its frames are text."""
    frame = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=2)
    lazy = daskprs.map_batches(frame, lambda rows: rows, meta=meta)  # type: ignore[arg-type]
    schema = {"n": "int64", "text": "str", "score": "float64"}
    same = daskprs.map_batches(frame, lambda rows: rows, schema=schema)
    assert lazy.dtypes.to_dict() == same.dtypes.to_dict()


@pytest.mark.parametrize(
    ("meta", "others", "said"),
    [
        (("n", "f8"), {}, "the result is a DataFrame. Give a frame without rows"),
        ({"n": "f8"}, {"schema": {"n": "f8"}}, "not with schema"),
        ({"n": "f8"}, {"collection": "bag"}, "not with collection='bag'"),
    ],
)
def test_meta_that_announces_no_frame_is_refused(
    meta: object, others: dict[str, Any], said: str
) -> None:
    """The message names the form that the result has."""
    frame = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=2)
    with pytest.raises(OptionError, match=said):
        daskprs.map_batches(frame, lambda rows: rows, meta=meta, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("committed", [True, False])
def test_rows_of_nulls_are_refused_with_what_to_use_instead(*, committed: bool) -> None:
    """As `parallel_run` has them, which a lazy collection has not."""
    frame = pd.DataFrame({"n": [1]})
    given: dict[str, Any] = {"on_error": "null", "committed": committed, "schema": frame}
    with pytest.raises(OptionError, match=r"Leave bad rows out by on_error='isolate', or call"):
        daskprs.map_batches(frame, lambda rows: rows, **given)
