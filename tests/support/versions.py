"""Types and names that differ between the versions of pandas that daskprs works with."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

IS_PANDAS_2 = pd.__version__ < "3"
ARROW = int(pa.__version__.partition(".")[0])
"""The version of Arrow. The first that reads null lists of fixed size from Parquet is 26."""
TEXT = "string" if IS_PANDAS_2 else "str"
"""A type of text that pandas tells from other objects: ``str`` is ``object`` in pandas 2."""
ARROW_TEXT = pa.string() if IS_PANDAS_2 else pa.large_string()
"""The type of Arrow for a column of text, if no type is given."""


def dtype_of(name: Any) -> Any:
    """Return the type that a column has if it is made with a type, which may be ``"str"``."""
    return pd.Series([], dtype=name).dtype


def of_pandas_3(*values: Any, why: str) -> Any:
    """Return a case of a test that pandas 2 skips, with the reason."""
    return pytest.param(*values, marks=pytest.mark.skipif(IS_PANDAS_2, reason=f"pandas 2: {why}"))
