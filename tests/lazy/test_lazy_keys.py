"""The keys of a lazy collection: they name what its rows depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd

import daskprs

if TYPE_CHECKING:
    import pytest


def run(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows."""
    return rows


def keys(**options: Any) -> list[Any]:
    """Return the keys of a collection whose partitions run in tasks."""
    data = dd.from_pandas(pd.DataFrame({"n": range(4)}), npartitions=2)
    made = daskprs.map_batches(data, run, schema={"n": "int64"}, committed=False, **options)
    return list(made.__dask_keys__())


def test_the_value_of_a_secret_makes_no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler shows keys; a digest of a short secret could be tried out."""
    made = []
    for value in ("first-value", "other-value"):
        monkeypatch.setenv("TOKEN", value)
        made.append((keys(secrets=["TOKEN"]), keys(environment_variables={"A": value})))
    assert made[0][0] == made[1][0]
    assert made[0][1] != made[1][1]
