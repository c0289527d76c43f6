"""The loops that daskprs is compared with, as a person writes them for one card.

``python loops.py pictures|texts INPUT OUTPUT PROCESSES``: each writes a Parquet file, as the job
does. The loader of PyTorch decodes in processes, into page-locked memory; texts are sorted by
length, as `SentenceTransformer.encode` does. Without PyTorch, a pool of processes decodes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

BATCH = 64


class Pictures:
    """The pictures of a folder or of a table, each decoded when it is asked for."""

    def __init__(self, given: Path) -> None:
        self.files: list[Path] = []
        self.bodies: list[bytes] = []
        if given.is_dir():
            self.files = sorted(given.iterdir())
            self.names = [one.name for one in self.files]
        else:
            table = pq.read_table(given)
            self.bodies, self.names = table["body"].to_pylist(), table["name"].to_pylist()

    def __len__(self) -> int:
        """Return their number."""
        return len(self.names)

    def __getitem__(self, at: int) -> Any:
        """Return the pixels of one."""
        return nets.pixels(self.files[at].read_bytes() if self.files else self.bodies[at])


pictures: Any = None


def _batch_at(first: int) -> Any:
    end = min(first + BATCH, len(pictures))
    return np.stack([pictures[at] for at in range(first, end)])


def classified(given: Path, processes: int) -> pd.DataFrame:
    """Return the class of each picture."""
    global pictures  # noqa: PLW0603 - so that forks have it
    pictures = Pictures(given)
    classes = nets.classifier(os.environ["BENCH_NET"])
    found, done = [], []
    if nets.DEVICE:
        data = nets.package("torch.utils.data")
        loader = data.DataLoader(
            pictures,
            batch_size=BATCH,
            num_workers=processes,
            pin_memory=nets.DEVICE == "cuda",
            collate_fn=_stacked,
        )
        for batch in loader:
            found.append(classes(batch))
            done += [time.time()] * len(batch)
    else:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            for batch in pool.imap(_batch_at, range(0, len(pictures), BATCH)):
                found.append(classes(batch))
                done += [time.time()] * len(batch)
    return pd.DataFrame({"name": pictures.names, "class": np.concatenate(found), "done": done})


def _stacked(batch: list[Any]) -> Any:
    return nets.package("torch").from_numpy(np.stack(batch))


def embedded(given: Path) -> pd.DataFrame:
    """Return the vector of each text."""
    table = pq.read_table(given).to_pandas()
    vectors = nets.embedder()
    found = [nets.tokens(one) for one in table["text"]]
    order = np.argsort([-len(one) for one in found], kind="stable")
    made, done = [], []
    for at in range(0, len(order), nets.TEXTS_AT_ONCE):
        place = order[at : at + nets.TEXTS_AT_ONCE]
        made.append(vectors(nets.padded([found[one] for one in place])))
        done += [time.time()] * len(place)
    inverse = np.argsort(order)
    rows = list(np.concatenate(made)[inverse])
    return pd.DataFrame({"id": table["id"], "vector": rows, "done": np.array(done)[inverse]})


if __name__ == "__main__":
    what, source, target, count = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    result = classified(source, count) if what == "pictures" else embedded(source)
    result.to_parquet(target)
