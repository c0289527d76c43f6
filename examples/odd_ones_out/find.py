"""Finds the odd ones in a labelled table: how little each row looks like others of its label.

A model is fitted for each label, on all rows of that label, wherever they lie in the table: a job
with partition keys. The oddest rows of a label are those to look through for wrong labels. From
the root of the project:

    python examples/odd_ones_out/make_data.py odd
    daskprs run examples/odd_ones_out/find.py odd/digits.csv --partition-keys label \
        --output-dir odd/output --append-row-file-name odd.csv --append-row-dataframe-sep , \
        --append-row-dataframe-header

`make demo` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from sklearn.ensemble import IsolationForest

if TYPE_CHECKING:
    from daskprs import MiniBatchContext


def run(mini_batch: pd.DataFrame, context: MiniBatchContext) -> pd.DataFrame:
    """Fit all rows of one label, and return them with their oddness, the oddest first."""
    pixels = mini_batch.filter(like="pixel_")
    forest = IsolationForest(random_state=0).fit(pixels)
    scored = pd.DataFrame(
        {
            "label": context.partition_key_value["label"],
            "scan": mini_batch["scan"],
            "oddness": (-forest.score_samples(pixels)).round(3),
        }
    )
    return scored.sort_values(["oddness", "scan"], ascending=[False, True])
