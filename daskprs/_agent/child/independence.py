"""Whether two runs over the same items returned the same rows."""

from __future__ import annotations

import io

import pandas as pd

from daskprs._output.read_rows import one_frame
from daskprs._output.rows.typed_rows import decode
from daskprs._system.seal import Seal

TOLERANCE = 1e-4
"""Largest relative, and largest absolute, difference of two floats that count as equal: models
compute larger batches in another order."""


def difference(one: bytes, other: bytes) -> str:
    """Return how typed rows differ; empty if they are the same but for the last digits of floats.

    Counts, columns and types count, and values; the index does not.
    """
    first, second = map(_frame, (one, other))
    try:
        pd.testing.assert_frame_equal(first, second, rtol=TOLERANCE, atol=TOLERANCE)
    except Exception as error:  # noqa: BLE001 - objects of a person's code may not be comparable
        return str(error) or type(error).__name__
    return ""


def _frame(rows: bytes) -> pd.DataFrame:
    pieces = decode(io.BytesIO(rows), len(rows), Seal(is_trusted=True))
    frame = one_frame((0, piece) for piece in pieces)
    return pd.DataFrame() if frame is None else frame.reset_index(drop=True)
