"""Start the threads of polars: they stay, and are not what a test has left behind."""

from __future__ import annotations

import polars as pl

list(pl.LazyFrame({"a": [1]}).collect_batches())
