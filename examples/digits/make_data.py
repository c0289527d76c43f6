"""Writes the handwritten digits that scikit-learn ships as pictures, and a model that reads them.

The first half of the 1,797 digits trains the model; the second half becomes pictures. Start it
from the root of the project:

    python examples/digits/make_data.py digits

The folder then holds `images/`, `model.pickle`, and `truth.csv`, which says what was written.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

WIDTH, WHITE = 8, 16


def main(folder: Path) -> None:
    """Write everything into a folder."""
    digits = load_digits()
    half = len(digits.target) // 2
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):  # several threads wait for each other on so small a table
        model = LogisticRegression(max_iter=2000).fit(digits.data[:half], digits.target[:half])
    (folder / "model.pickle").write_bytes(pickle.dumps(model))
    header = f"P5 {WIDTH} {WIDTH} {WHITE}\n".encode()
    for number in range(half, len(digits.target)):
        pixels = digits.data[number].astype("uint8").tobytes()
        (images / f"digit_{number:04d}.pgm").write_bytes(header + pixels)
    truth = pd.DataFrame({"picture": [path.name for path in sorted(images.iterdir())]})
    truth["digit"] = digits.target[half:]
    truth.to_csv(folder / "truth.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
