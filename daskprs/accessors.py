"""The accessor ``prs`` on frames: ``ddf.prs.map_batches(script, schema=…)``.

``import daskprs.accessors`` adds it to frames and Series of dask and pandas, and of polars where
polars is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import dask.dataframe as dd
import pandas as pd

from daskprs._lazy.map_batches import map_batches

__all__ = ["FrameAccessor"]


class FrameAccessor:
    """The methods that daskprs adds to a frame or a Series, under its name ``prs``."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def map_batches(self, script: Any, **options: Any) -> Any:
        """Return a lazy collection, as `daskprs.map_batches` does with the frame as `data`."""
        return map_batches(self._frame, script, **options)


for extensions in (dd.extensions, pd.api.extensions):
    extensions.register_dataframe_accessor("prs")(FrameAccessor)
    extensions.register_series_accessor("prs")(FrameAccessor)
if find_spec("polars") is not None:
    import polars as pl

    pl.api.register_dataframe_namespace("prs")(FrameAccessor)
    pl.api.register_series_namespace("prs")(FrameAccessor)
