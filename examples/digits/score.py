"""Reads handwritten digits: a model is loaded once, then scores pictures a mini-batch at a time.

Make the pictures and the model, then run this script over them, from the root of the project:

    python examples/digits/make_data.py digits
    daskprs run examples/digits/score.py digits/images --output-dir digits/output \
        --append-row-file-name predictions.csv --append-row-dataframe-sep , \
        --append-row-dataframe-header -- --model digits/model.pickle

`make demo` does the same.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

model: Any = None


def init() -> None:
    """Load the model, once in each agent process."""
    global model  # noqa: PLW0603 - init() and run() share the model in this way everywhere
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    known, _ = parser.parse_known_args()  # sys.argv holds flags of the system too
    model = pickle.loads(known.model.read_bytes())


def run(mini_batch: list[str]) -> pd.DataFrame:
    """Score some pictures: one row for each."""
    pixels = np.stack([read_pgm(Path(path)) for path in mini_batch])
    chances = model.predict_proba(pixels)
    return pd.DataFrame(
        {
            "picture": [Path(path).name for path in mini_batch],
            "digit": model.classes_[chances.argmax(axis=1)],
            "chance": chances.max(axis=1).round(3),
        }
    )


def read_pgm(path: Path) -> np.ndarray:
    """Return the pixels of a binary PGM picture with a header of one line."""
    header, _, pixels = path.read_bytes().partition(b"\n")
    magic, width, height, _ = header.split()
    if magic != b"P5" or len(pixels) != int(width) * int(height):
        message = f"{path} is not a whole PGM picture"
        raise ValueError(message)
    return np.frombuffer(pixels, dtype=np.uint8)
