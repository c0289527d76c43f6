"""Writes the handwritten digits that scikit-learn ships as one table, a row for each scan.

The rows are in the order of the scans, so that each label is spread over the whole table. Start
it from the root of the project:

    python examples/odd_ones_out/make_data.py odd

The folder then holds `digits.csv`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_digits


def main(folder: Path) -> None:
    """Write the table into a folder."""
    digits = load_digits()
    pixels = pd.DataFrame(digits.data.astype(int)).add_prefix("pixel_")
    table = pd.concat(
        [
            pd.Series(digits.target, name="label"),
            pd.Series(range(len(pixels)), name="scan"),
            pixels,
        ],
        axis=1,
    )
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "digits.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
