"""The networks of the benchmark, with random weights, and what stands in for them without PyTorch.

`DEVICE` is ``cuda``, ``cpu`` (PyTorch without a card), or empty: then NumPy stands in.
"""

from __future__ import annotations

import importlib
import io
import os
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = os.environ.get("BENCH_DEVICE", "")
SIDE = 224 if DEVICE else 16
"""Pixels of a decoded picture, across."""
VOCABULARY, WIDTH, LAYERS, HEADS, MOST_TOKENS = 30_000, 384, 6, 12, 512
TEXTS_AT_ONCE = 256
JPEG = b"\xff\xd8"


def package(name: str) -> Any:
    """Return a package that only machines with PyTorch have."""
    return importlib.import_module(name)


def pixels(body: bytes) -> Any:
    """Decode a picture, to bytes of a fixed shape; one that is no JPEG stands in for one."""
    if body[:2] != JPEG:
        return np.frombuffer(zlib.decompress(body), "u1").reshape(SIDE, SIDE, 3)
    image = package("PIL.Image")
    picture = image.open(io.BytesIO(body))
    picture.draft("RGB", (SIDE, SIDE))
    return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), image.Resampling.BILINEAR))


def classifier(name: str) -> Callable[[Any], Any]:
    """Return a function that gives each picture of a batch the number of its class.

    ``none`` is no network: what is left is the work of the cores.
    """
    if not DEVICE:
        weights = np.random.default_rng(0).normal(size=(SIDE * SIDE * 3, 10))
        return lambda batch: np.argmax(batch.reshape(len(batch), -1) @ weights, axis=1)
    torch = package("torch")
    if name == "none":
        return lambda batch: np.asarray(batch)[:, 0, 0, 0] % 10
    torch.manual_seed(0)
    kind = torch.float16 if DEVICE == "cuda" else torch.float32
    net = getattr(package("torchvision.models"), name)(weights=None).eval()
    net = net.to(DEVICE, dtype=kind, memory_format=torch.channels_last)

    def classes(batch: Any) -> Any:
        with torch.inference_mode():
            there = torch.as_tensor(batch).to(DEVICE, non_blocking=True)
            scaled = there.permute(0, 3, 1, 2).to(kind).div_(255)
            return net(scaled).argmax(1).cpu().numpy()

    return classes


def tokens(text: str) -> list[int]:
    """Return the numbers of the words of a text."""
    return [zlib.crc32(word.encode()) % VOCABULARY for word in text.split()][:MOST_TOKENS]


def padded(texts: list[list[int]]) -> Any:
    """Return the tokens of some texts as one array; 0 stands where there is none."""
    batch = np.zeros((len(texts), max(map(len, texts))), "i4")
    for row, one in zip(batch, texts, strict=True):
        row[: len(one)] = one
    return batch


def embedder() -> Callable[[Any], Any]:
    """Return a function that gives each text of a batch of tokens a vector."""
    if not DEVICE:
        table = np.random.default_rng(0).normal(size=(VOCABULARY, 8)).astype("f4")
        table[0] = 0  # what fills a batch up counts for nothing
        return lambda batch: table[batch].sum(axis=1) / (batch != 0).sum(axis=1, keepdims=True)
    torch = package("torch")
    torch.manual_seed(0)
    kind = torch.float16 if DEVICE == "cuda" else torch.float32
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, batch_first=True, norm_first=True, dropout=0.0
    )
    encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    encoder = encoder.eval().to(DEVICE, dtype=kind)
    table = torch.nn.Embedding(VOCABULARY, WIDTH).to(DEVICE, dtype=kind)

    def vectors(batch: Any) -> Any:
        with torch.inference_mode():
            there = torch.as_tensor(batch).to(DEVICE, non_blocking=True)
            absent = there == 0
            made = encoder(table(there.long()), src_key_padding_mask=absent)
            made = made.masked_fill(absent[:, :, None], 0).float()
            return (made.sum(1) / (~absent).sum(1, keepdim=True)).cpu().numpy()

    return vectors
