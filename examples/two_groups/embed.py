"""Embeds texts: decoded on a core, multiplied where the model is, made into rows on a core."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from daskprs import MiniBatchContext

HALF_LIFE = 4.0
"""Of the weight of a letter, in letters of the alphabet."""
weights = np.empty(0)


def init() -> None:
    """Load the model, and put it on the GPU; only the processes of `run` do."""
    global weights  # noqa: PLW0603 - scripts keep their model so
    weights = 0.5 ** (np.arange(256) / HALF_LIFE)


def init_preprocess() -> None:
    """Prepare what the functions beside `run` need: nothing here."""


def decode(mini_batch: pd.DataFrame) -> dict[str, object]:
    """Unpack and count: the work for cores. Return an array, and the node that has done it."""
    texts = [zlib.decompress(one) for one in mini_batch["text"]]
    counts = np.array([np.bincount(np.frombuffer(one, "u1"), minlength=256) for one in texts])
    return {"counts": counts, "node": Path.cwd().parent.name}


def run(decoded: dict[str, np.ndarray]) -> dict[str, object]:
    """Multiply by the weights: the work for the GPU."""
    return {**decoded, "scores": decoded["counts"] @ weights}


def rows(scored: dict[str, np.ndarray], context: MiniBatchContext) -> pd.DataFrame:
    """Return a row for each text."""
    first = context.global_row_index_lower_bound or 0
    numbers = range(first, first + len(scored["scores"]))
    return pd.DataFrame({"text": numbers, "score": scored["scores"], "decoded on": scored["node"]})
