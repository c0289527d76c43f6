"""Entry script: embed texts of a table."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from nets import TEXTS_AT_ONCE, embedder, padded, tokens


def init_preprocess() -> None:
    """Tokenizing needs nothing."""


def init() -> None:
    """Make the network."""
    global vectors  # noqa: PLW0603 - scripts keep their model so
    vectors = embedder()


vectors: Any = None


def tokenize(mini_batch: pd.DataFrame) -> dict[str, Any]:
    """Return the texts as arrays of tokens, those of like length together."""
    found = [tokens(one) for one in mini_batch["text"]]
    order = np.argsort([len(one) for one in found], kind="stable")
    places = [order[at : at + TEXTS_AT_ONCE] for at in range(0, len(order), TEXTS_AT_ONCE)]
    batches = [padded([found[at] for at in place]) for place in places]
    return {"ids": mini_batch["id"].to_numpy(), "order": order, "batches": batches}


def run(tokenized: dict[str, Any]) -> dict[str, Any]:
    """Embed the texts."""
    made = np.concatenate([vectors(one) for one in tokenized["batches"]])
    inverse = np.argsort(tokenized["order"])
    return {"ids": tokenized["ids"], "vectors": made[inverse], "done": time.time()}


def rows(made: dict[str, Any]) -> pd.DataFrame:
    """Return a row for each text."""
    return pd.DataFrame({"id": made["ids"], "vector": list(made["vectors"]), "done": made["done"]})
