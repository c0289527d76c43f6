"""The inputs of the benchmark: pictures as files and in a table, texts, and numbers."""

from __future__ import annotations

import importlib
import io
import os
import zlib
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

DISTINCT = 2_000
"""Pictures that differ from each other; the others are copies."""
WIDTH, HEIGHT = 500, 375
STAND_IN_SIDE = 16
ROW_GROUP, TEXTS_OF_A_GROUP = 256, 4_096
MEDIAN_WORDS, SIGMA = 60, 0.8
"""Of the length of a text, which is log-normal."""


class Size(NamedTuple):
    """How much there is of each input."""

    pictures: int
    texts: int
    numbers: int
    mini_batches: int
    """Of the jobs whose device does nothing but work."""


SIZES = {
    "full": Size(50_000, 10_000, 100_000, 1_000),
    "medium": Size(16_000, 10_000, 100_000, 300),
    "small": Size(4_000, 2_000, 10_000, 200),
    "tiny": Size(150, 60, 400, 20),
}


def picture(number: int) -> bytes:
    """Return a picture of a photograph's size; a small one that is no JPEG without Pillow."""
    draw = np.random.default_rng(number)
    if not os.environ["BENCH_DEVICE"]:
        return zlib.compress(draw.bytes(STAND_IN_SIDE * STAND_IN_SIDE * 3))
    image = importlib.import_module("PIL.Image")
    coarse = image.fromarray(draw.integers(0, 255, (12, 16, 3), "u1"))
    fine = np.asarray(coarse.resize((WIDTH, HEIGHT), image.Resampling.BICUBIC)).astype("i2")
    noisy = np.clip(fine + draw.integers(0, 25, fine.shape), 0, 255).astype("u1")
    sink = io.BytesIO()
    image.fromarray(noisy).save(sink, "JPEG", quality=85)
    return sink.getvalue()


def make_pictures(folder: Path, count: int) -> None:
    """Write pictures into `pictures`, one a file, and into `pictures.parquet`."""
    with ProcessPoolExecutor() as pool:
        bodies = list(pool.map(picture, range(min(count, DISTINCT)), chunksize=16))
    (folder / "pictures").mkdir()
    names = [f"{number:06d}.jpg" for number in range(count)]
    for number, name in enumerate(names):
        (folder / "pictures" / name).write_bytes(bodies[number % DISTINCT])
    table = pd.DataFrame({"name": names, "body": [bodies[n % DISTINCT] for n in range(count)]})
    table.to_parquet(folder / "pictures.parquet", row_group_size=ROW_GROUP)


def make_texts(folder: Path, count: int) -> None:
    """Write texts into `texts.parquet`."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(np.log(MEDIAN_WORDS), SIGMA, count), 3, 1_000).astype(int)
    words = np.array([f"word{number}" for number in range(20_000)])
    texts = [" ".join(draw.choice(words, length)) for length in lengths]
    table = pd.DataFrame({"id": range(count), "text": texts})
    table.to_parquet(folder / "texts.parquet", row_group_size=TEXTS_OF_A_GROUP)
