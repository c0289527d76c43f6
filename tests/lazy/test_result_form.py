"""The partitions of a lazy collection have the types that it announces."""

from __future__ import annotations

import pandas as pd
import pytest

from daskprs._lazy.result_form import ResultForm
from daskprs._output.rows.given_schema import schema_text
from daskprs._output.rows.typed_rows import TypedPiece
from daskprs.errors import ReturnTypeError

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
